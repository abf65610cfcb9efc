//! [`ClientTls`] and [`ServerTls`]: who this side is and whom it trusts, from PEM files.
//!
//! TLS 1.3 only, verification always on. Sessions are not resumed and nothing is sent before the handshake is done:
//! every connection is verified in full against the certificates of now, and no request can be replayed.

use crate::error::alpn_name;
use crate::reloading::Reloading;
use datafusion_transport_core::error::{ErrorKind, TransportError};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The protocol and its version, as the TLS handshake carries it (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"dfdt/1";

/// What a client trusts and, for mutual TLS, who it is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<Reloading<ClientConfig>>);

impl ClientTls {
    /// Trusts servers whose certificate the CAs in `ca` signed for the host name of the URL. `identity`, a file of
    /// certificates (its own first, then the chain) and one of its private key, is presented to servers that ask for it.
    ///
    /// The files are read now, and again before a connection is made when they have changed.
    ///
    /// # Errors
    /// Kind `Config`: a file is missing, holds no PEM of its kind, or the key is not the certificate's. Names the file.
    pub fn from_pem_files(
        ca: &Path,
        identity: Option<(&Path, &Path)>,
    ) -> Result<Self, TransportError> {
        let ca = ca.to_owned();
        let identity = identity.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
        let mut files = vec![ca.clone()];
        files.extend(
            identity
                .iter()
                .flat_map(|(cert, key)| [cert.clone(), key.clone()]),
        );
        let build = move || client_config(&ca, identity.as_ref());
        Ok(Self(Arc::new(Reloading::new(files, build)?)))
    }

    /// For quinn, as the files are now.
    pub(crate) fn quic(&self) -> Result<Arc<QuicClientConfig>, TransportError> {
        self.quic_with(self.0.current())
    }

    /// Like [`quic`](Self::quic), offering other protocols, to find out what a peer speaks.
    pub(crate) fn quic_offering(
        &self,
        protocols: Vec<Vec<u8>>,
    ) -> Result<Arc<QuicClientConfig>, TransportError> {
        let mut config = self.0.current().as_ref().clone();
        config.alpn_protocols = protocols;
        self.quic_with(Arc::new(config))
    }

    fn quic_with(
        &self,
        config: Arc<ClientConfig>,
    ) -> Result<Arc<QuicClientConfig>, TransportError> {
        QuicClientConfig::try_from(config)
            .map(Arc::new)
            .map_err(|err| error(Path::new("client"), err.to_string()))
    }
}

/// Who a server is and, for mutual TLS, which clients it lets in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<Reloading<ServerConfig>>);

impl ServerTls {
    /// Presents the certificates in `cert` (its own first, then the chain), whose private key is in `key`. With
    /// `client_ca` only clients with a certificate signed by a CA in that file get in. Without it **everyone who
    /// reaches the port gets in**, and a worker runs any plan it is sent: production needs it.
    ///
    /// The files are read now, and again before a connection is accepted when they have changed.
    ///
    /// # Errors
    /// Kind `Config`: a file is missing, holds no PEM of its kind, or the key is not the certificate's. Names the file.
    pub fn from_pem_files(
        cert: &Path,
        key: &Path,
        client_ca: Option<&Path>,
    ) -> Result<Self, TransportError> {
        let (cert, key) = (cert.to_owned(), key.to_owned());
        let client_ca = client_ca.map(Path::to_owned);
        let mut files = vec![cert.clone(), key.clone()];
        files.extend(client_ca.clone());
        let build = move || server_config(&cert, &key, client_ca.as_deref());
        Ok(Self(Arc::new(Reloading::new(files, build)?)))
    }

    /// For quinn, as the files are now.
    pub(crate) fn quic(&self) -> Result<Arc<QuicServerConfig>, TransportError> {
        QuicServerConfig::try_from(self.0.current())
            .map(Arc::new)
            .map_err(|err| error(Path::new("server"), err.to_string()))
    }
}

fn client_config(
    ca: &Path,
    identity: Option<&(PathBuf, PathBuf)>,
) -> Result<ClientConfig, TransportError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|err| error(ca, err.to_string()))?
        .with_root_certificates(read_roots(ca)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(read_certificates(cert)?, read_key(key)?)
            .map_err(|err| pair_error(cert, key, &err))?,
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(config)
}

fn server_config(
    cert: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<ServerConfig, TransportError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|err| error(cert, err.to_string()))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(read_roots(ca)?), provider())
                    .build()
                    .map_err(|err| error(ca, err.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(read_certificates(cert)?, read_key(key)?)
        .map_err(|err| pair_error(cert, key, &err))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// Chosen here, never the process-wide default, which another library may have set or left unset.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read_roots(file: &Path) -> Result<RootCertStore, TransportError> {
    let mut roots = RootCertStore::empty();
    for cert in read_certificates(file)? {
        roots.add(cert).map_err(|err| {
            error(
                file,
                format!("holds a CA certificate that can't be used: {err}"),
            )
        })?;
    }
    Ok(roots)
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let certs = CertificateDer::pem_slice_iter(&read(file)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| error(file, format!("is not valid PEM: {err}")))?;
    if certs.is_empty() {
        let detail = "holds no certificate (no `-----BEGIN CERTIFICATE-----`); is it the key file, or DER instead of PEM?";
        return Err(error(file, detail));
    }
    Ok(certs)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, TransportError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|err| match err {
        pem::Error::NoItemsFound => error(
            file,
            "holds no private key (no `-----BEGIN PRIVATE KEY-----`); is it the certificate file, or encrypted?",
        ),
        err => error(file, format!("is not valid PEM: {err}")),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, TransportError> {
    std::fs::read(file).map_err(|err| error(file, format!("cannot be read: {err}")))
}

fn pair_error(cert: &Path, key: &Path, err: &rustls::Error) -> TransportError {
    let key = key.display();
    let detail = match err {
        rustls::Error::InconsistentKeys(_) => {
            format!("is not the certificate of the private key in {key}")
        }
        err => format!("cannot be used with the private key in {key}: {err}"),
    };
    error(cert, detail)
}

fn error(file: &Path, detail: impl Into<String>) -> TransportError {
    let file = file.display().to_string();
    TransportError::new(ErrorKind::Config, "load TLS file", file, detail)
}

/// The protocols to offer to a peer that refused [`ALPN`], to learn which version it speaks.
pub(crate) fn other_versions() -> Vec<Vec<u8>> {
    // Few enough for the first packet, enough for the life of the project.
    (0..32)
        .map(|version| format!("dfdt/{version}").into_bytes())
        .collect()
}

/// For messages: what this side speaks.
pub(crate) fn own_version() -> String {
    alpn_name(ALPN)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    fn pair(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (cert_file, key_file) = (
            dir.join(format!("{name}.pem")),
            dir.join(format!("{name}.key")),
        );
        std::fs::write(&cert_file, cert.pem()).unwrap();
        std::fs::write(&key_file, signing_key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }

    #[test]
    fn unusable_files_are_named_with_the_fault() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = pair(dir.path(), "a");
        let (_, other_key) = pair(dir.path(), "b");
        let missing = dir.path().join("missing.pem");
        let garbage = dir.path().join("garbage.pem");
        std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\nabc\n").unwrap();

        let cases = [
            (
                ServerTls::from_pem_files(&missing, &key, None).err(),
                &missing,
                "cannot be read",
            ),
            (
                ServerTls::from_pem_files(&key, &key, None).err(),
                &key,
                "no certificate",
            ),
            (
                ServerTls::from_pem_files(&cert, &cert, None).err(),
                &cert,
                "no private key",
            ),
            (
                ServerTls::from_pem_files(&cert, &other_key, None).err(),
                &cert,
                "not the certificate of",
            ),
            (
                ServerTls::from_pem_files(&garbage, &key, None).err(),
                &garbage,
                "not valid PEM",
            ),
            (
                ServerTls::from_pem_files(&cert, &key, Some(&key)).err(),
                &key,
                "no certificate",
            ),
            (
                ClientTls::from_pem_files(&missing, None).err(),
                &missing,
                "cannot be read",
            ),
            (
                ClientTls::from_pem_files(&cert, Some((&cert, &other_key))).err(),
                &cert,
                "not the certificate of",
            ),
        ];
        for (err, file, words) in cases {
            let err = err.unwrap();
            assert_eq!(ErrorKind::Config, err.kind());
            let text = err.to_string();
            assert!(
                text.contains(file.to_str().unwrap()) && text.contains(words),
                "{text}"
            );
        }
    }
}
