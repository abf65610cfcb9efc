//! Pairs of connected peers over real sockets.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::unwrap_used,
    clippy::panic
)]

use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{
    BiStream, Connection, Connector, Listener, StreamClass, read,
};
pub use datafusion_transport_core::testing::{Authority, DEADLINE, drain, send, soon};
use datafusion_transport_tcp::{ClientTls, ServerTls, TcpConfig, TcpConnector, TcpListener};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
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

/// What this thread logs from now on: for tests on a runtime of one thread.
pub struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Log {
    pub fn capture() -> Self {
        // With one subscriber alone, a thread without any could turn a line off for all (tracing-core, `JustOne`).
        static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
        ANOTHER.get_or_init(|| Dispatch::new(NoSubscriber::new()));
        let text = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&text);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            // Warnings of one kind come once a second; the others are at this level.
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || Sink(Arc::clone(&sink)))
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        Self { text, _guard }
    }

    /// Waits for a line with all of these words.
    pub async fn wait_for(&self, words: &[&str]) {
        let found = async {
            while self.lines(words) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, found).await.is_err() {
            let text = self.text.lock().unwrap();
            panic!("no {words:?} in:\n{}", String::from_utf8_lossy(&text));
        }
    }

    /// How many lines have all of these words.
    pub fn lines(&self, words: &[&str]) -> usize {
        let text = String::from_utf8(self.text.lock().unwrap().clone()).unwrap();
        let has_all = |line: &&str| words.iter().all(|words| line.contains(words));
        text.lines().filter(has_all).count()
    }

    pub fn clear(&self) {
        self.text.lock().unwrap().clear();
    }
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
