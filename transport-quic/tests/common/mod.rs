//! Pairs of connected peers over real sockets.
#![allow(dead_code, unreachable_pub, unused_imports, clippy::unwrap_used)]

use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{
    BiStream, Connection, Connector, Listener, StreamClass, read,
};
pub use datafusion_transport_core::testing::{Authority, drain, send, soon};
use datafusion_transport_quic::{
    DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener, ServerTls,
};
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
