//! For the tests of a transport (feature `testing`): a private CA, and shorthands. What goes wrong here panics.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cut_streams;
mod flood;

pub use cut_streams::{Ends, cut_streams_cost_nothing};
pub use flood::{Flood, first_packets};

use crate::connection::{RecvStream, SendStream, StreamError, read, write};
use crate::tls::{ClientTls, ServerTls};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::collections::VecDeque;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Nothing in a test takes long; what takes this long hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Awaits, but not for ever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("hangs"))
}

/// Writes one buffer.
///
/// # Errors
/// As [`SendStream::poll_write`].
pub async fn send(stream: &mut dyn SendStream, bytes: impl Into<Bytes>) -> Result<(), StreamError> {
    write(stream, &mut VecDeque::from([bytes.into()])).await
}

/// Reads to the end and counts.
///
/// # Errors
/// As [`RecvStream::poll_read`].
pub async fn drain(stream: &mut dyn RecvStream) -> Result<usize, StreamError> {
    let mut bytes = 0;
    while let Some(chunk) = read(stream, usize::MAX).await? {
        assert!(!chunk.is_empty());
        bytes += chunk.len();
    }
    Ok(bytes)
}

/// A private CA, and certificates that it signs, in files that go with it.
#[derive(Debug)]
pub struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
    ca: PathBuf,
}

impl Authority {
    /// Makes a CA.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, issuer.pem()).unwrap();
        Self { dir, issuer, ca }
    }

    /// The file of its own certificate.
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// Files of a certificate and its key, for a host name or an IP address.
    pub fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        self.sign_params(name, CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// Like [`sign`](Self::sign), and long past its time.
    pub fn sign_expired(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.sign_params(name, params)
    }

    /// Like [`sign`](Self::sign), and long before its time.
    pub fn sign_not_yet_valid(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(4000, 1, 1);
        self.sign_params(name, params)
    }

    fn sign_params(&self, name: &str, params: CertificateParams) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let file = |suffix: &str| self.dir.path().join(format!("{name}.{suffix}"));
        std::fs::write(file("pem"), cert.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("pem"), file("key"))
    }

    /// A server for `name` that lets everybody in.
    pub fn server(&self, name: &str) -> ServerTls {
        let (cert, key) = self.sign(name);
        ServerTls::from_pem_files(&cert, &key, None).unwrap()
    }

    /// A server for `name` that lets in whom this CA signed.
    pub fn mutual_server(&self, name: &str) -> ServerTls {
        let (cert, key) = self.sign(name);
        ServerTls::from_pem_files(&cert, &key, Some(&self.ca)).unwrap()
    }

    /// A client that trusts this CA and presents nothing.
    pub fn client(&self) -> ClientTls {
        ClientTls::from_pem_files(&self.ca, None).unwrap()
    }

    /// A client that trusts this CA and presents a certificate that `signer` signed.
    pub fn client_of(&self, signer: &Self) -> ClientTls {
        let (cert, key) = signer.sign("client");
        ClientTls::from_pem_files(&self.ca, Some((&cert, &key))).unwrap()
    }
}
