//! [`Name`]: a name that a certificate carries. [`AllowedClients`]: which of them a server lets in.

use crate::error::{ErrorKind, TransportError};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::fmt;
use std::sync::Arc;
use webpki::EndEntityCert;

/// A subject alternative name (RFC 5280, 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A DNS name or an IP address.
    Host(ServerName<'static>),
    /// Compared byte by byte.
    Uri(String),
}

impl Name {
    /// # Errors
    /// Kind `Config` for what is no name, such as `host:port`; names it.
    pub(super) fn parse(text: &str) -> Result<Self, TransportError> {
        if let Ok(host) = ServerName::try_from(text) {
            return Ok(Self::Host(host.to_owned()));
        }
        if (text.contains("://") || text.starts_with("urn:")) && text.is_ascii() {
            return Ok(Self::Uri(text.to_owned()));
        }
        let detail = "is no name that a certificate can carry: write a DNS name (worker-1.example), an IP address \
                      without a port, or a URI (spiffe://example/worker)";
        Err(TransportError::new(
            ErrorKind::Config,
            "read certificate name",
            format!("`{text}`"),
            detail,
        ))
    }

    fn is_of(&self, cert: &EndEntityCert<'_>) -> bool {
        match self {
            Self::Host(host) => cert.verify_is_valid_for_subject_name(host).is_ok(),
            Self::Uri(uri) => cert.valid_uri_names().any(|name| name == uri),
        }
    }
}

/// Lets in clients that `authority` lets in and that have one of `names`.
#[derive(Debug)]
pub(super) struct AllowedClients {
    pub(super) authority: Arc<dyn ClientCertVerifier>,
    pub(super) names: Arc<[Name]>,
}

impl ClientCertVerifier for AllowedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .authority
            .verify_client_cert(end_entity, intermediates, now)?;
        let cert = EndEntityCert::try_from(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if self.names.iter().any(|name| name.is_of(&cert)) {
            return Ok(verified);
        }
        let refused = NotAllowed::new(&cert);
        Err(CertificateError::Other(OtherError(Arc::new(refused))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

/// A client with a valid certificate and none of the allowed names. Reaches the client over QUIC, so it tells what the
/// client has and not what it lacks.
struct NotAllowed {
    names: Vec<String>,
}

/// A log line's worth.
const MAX_NAMES: usize = 8;

impl NotAllowed {
    fn new(cert: &EndEntityCert<'_>) -> Self {
        let nobody = ServerName::try_from("nobody.invalid").ok();
        let compared = nobody.map(|nobody| cert.verify_is_valid_for_subject_name(&nobody));
        let mut names = match compared {
            Some(Err(webpki::Error::CertNotValidForName(context))) => context.presented,
            _ => vec![],
        };
        names.truncate(MAX_NAMES);
        // The CA signed them, which is no reason to trust them with a terminal.
        let names = names.iter().map(|name| name.replace(char::is_control, "?"));
        Self {
            names: names.collect(),
        }
    }
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match self.names.as_slice() {
            [] => "no name".to_owned(),
            names => names.join(", "),
        };
        write!(
            f,
            "the certificate is valid, but for {names}, which `ServerTls::with_allowed_clients` does not let in"
        )
    }
}

/// rustls shows errors of others so.
impl fmt::Debug for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NotAllowed {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hosts_or_uris() {
        for host in ["worker-1", "worker-1.example", "10.0.0.5", "::1"] {
            assert!(matches!(Name::parse(host).unwrap(), Name::Host(_)));
        }
        for uri in ["spiffe://example/worker", "urn:uuid:1234"] {
            assert_eq!(Name::Uri(uri.to_owned()), Name::parse(uri).unwrap());
        }
        for other in [
            "",
            "worker-1:8080",
            "10.0.0.5:8080",
            "*",
            "a b",
            "spiffe://é",
        ] {
            let err = Name::parse(other).unwrap_err();
            assert_eq!(ErrorKind::Config, err.kind());
            assert!(err.to_string().contains(&format!("`{other}`")), "{err}");
        }
    }
}
