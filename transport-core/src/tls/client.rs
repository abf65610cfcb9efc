//! [`ClientTls`]: whom a client trusts, and who it is.

use crate::error::TransportError;
use crate::tls::pem::{self, error, pair_error};
use crate::tls::reloading::Reloading;
use crate::tls::{protocol_names, provider};
use rustls::ClientConfig;
use rustls::client::Resumption;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a client trusts and, for mutual TLS, who it is. Cheap to clone; clones share what they read.
#[derive(Clone, Debug)]
pub struct ClientTls(Reloading<ClientConfig>);

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
        let build = move || build(&ca, identity.as_ref());
        Ok(Self(Reloading::new(files, build)?))
    }

    /// For a transport: rustls's configuration as the files are now, offering `protocols`.
    ///
    /// Must run on a tokio runtime. Waits for the files at most a moment: while they can't be read, as on a file
    /// system that hangs, it gives what was read before. Cancel safe.
    pub async fn current(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = self.0.current().await;
        Arc::make_mut(&mut config).alpn_protocols = protocol_names(protocols);
        config
    }
}

fn build(ca: &Path, identity: Option<&(PathBuf, PathBuf)>) -> Result<ClientConfig, TransportError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|err| error(ca, err.to_string()))?
        .with_root_certificates(pem::roots(ca)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(pem::certificates(cert)?, pem::key(key)?)
            .map_err(|err| pair_error(cert, key, &err))?,
    };
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(config)
}
