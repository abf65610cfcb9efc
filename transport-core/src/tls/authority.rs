//! [`CertificateAuthority`]: signs the certificates of a cluster.

use crate::error::{ErrorKind, TransportError};
use crate::tls::names::Name;
use crate::tls::provider;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::fmt;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A private CA. Does no I/O: whoever makes one keeps its PEM texts, the key where nobody else reads it.
pub struct CertificateAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// A certificate and its private key, as PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key: a secret.
    pub key_pem: String,
}

/// Clocks differ: certificates are valid a little before they were made.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);
/// RFC 5280, appendix A.1.
const MAX_COMMON_NAME_CHARS: usize = 64;

impl CertificateAuthority {
    /// Makes a CA with a key of its own (ECDSA P-256), which ends after `validity`.
    ///
    /// # Errors
    /// Kind `Config`: a `validity` beyond what a certificate can say, or no random numbers.
    pub fn generate(validity: Duration) -> Result<Self, TransportError> {
        let key = KeyPair::generate().map_err(|err| error("CA", err.to_string()))?;
        let mut params = ca_params(&key);
        set_validity(&mut params, validity)?;
        let cert = params.self_signed(&key);
        let pem = cert.map_err(|err| error("CA", err.to_string()))?.pem();
        Self::with_key(pem, params, key)
    }

    /// A CA that [`generate`](Self::generate) made.
    ///
    /// # Errors
    /// Kind `Config`: no PEM of that kind. A CA of other software, or the key of another CA, is an error when
    /// it's to [`issue`](Self::issue).
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, TransportError> {
        let key = KeyPair::from_pem(key_pem)
            .map_err(|err| error("CA", format!("its key is not a private key in PEM: {err}")))?;
        let params = ca_params(&key);
        Self::with_key(certificate_pem.to_owned(), params, key)
    }

    fn with_key(
        pem: String,
        params: CertificateParams,
        key: KeyPair,
    ) -> Result<Self, TransportError> {
        let unusable = |err: String| error("CA", format!("its certificate can't be used: {err}"));
        let cert = CertificateDer::from_pem_slice(pem.as_bytes());
        let cert = cert.map_err(|err| unusable(err.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add(cert).map_err(|err| unusable(err.to_string()))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        Ok(Self {
            pem,
            issuer: Issuer::new(params, key),
            verifier: verifier.build().map_err(|err| unusable(err.to_string()))?,
        })
    }

    /// Its certificate, which peers trust.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Its private key: whoever has it can let anybody in.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a worker, a coordinator, or both, valid for `validity` from now. `names`: DNS names (also
    /// `*.hosts.example`), IP addresses or URIs, all for the one peer.
    ///
    /// # Errors
    /// Kind `Config`: no name or one that is none, a `validity` beyond what a certificate can say, or this CA's key is
    /// not that of its certificate.
    pub fn issue(
        &self,
        names: &[String],
        validity: Duration,
    ) -> Result<IssuedCertificate, TransportError> {
        let Some(first) = names.first() else {
            return Err(error("certificate", "needs at least one name"));
        };
        let failed = |err: rcgen::Error| error(format!("certificate of {first}"), err.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let cert = peer_params(names, validity)?
            .signed_by(&key, &self.issuer)
            .map_err(failed)?;
        self.verifier
            .verify_client_cert(cert.der(), &[], UnixTime::now())
            .map_err(|err| {
                let detail = format!(
                    "does not verify what its key signed ({err}): is the key that of the certificate, and was \
                     the CA made by this program?"
                );
                error("CA", detail)
            })?;
        Ok(IssuedCertificate {
            certificate_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedCertificate").finish_non_exhaustive()
    }
}

/// All but the time follows from the key, so that the key is enough to sign again. The name differs from CA to CA: one
/// that is not trusted is then unknown to a peer, rather than the author of a bad signature.
fn ca_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let mut name = "datafusion transport CA ".to_owned();
    for byte in params.key_identifier(key).iter().take(4) {
        // Infallible into a string.
        let _ = write!(name, "{byte:02x}");
    }
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn peer_params(names: &[String], validity: Duration) -> Result<CertificateParams, TransportError> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names
        .iter()
        .map(|name| alternative_name(name))
        .collect::<Result<_, _>>()?;
    params.distinguished_name = DistinguishedName::new();
    if let Some(name) = names.first().filter(|it| it.len() <= MAX_COMMON_NAME_CHARS) {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A worker is a client of other workers.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, validity)?;
    Ok(params)
}

fn alternative_name(name: &str) -> Result<SanType, TransportError> {
    if let Ok(ip) = name.parse() {
        return Ok(SanType::IpAddress(ip));
    }
    let unusable = |err: rcgen::Error| error(format!("name `{name}`"), err.to_string());
    // A wildcard for a whole top-level domain is one that peers refuse.
    let any = name.strip_prefix("*.").filter(|host| host.contains('.'));
    let host = any.unwrap_or(name);
    Ok(match Name::parse(host)? {
        Name::Host(_) => SanType::DnsName(name.try_into().map_err(unusable)?),
        Name::Uri(_) => SanType::URI(name.try_into().map_err(unusable)?),
    })
}

fn set_validity(params: &mut CertificateParams, validity: Duration) -> Result<(), TransportError> {
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(|err| error("certificate", format!("the clock is before 1970: {err}")))?;
    let end = since_1970.checked_add(validity).filter(|it| *it < LAST);
    let end = end.ok_or_else(|| error("certificate", "must end before the year 9999"))?;
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + end;
    Ok(())
}

/// The year 9998, since 1970: X.509 has four digits for the year.
const LAST: Duration = Duration::from_secs((9998 - 1970) * 365 * 86_400);

fn error(what: impl Into<String>, detail: impl Into<String>) -> TransportError {
    TransportError::new(ErrorKind::Config, "make certificate", what, detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_ca_that_was_kept_signs_again() {
        let made = CertificateAuthority::generate(DAY).unwrap();
        let kept = CertificateAuthority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
        for name in ["worker-1", "*.a.example", "10.0.0.5", "::1", "spiffe://a/b"] {
            made.issue(&names(&[name]), DAY).unwrap();
            kept.issue(&names(&[name, "localhost"]), DAY).unwrap();
        }
    }

    #[test]
    fn a_key_of_another_ca_signs_nothing() {
        let [one, other] = [(); 2].map(|()| CertificateAuthority::generate(DAY).unwrap());
        assert_ne!(one.certificate_pem(), other.certificate_pem());
        let mixed = CertificateAuthority::from_pem(one.certificate_pem(), &other.key_pem());
        let err = mixed.unwrap().issue(&names(&["a"]), DAY).unwrap_err();
        assert!(
            err.detail().contains("is the key that of the certificate"),
            "{err}"
        );
    }

    #[test]
    fn what_cannot_be_in_a_certificate_is_refused() {
        let ca = CertificateAuthority::generate(DAY).unwrap();
        assert!(ca.issue(&[], DAY).is_err());
        for name in ["", "a:1", "a b", "*", "*.*", "*.example", "10.0.0.5/24"] {
            let err = ca.issue(&names(&[name]), DAY).unwrap_err();
            assert_eq!(ErrorKind::Config, err.kind(), "{name}");
        }
        assert!(ca.issue(&names(&["a"]), Duration::MAX).is_err());
    }
}
