//! [`ServerTls`]: who a server is, and whom it lets in.

use crate::error::TransportError;
use crate::tls::pem::{self, error, pair_error};
use crate::tls::reloading::Reloading;
use crate::tls::{protocol_names, provider};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use std::path::Path;
use std::sync::Arc;

/// Who a server is and, for mutual TLS, which clients it lets in. Cheap to clone; clones share what they read.
#[derive(Clone, Debug)]
pub struct ServerTls(Reloading<ServerConfig>);

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
        let build = move || build(&cert, &key, client_ca.as_deref());
        Ok(Self(Reloading::new(files, build)?))
    }

    /// For a transport: rustls's configuration as the files are now, taking the first of `protocols` that a client
    /// offers.
    ///
    /// Must run on a tokio runtime. Waits for the files at most a moment: while they can't be read, as on a file
    /// system that hangs, it gives what was read before. Cancel safe.
    pub async fn current(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        speaking(self.0.current().await, protocols)
    }

    /// Like [`current`](Self::current), as the files were when they were last read. Works anywhere.
    pub fn as_last_read(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        speaking(self.0.as_last_read(), protocols)
    }
}

fn speaking(mut config: Arc<ServerConfig>, protocols: &[&[u8]]) -> Arc<ServerConfig> {
    Arc::make_mut(&mut config).alpn_protocols = protocol_names(protocols);
    config
}

fn build(
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
            let roots = Arc::new(pem::roots(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|err| error(ca, err.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(pem::certificates(cert)?, pem::key(key)?)
        .map_err(|err| pair_error(cert, key, &err))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}
