//! Pairs of connected peers over real sockets, and certificates to connect them with.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{
    BiStream, Connection, Connector, Listener, RecvStream, SendStream, StreamClass, StreamError,
    read, write,
};
use datafusion_transport_tcp::{ClientTls, ServerTls, TcpConfig, TcpConnector, TcpListener};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
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
    pub listener: TcpListener,
}

/// Connects with the same settings on both sides.
pub async fn pair(config: TcpConfig) -> Pair {
    pair_with(config, None).await
}

pub async fn pair_with(config: TcpConfig, tls: Option<(ServerTls, ClientTls)>) -> Pair {
    let (server_tls, client_tls) = tls.unzip();
    let listener = listen(config.clone(), server_tls);
    let url = url("127.0.0.1", listener.local_addr().unwrap());
    connected(listener, &url, config, client_tls).await
}

pub async fn connected(
    mut listener: TcpListener,
    url: &Url,
    config: TcpConfig,
    tls: Option<ClientTls>,
) -> Pair {
    let connector = TcpConnector::new(config, tls, &io()).unwrap();
    let (client, server) =
        soon(async { tokio::join!(connector.connect(url), listener.accept()) }).await;
    Pair {
        client: client.unwrap(),
        server: server.unwrap(),
        listener,
    }
}

/// A listener on a free port of loopback.
pub fn listen(config: TcpConfig, tls: Option<ServerTls>) -> TcpListener {
    let addr = "127.0.0.1:0".parse().unwrap();
    TcpListener::bind(addr, config, tls, &io()).unwrap()
}

pub fn url(host: &str, addr: SocketAddr) -> Url {
    format!("tcp://{host}:{}", addr.port()).parse().unwrap()
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

    /// Moves so many bytes from server to client over one stream.
    pub async fn transfer(&self, bytes: usize) {
        let (mut ours, mut theirs) = self.stream().await;
        let writing = tokio::spawn(async move {
            send(theirs.send.as_mut(), vec![0; bytes]).await.unwrap();
            theirs.send.finish();
        });
        assert_eq!(bytes, soon(drain(ours.recv.as_mut())).await.unwrap());
        soon(writing).await.unwrap();
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

/// Sends back what arrives, on every stream.
pub async fn echo(server: Arc<dyn Connection>) {
    let mut streams = tokio::task::JoinSet::new();
    while let Ok(BiStream {
        send: mut tx,
        mut recv,
    }) = server.accept().await
    {
        streams.spawn(async move {
            while let Some(chunk) = read(recv.as_mut(), 1 << 20).await.unwrap() {
                send(tx.as_mut(), chunk).await.unwrap();
            }
            tx.finish();
        });
    }
}

/// A private CA, and TLS configurations with certificates that it signs.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    pub fn server_config(&self, name: &str, client_auth: bool) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap();
        let builder = if client_auth {
            let roots = Arc::new(self.roots());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        builder
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap()
    }

    pub fn server(&self, name: &str) -> ServerTls {
        ServerTls::new(Arc::new(self.server_config(name, false)))
    }

    /// Trusts this CA and presents nothing.
    pub fn client(&self) -> ClientTls {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        ClientTls::new(Arc::new(config))
    }
}
