//! PEM files: certificates and keys, and what is wrong with them.

use crate::error::{ErrorKind, TransportError};
use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

pub(super) fn roots(file: &Path) -> Result<RootCertStore, TransportError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(file)? {
        roots.add(cert).map_err(|err| {
            error(
                file,
                format!("holds a CA certificate that can't be used: {err}"),
            )
        })?;
    }
    Ok(roots)
}

pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let certs = CertificateDer::pem_slice_iter(&read(file)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| error(file, format!("is not valid PEM: {err}")))?;
    if certs.is_empty() {
        let detail = "holds no certificate (no `-----BEGIN CERTIFICATE-----`); is it the key file, or DER instead of PEM?";
        return Err(error(file, detail));
    }
    Ok(certs)
}

pub(super) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TransportError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|err| match err {
        Error::NoItemsFound => error(
            file,
            "holds no private key (no `-----BEGIN PRIVATE KEY-----`); is it the certificate file, or encrypted?",
        ),
        err => error(file, format!("is not valid PEM: {err}")),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, TransportError> {
    std::fs::read(file).map_err(|err| error(file, format!("cannot be read: {err}")))
}

pub(super) fn pair_error(cert: &Path, key: &Path, err: &rustls::Error) -> TransportError {
    let key = key.display();
    let detail = match err {
        rustls::Error::InconsistentKeys(_) => {
            format!("is not the certificate of the private key in {key}")
        }
        err => format!("cannot be used with the private key in {key}: {err}"),
    };
    error(cert, detail)
}

pub(super) fn error(file: &Path, detail: impl Into<String>) -> TransportError {
    let file = file.display().to_string();
    TransportError::new(ErrorKind::Config, "load TLS file", file, detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tls::{ClientTls, ServerTls};
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use std::path::PathBuf;

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
