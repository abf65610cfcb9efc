//! [`DevelopmentIdentity`]: a self-signed certificate for trying things out on one machine.

use crate::error::{ErrorKind, TransportError};
use crate::tls::{ClientTls, ServerTls};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::collections::hash_map::RandomState;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A self-signed certificate and its key in a directory, shared by the workers and clients of a development cluster.
/// Whoever can read the directory is let in, nobody else. **Not for production**: one key for all, valid for ever.
#[derive(Clone, Debug)]
pub struct DevelopmentIdentity {
    cert: PathBuf,
    key: PathBuf,
}

impl DevelopmentIdentity {
    /// Takes `dev-cert.pem` and `dev-key.pem` from `dir`, or creates what is missing, for `localhost`, `127.0.0.1`,
    /// `::1` and `extra_names` (host names or IP addresses). Processes that do this at the same time end up with the
    /// same files. Logs a warning each time.
    ///
    /// # Errors
    /// Kind `Config`: the directory can't be written, a name is not one, or the certificate that is there is not valid
    /// for one of the names. Names the file and what to do.
    pub fn load_or_create(dir: &Path, extra_names: &[String]) -> Result<Self, TransportError> {
        let identity = Self {
            cert: dir.join("dev-cert.pem"),
            key: dir.join("dev-key.pem"),
        };
        let names: Vec<String> = ["localhost", "127.0.0.1", "::1"]
            .map(str::to_owned)
            .into_iter()
            .chain(extra_names.iter().cloned())
            .collect();
        fs::create_dir_all(dir).map_err(|err| error(dir, format!("cannot be created: {err}")))?;
        identity.create_missing(&names)?;
        identity.check_names(&names)?;
        tracing::warn!(
            certificate = %identity.cert.display(),
            "DEVELOPMENT CERTIFICATE IN USE, not for production: whoever can read its key can send plans to the workers. \
             Use certificates of a private CA and mutual TLS instead"
        );
        Ok(identity)
    }

    /// Trusts exactly this certificate, and presents it.
    ///
    /// # Errors
    /// As [`ClientTls::from_pem_files`].
    pub fn client_tls(&self) -> Result<ClientTls, TransportError> {
        ClientTls::from_pem_files(&self.cert, Some((&self.cert, &self.key)))
    }

    /// Presents this certificate, and lets in exactly those who have it too.
    ///
    /// # Errors
    /// As [`ServerTls::from_pem_files`].
    pub fn server_tls(&self) -> Result<ServerTls, TransportError> {
        ServerTls::from_pem_files(&self.cert, &self.key, Some(&self.cert))
    }

    /// The certificate file, for programs that need to be told whom to trust.
    pub fn certificate_file(&self) -> &Path {
        &self.cert
    }

    /// The file of the private key.
    pub fn key_file(&self) -> &Path {
        &self.key
    }

    /// The key comes first and the certificate is made from the key that is there. So processes that race agree, and
    /// one that dies between the two leaves nothing that the next can't complete.
    fn create_missing(&self, names: &[String]) -> Result<(), TransportError> {
        if !self.key.exists() {
            let key = KeyPair::generate().map_err(|err| error(&self.key, err.to_string()))?;
            publish(&self.key, key.serialize_pem().as_bytes())
                .map_err(|err| error(&self.key, format!("cannot be created: {err}")))?;
        }
        if !self.cert.exists() {
            let pem = self.sign(names)?;
            publish(&self.cert, pem.as_bytes())
                .map_err(|err| error(&self.cert, format!("cannot be created: {err}")))?;
        }
        Ok(())
    }

    fn sign(&self, names: &[String]) -> Result<String, TransportError> {
        let key = fs::read_to_string(&self.key)
            .map_err(|err| error(&self.key, format!("cannot be read: {err}")))?;
        let key = KeyPair::from_pem(&key)
            .map_err(|err| error(&self.key, format!("is not a private key: {err}")))?;
        let mut params = CertificateParams::new(names)
            .map_err(|err| error(&self.cert, format!("invalid name in {names:?}: {err}")))?;
        params
            .distinguished_name
            .push(DnType::CommonName, "datafusion transport DEVELOPMENT");
        let cert = params
            .self_signed(&key)
            .map_err(|err| error(&self.cert, err.to_string()))?;
        Ok(cert.pem())
    }

    /// A certificate from an earlier start may lack a name that is needed now.
    fn check_names(&self, names: &[String]) -> Result<(), TransportError> {
        let cert = CertificateDer::from_pem_file(&self.cert)
            .map_err(|err| error(&self.cert, format!("holds no certificate: {err}")))?;
        let cert =
            ParsedCertificate::try_from(&cert).map_err(|err| error(&self.cert, err.to_string()))?;
        for name in names {
            let server_name = ServerName::try_from(name.as_str()).map_err(|_| {
                error(
                    &self.cert,
                    format!("`{name}` is no host name or IP address"),
                )
            })?;
            if verify_server_name(&cert, &server_name).is_err() {
                let remedy = format!(
                    "is not valid for `{name}`; delete it to have it made again, and restart all that use it"
                );
                return Err(error(&self.cert, remedy));
            }
        }
        Ok(())
    }
}

/// Makes `file` appear with all its content, readable by this user only, unless it is there already.
fn publish(file: &Path, content: &[u8]) -> io::Result<()> {
    // Random, because containers that share the directory may have the same process ids.
    let random = RandomState::new().build_hasher().finish();
    let temporary = file.with_extension(format!("{random:016x}.tmp"));
    let linked = write_new(&temporary, content).and_then(|()| fs::hard_link(&temporary, file));
    let _ = fs::remove_file(&temporary);
    match linked {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn write_new(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(file)?;
    out.write_all(content)?;
    out.sync_all()
}

fn error(file: &Path, detail: impl Into<String>) -> TransportError {
    let file = file.display().to_string();
    TransportError::new(ErrorKind::Config, "development certificate", file, detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_race_agree_on_one_pair() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let identity = DevelopmentIdentity::load_or_create(dir.path(), &[]).unwrap();
                    identity.server_tls().unwrap();
                    identity.client_tls().unwrap();
                });
            }
        });
        assert_eq!(2, fs::read_dir(dir.path()).unwrap().count());
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_the_key() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let identity = DevelopmentIdentity::load_or_create(dir.path(), &[]).unwrap();
        let mode = fs::metadata(identity.key_file())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(0o600, mode & 0o777);
    }

    #[test]
    fn a_name_that_the_certificate_lacks_is_an_error_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        DevelopmentIdentity::load_or_create(dir.path(), &["worker-1".to_owned()]).unwrap();
        DevelopmentIdentity::load_or_create(dir.path(), &["worker-1".to_owned()]).unwrap();
        let err =
            DevelopmentIdentity::load_or_create(dir.path(), &["worker-2".to_owned()]).unwrap_err();
        assert!(err.to_string().contains("delete it"), "{err}");
        assert!(err.to_string().contains("`worker-2`"), "{err}");
    }
}
