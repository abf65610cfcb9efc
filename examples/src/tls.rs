//! Where certificates come from.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use datafusion_transport_core::TransportError;
use datafusion_transport_quic::{ClientTls, DevelopmentIdentity, ServerTls};

use crate::program::{bad_option, usage};

/// Certificate options of every program.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct TlsOptions {
    /// PEM file with the certificate that this program shows its peers
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the private key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// PEM file with the authority that signs the peers' certificates
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Name that every worker's certificate must be for, instead of the host in its URL
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_server_name: Option<String>,

    /// Believe whoever answers in a worker's place, to find out what is wrong with certificates
    #[arg(long, conflicts_with_all = ["tls_ca", "dev_tls"])]
    pub danger_without_verification: bool,

    /// Directory of a development identity: made on first use, for trying things out only
    ///
    /// Programs that share the directory trust each other. Without any certificate option a
    /// directory of the current user below the system's temporary directory is used.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["tls_cert", "tls_ca"])]
    pub dev_tls: Option<PathBuf>,
}

/// A checked choice of certificates.
#[derive(Debug, Clone)]
pub enum Tls {
    /// PEM files.
    Files {
        /// Certificate and key that this process shows.
        identity: Option<(PathBuf, PathBuf)>,
        /// The authority that signs the peers' certificates; without it workers are not verified.
        authority: Option<PathBuf>,
        /// The name that workers' certificates are for, instead of their URLs' hosts.
        server_name: Option<String>,
    },
    /// A self-signed identity in a directory.
    Development {
        /// The directory.
        dir: PathBuf,
    },
}

impl TlsOptions {
    /// Checks the options and fills in the default.
    ///
    /// # Errors
    /// When an option is missing, or the default directory belongs to somebody else.
    pub fn resolve(&self) -> Result<Tls> {
        if let Some(dir) = &self.dev_tls {
            create_missing(dir)
                .with_context(|| format!("cannot create --dev-tls {}", dir.display()))?;
            return Ok(Tls::Development { dir: dir.clone() });
        }
        let identity = self.tls_cert.clone().zip(self.tls_key.clone());
        match (&self.tls_ca, identity) {
            (None, identity) if self.danger_without_verification => Ok(Tls::Files {
                identity,
                authority: None,
                server_name: None,
            }),
            (Some(authority), identity) => Ok(Tls::Files {
                identity,
                authority: Some(authority.clone()),
                server_name: self.tls_server_name.clone(),
            }),
            (None, Some(_)) => Err(usage(
                "--tls-cert needs --tls-ca: the authority that signs the peers' certificates",
            )),
            (None, None) => Ok(Tls::Development { dir: user_dir()? }),
        }
    }
}

/// Whom a worker lets in. A development identity lets in those who have it, whatever this says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clients {
    /// Whoever reaches it.
    Anybody,
    /// Whom the authority signed a certificate.
    Signed,
    /// Of those the ones with one of these names.
    Named(Vec<String>),
}

/// What this process shows its peers, and whom it trusts.
pub(crate) struct Identity {
    tls: Tls,
    /// For a development certificate that has to be made.
    names: Vec<String>,
    /// Made or read once: each time logs a warning.
    development: Mutex<Option<DevelopmentIdentity>>,
}

impl Identity {
    pub(crate) fn new(tls: Tls, names: Vec<String>) -> Self {
        Self {
            tls,
            names,
            development: Mutex::default(),
        }
    }

    /// Whether it proves nothing.
    pub(crate) fn is_development(&self) -> bool {
        matches!(self.tls, Tls::Development { .. })
    }

    /// For connections to workers.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub(crate) fn client(&self) -> Result<ClientTls, TransportError> {
        match &self.tls {
            Tls::Files {
                identity,
                authority,
                server_name,
            } => {
                let identity = identity.as_ref();
                let identity = identity.map(|(cert, key)| (cert.as_path(), key.as_path()));
                let tls = match authority {
                    Some(authority) => ClientTls::from_pem_files(authority, identity)?,
                    None => ClientTls::danger_without_verification(identity)?,
                };
                match server_name {
                    Some(name) => tls.with_server_name(name),
                    None => Ok(tls),
                }
            }
            Tls::Development { dir } => self.development(dir)?.client_tls(),
        }
    }

    /// For a worker that lets in `clients`.
    ///
    /// # Errors
    /// When there is no certificate, or it cannot be used.
    pub(crate) fn server(&self, clients: &Clients) -> Result<ServerTls> {
        let tls = match &self.tls {
            Tls::Files { identity: None, .. } => {
                return Err(usage(
                    "a worker needs a certificate: --tls-cert and --tls-key",
                ));
            }
            Tls::Files {
                identity: Some((cert, key)),
                authority,
                ..
            } => {
                let ca = match (clients, authority) {
                    (Clients::Anybody, _) => None,
                    (_, Some(ca)) => Some(ca.as_path()),
                    (_, None) => {
                        return Err(usage(
                            "--mutual-tls needs --tls-ca: the authority that signs the clients' certificates",
                        ));
                    }
                };
                let tls = ServerTls::from_pem_files(cert, key, ca);
                match clients {
                    Clients::Named(names) => tls.and_then(|tls| tls.with_allowed_clients(names)),
                    Clients::Anybody | Clients::Signed => tls,
                }
            }
            Tls::Development { dir } => self.development(dir).and_then(|it| it.server_tls()),
        };
        tls.map_err(bad_option)
    }

    fn development(&self, dir: &Path) -> Result<DevelopmentIdentity, TransportError> {
        let mut kept = self
            .development
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(identity) = &*kept {
            return Ok(identity.clone());
        }
        let identity = DevelopmentIdentity::load_or_create(dir, &self.names)?;
        Ok(kept.insert(identity).clone())
    }
}

/// The current user's directory for a development identity, created if missing.
fn user_dir() -> Result<PathBuf> {
    let user = env::var("USER")
        .or_else(|_| env::var("USERNAME"))
        .unwrap_or_default();
    let user: String = user.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let dir = env::temp_dir().join(format!("datafusion-transport-dev-tls-{user}"));
    create_private(&dir).with_context(|| {
        format!(
            "cannot use {} for a development identity: name another with --dev-tls",
            dir.display()
        )
    })?;
    Ok(dir)
}

/// Creates a directory that only the current user can read, unless there is one.
fn create_missing(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)
}

/// Creates a directory that only the current user can read, or checks that an existing one is.
#[cfg(unix)]
fn create_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    // Anybody may create files in the temporary directory: a new file shows who we are.
    let found = fs::symlink_metadata(dir)?;
    let own = tempfile::tempfile()?.metadata()?;
    anyhow::ensure!(
        found.is_dir() && found.uid() == own.uid(),
        "it belongs to another user"
    );
    anyhow::ensure!(found.mode() & 0o022 == 0, "other users may write in it");
    Ok(())
}

#[cfg(not(unix))]
fn create_private(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_needs_an_authority() {
        let file = || Some(PathBuf::from("x.pem"));
        let options = TlsOptions {
            tls_cert: file(),
            tls_key: file(),
            ..Default::default()
        };
        assert!(options.resolve().is_err());
        let options = TlsOptions {
            tls_ca: file(),
            ..Default::default()
        };
        assert!(matches!(
            options.resolve(),
            Ok(Tls::Files { identity: None, .. })
        ));
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_others_can_write_is_refused() -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir()?;
        let dir = parent.path().join("identity");
        create_private(&dir)?;
        create_private(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
        assert!(create_private(&dir).is_err());
        Ok(())
    }
}
