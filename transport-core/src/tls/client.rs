//! [`ClientTls`]: whom a client trusts, and who it is.

use crate::error::{ErrorKind, TransportError};
use crate::tls::pem::{self, error, pair_error};
use crate::tls::reloading::Reloading;
use crate::tls::unverified::Unverified;
use crate::tls::{protocol_names, provider};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a client trusts and, for mutual TLS, who it is. Cheap to clone; clones share what they read.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Reloading<ClientConfig>,
    verifies: bool,
    /// Instead of the URL's host.
    server_name: Option<Arc<str>>,
}

/// Files of the own certificate and its key.
type IdentityFiles = (PathBuf, PathBuf);

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
        Self::watch(Some(ca.to_owned()), identity)
    }

    /// **Trusts whoever answers.** Traffic is encrypted, and anybody on the way can read and change it all the same: for
    /// finding out what is wrong with certificates. `identity` as for [`from_pem_files`](Self::from_pem_files). Logs a
    /// warning each time.
    ///
    /// # Errors
    /// As [`from_pem_files`](Self::from_pem_files).
    pub fn danger_without_verification(
        identity: Option<(&Path, &Path)>,
    ) -> Result<Self, TransportError> {
        tracing::warn!(
            "VERIFICATION OF WORKERS IS OFF (danger_without_verification), not for production: whoever answers in a \
             worker's place is sent plans and believed. Trust the CA of the workers' certificates instead"
        );
        Self::watch(None, identity)
    }

    /// Expects each server's certificate to be for `name`, a DNS name or an IP address, instead of the URL's host: for
    /// workers whose addresses change and whose certificates share a name. Whoever has such a certificate can then stand
    /// in for any worker.
    ///
    /// # Errors
    /// Kind `Config` for what is neither; names it.
    pub fn with_server_name(self, name: &str) -> Result<Self, TransportError> {
        if ServerName::try_from(name).is_err() {
            let detail =
                "is no DNS name or IP address, which is what a worker's certificate is for";
            let (operation, name) = ("set the workers' name", format!("`{name}`"));
            return Err(TransportError::new(
                ErrorKind::Config,
                operation,
                name,
                detail,
            ));
        }
        let server_name = Some(name.into());
        Ok(Self {
            server_name,
            ..self
        })
    }

    fn watch(
        ca: Option<PathBuf>,
        identity: Option<(&Path, &Path)>,
    ) -> Result<Self, TransportError> {
        let identity = identity.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
        let verifies = ca.is_some();
        let mut files: Vec<_> = ca.iter().cloned().collect();
        files.extend(
            identity
                .iter()
                .flat_map(|(cert, key)| [cert.clone(), key.clone()]),
        );
        let build = move || build(ca.as_deref(), identity.as_ref());
        Ok(Self {
            config: Reloading::new(files, build)?,
            verifies,
            server_name: None,
        })
    }

    /// For a transport: the name that the certificate of the server at `host` must be for.
    pub fn server_name<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }

    /// For a transport: whether a handshake shows who the server is.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// For a transport: rustls's configuration as the files are now, offering `protocols`.
    ///
    /// Must run on a tokio runtime. Waits for the files at most a moment: while they can't be read, as on a file
    /// system that hangs, it gives what was read before. Cancel safe.
    pub async fn current(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = self.config.current().await;
        Arc::make_mut(&mut config).alpn_protocols = protocol_names(protocols);
        config
    }
}

fn build(
    ca: Option<&Path>,
    identity: Option<&IdentityFiles>,
) -> Result<ClientConfig, TransportError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|err| error(ca.unwrap_or(Path::new("TLS")), err.to_string()))?;
    let builder = match ca {
        Some(ca) => builder.with_root_certificates(pem::roots(ca)?),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Unverified::new()),
    };
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_name_replaces_every_host() {
        let tls = ClientTls::danger_without_verification(None).unwrap();
        assert_eq!("10.0.0.5", tls.server_name("10.0.0.5"));
        let tls = tls.with_server_name("workers.example").unwrap();
        assert_eq!("workers.example", tls.server_name("10.0.0.5"));
        for name in ["", "workers.example:8080", "spiffe://workers"] {
            let err = tls.clone().with_server_name(name).unwrap_err();
            assert_eq!(ErrorKind::Config, err.kind());
            assert!(err.to_string().contains(&format!("`{name}`")), "{err}");
        }
    }
}
