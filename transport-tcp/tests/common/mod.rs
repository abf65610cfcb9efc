//! Pairs of connected peers over real sockets.
#![allow(dead_code, unreachable_pub, unused_imports, clippy::unwrap_used)]

use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{
    BiStream, Connection, Connector, Listener, StreamClass, read,
};
pub use datafusion_transport_core::testing::{Authority, drain, send, soon};
use datafusion_transport_tcp::{ClientTls, ServerTls, TcpConfig, TcpConnector, TcpListener};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;
use url::Url;

/// The runtime of the test itself.
pub fn io() -> IoRuntime {
    IoRuntime::from_handle(Handle::current())
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
