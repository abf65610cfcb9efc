//! Pairs of connected peers over real sockets, and certificates to connect them with.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{
    BiStream, Connection, Connector, Listener, RecvStream, SendStream, StreamClass, StreamError,
    read, write,
};
use datafusion_transport_quic::{
    ClientTls, DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener, ServerTls,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Handle;
use url::Url;

/// The runtime of the test itself.
pub fn io() -> IoRuntime {
    IoRuntime::from_handle(Handle::current())
}

/// Nothing here takes long; what takes this long hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Awaits, but not for ever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("hangs"))
}

/// A client and the server's view of the same connection.
pub struct Pair {
    pub client: Arc<dyn Connection>,
    pub server: Arc<dyn Connection>,
    pub listener: QuicListener,
}

/// Connects with the same settings on both sides.
pub async fn pair(config: QuicConfig) -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let identity = DevelopmentIdentity::load_or_create(dir.path(), &[]).unwrap();
    let io = io();
    let mut listener = listen(config.clone(), identity.server_tls().unwrap());
    let connector = QuicConnector::new(config, identity.client_tls().unwrap(), &io).unwrap();
    let url = url("127.0.0.1", listener.local_addr());
    let (client, server) =
        soon(async { tokio::join!(connector.connect(&url), listener.accept()) }).await;
    Pair {
        client: client.unwrap(),
        server: server.unwrap(),
        listener,
    }
}

/// A listener on a free port of loopback.
pub fn listen(config: QuicConfig, tls: ServerTls) -> QuicListener {
    let addr = "127.0.0.1:0".parse().unwrap();
    QuicListener::bind(addr, config, tls, &io()).unwrap()
}

pub fn url(host: &str, addr: SocketAddr) -> Url {
    format!("quic://{host}:{}", addr.port()).parse().unwrap()
}

impl Pair {
    /// A stream from client to server. The server sees it because one byte is sent, and taken off again.
    pub async fn stream(&self) -> (BiStream, BiStream) {
        let mut ours = soon(self.client.open(StreamClass::Bulk)).await.unwrap();
        send(ours.send.as_mut(), &b"!"[..]).await.unwrap();
        let mut theirs = soon(self.server.accept()).await.unwrap();
        let first = soon(read(theirs.recv.as_mut(), 1)).await.unwrap().unwrap();
        assert_eq!(&b"!"[..], first);
        (ours, theirs)
    }
}

/// Writes one buffer.
pub async fn send(stream: &mut dyn SendStream, bytes: impl Into<Bytes>) -> Result<(), StreamError> {
    write(stream, &mut VecDeque::from([bytes.into()])).await
}

/// Reads to the end and counts.
pub async fn drain(stream: &mut dyn RecvStream) -> Result<usize, StreamError> {
    let mut bytes = 0;
    while let Some(chunk) = read(stream, usize::MAX).await? {
        assert!(!chunk.is_empty());
        bytes += chunk.len();
    }
    Ok(bytes)
}

/// A private CA, and certificates that it signs.
pub struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub ca: PathBuf,
}

impl Authority {
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

    /// Certificate and key files for `name`, after `change` had its way.
    pub fn sign(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let file = |suffix: &str| self.dir.path().join(format!("{name}.{suffix}"));
        std::fs::write(file("pem"), cert.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("pem"), file("key"))
    }

    pub fn server(&self, name: &str, client_ca: Option<&Path>) -> ServerTls {
        let (cert, key) = self.sign(name, |_| ());
        ServerTls::from_pem_files(&cert, &key, client_ca).unwrap()
    }

    /// Trusts this CA and presents nothing.
    pub fn client(&self) -> ClientTls {
        ClientTls::from_pem_files(&self.ca, None).unwrap()
    }
}
