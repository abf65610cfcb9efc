//! [`ServerTls`]: who a server is, and whom it lets in.

use crate::error::TransportError;
use crate::tls::names::{AllowedClients, Name};
use crate::tls::pem::{self, error, pair_error};
use crate::tls::reloading::Reloading;
use crate::tls::{protocol_names, provider};
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who a server is and, for mutual TLS, which clients it lets in. Cheap to clone; clones share what they read.
#[derive(Clone, Debug)]
pub struct ServerTls {
    files: Files,
    config: Reloading<ServerConfig>,
}

#[derive(Clone, Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

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
        let files = Files {
            cert: cert.to_owned(),
            key: key.to_owned(),
            client_ca: client_ca.map(Path::to_owned),
        };
        let config = files.watch(None)?;
        Ok(Self { files, config })
    }

    /// Lets in, of the clients that the CA signed, only those whose certificate is for one of `names`: DNS names, IP
    /// addresses or URIs among its subject alternative names. A certificate for `*.hosts.example` has the name
    /// `a.hosts.example`.
    /// Workers are clients of each other: list them too. Replaces the names of an earlier call.
    ///
    /// # Errors
    /// Kind `Config`: no name, one that no certificate can carry, or no client CA. Those of
    /// [`from_pem_files`](Self::from_pem_files), because the files are read again.
    pub fn with_allowed_clients<N: AsRef<str>>(
        self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, TransportError> {
        let Some(_) = &self.files.client_ca else {
            let detail = "is to let in certain clients alone, which needs the CA that signs their certificates";
            return Err(error(&self.files.cert, detail));
        };
        let names = names.into_iter().map(|name| Name::parse(name.as_ref()));
        let names = names.collect::<Result<Arc<[Name]>, _>>()?;
        if names.is_empty() {
            let detail = "would let in nobody: the list of allowed clients is empty";
            return Err(error(&self.files.cert, detail));
        }
        let config = self.files.watch(Some(names))?;
        Ok(Self { config, ..self })
    }

    /// For a transport: rustls's configuration as the files are now, taking the first of `protocols` that a client
    /// offers.
    ///
    /// Must run on a tokio runtime. Waits for the files at most a moment: while they can't be read, as on a file
    /// system that hangs, it gives what was read before. Cancel safe.
    pub async fn current(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        speaking(self.config.current().await, protocols)
    }

    /// Like [`current`](Self::current), as the files were when they were last read. Works anywhere.
    pub fn as_last_read(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        speaking(self.config.as_last_read(), protocols)
    }
}

fn speaking(mut config: Arc<ServerConfig>, protocols: &[&[u8]]) -> Arc<ServerConfig> {
    Arc::make_mut(&mut config).alpn_protocols = protocol_names(protocols);
    config
}

impl Files {
    fn watch(
        &self,
        allowed: Option<Arc<[Name]>>,
    ) -> Result<Reloading<ServerConfig>, TransportError> {
        let files = [&self.cert, &self.key].into_iter().chain(&self.client_ca);
        let watched = files.cloned().collect();
        let files = self.clone();
        Reloading::new(watched, move || files.build(allowed.as_ref()))
    }

    fn build(&self, allowed: Option<&Arc<[Name]>>) -> Result<ServerConfig, TransportError> {
        let Self {
            cert,
            key,
            client_ca,
        } = self;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|err| error(cert, err.to_string()))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => builder.with_client_cert_verifier(client_verifier(ca, allowed)?),
        };
        let mut config = builder
            .with_single_cert(pem::certificates(cert)?, pem::key(key)?)
            .map_err(|err| pair_error(cert, key, &err))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(config)
    }
}

fn client_verifier(
    ca: &Path,
    allowed: Option<&Arc<[Name]>>,
) -> Result<Arc<dyn ClientCertVerifier>, TransportError> {
    let roots = Arc::new(pem::roots(ca)?);
    let authority = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|err| error(ca, err.to_string()))?;
    Ok(match allowed {
        None => authority,
        Some(names) => Arc::new(AllowedClients {
            authority,
            names: Arc::clone(names),
        }),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::tls::DevelopmentIdentity;

    #[test]
    fn a_list_of_clients_that_means_nothing_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let identity = DevelopmentIdentity::load_or_create(dir.path(), &[]).unwrap();
        let (cert, key) = (identity.certificate_file(), identity.key_file());
        let open = ServerTls::from_pem_files(cert, key, None).unwrap();
        let mutual = ServerTls::from_pem_files(cert, key, Some(cert)).unwrap();
        for (tls, names, words) in [
            (&open, &["a"][..], "needs the CA"),
            (&mutual, &[], "list of allowed clients is empty"),
            (&mutual, &["a", "b:1"], "`b:1`"),
        ] {
            let err = tls.clone().with_allowed_clients(names).unwrap_err();
            assert_eq!(ErrorKind::Config, err.kind());
            assert!(err.to_string().contains(words), "{err}");
        }
        mutual.with_allowed_clients(["a", "urn:b"]).unwrap();
    }
}
