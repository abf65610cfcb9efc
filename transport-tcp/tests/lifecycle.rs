//! How connections live and end, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Authority, Pair, drain, io, listen, pair, pair_with, send, soon, url};
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{
    Connection, Connector, Listener, StreamClass, StreamError, read,
};
use datafusion_transport_core::error::{Delivery, ErrorKind};
use datafusion_transport_tcp::{TcpConfig, TcpConnector, TcpListener};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener as Socket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_to_close_reaches_the_peer() {
    let Pair {
        client,
        server,
        mut listener,
    } = pair(TcpConfig::default()).await;
    assert!(client.close_reason().is_none());
    let mut stream = client.open(StreamClass::Bulk).await.unwrap();
    server.close("draining for an upgrade");
    server.close("another reason");
    let err = soon(client.closed()).await;
    assert_eq!(
        (ErrorKind::Closed, "draining for an upgrade"),
        (err.kind(), err.detail())
    );
    assert!(err.peer().contains("tcp://127.0.0.1"), "{err}");
    assert_eq!(ErrorKind::Closed, client.close_reason().unwrap().kind());
    let err = client.open(StreamClass::Bulk).await.err().unwrap();
    assert_eq!(
        (ErrorKind::Closed, Delivery::NotDelivered),
        (err.kind(), err.delivery())
    );
    match soon(read(stream.recv.as_mut(), 1)).await {
        Err(StreamError::Connection(err)) => assert_eq!(ErrorKind::Closed, err.kind()),
        other => panic!("{other:?}"),
    }
    let own = server.close_reason().unwrap();
    assert_eq!(ErrorKind::ConnectionLost, own.kind());
    assert!(own.detail().contains("this side: draining"), "{own}");
    soon(listener.close()).await;
    assert!(soon(listener.accept()).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_to_close_overtakes_data() {
    let authority = Authority::new();
    for round in 0..20 {
        let tls = (round % 2 == 0).then(|| (authority.server("127.0.0.1"), authority.client()));
        let pair = pair_with(TcpConfig::default(), tls).await;
        let (mut ours, mut theirs) = pair.stream().await;
        let writing =
            tokio::spawn(async move { send(theirs.send.as_mut(), vec![0; 64 << 20]).await });
        soon(read(ours.recv.as_mut(), 1)).await.unwrap().unwrap();
        pair.server.close("enough");
        let err = soon(pair.client.closed()).await;
        assert_eq!((ErrorKind::Closed, "enough"), (err.kind(), err.detail()));
        soon(writing).await.unwrap().unwrap_err();
    }
}

/// The last words of a stream are not lost to a close that follows at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_finished_arrives_before_the_close() {
    for _ in 0..50 {
        let pair = pair(TcpConfig::default()).await;
        let (mut ours, mut theirs) = pair.stream().await;
        send(theirs.send.as_mut(), vec![0; 1 << 20]).await.unwrap();
        theirs.send.finish();
        drop((pair.server, theirs));
        soon(pair.client.closed()).await;
        assert_eq!(1 << 20, soon(drain(ours.recv.as_mut())).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_listener_tells_the_peers_and_frees_the_port() {
    let Pair {
        client,
        server,
        mut listener,
    } = pair(TcpConfig::default()).await;
    let addr = listener.local_addr().unwrap();
    assert_eq!(format!("tcp {addr}"), listener.describe());
    soon(listener.close()).await;
    let err = soon(client.closed()).await;
    assert!(err.detail().contains("shutting down"), "{err}");
    let refused = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(std::io::ErrorKind::ConnectionRefused, refused.kind());
    drop((client, server));
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_closes() {
    let Pair {
        client,
        server,
        listener: _listener,
    } = pair(TcpConfig::default()).await;
    let stream = client.open(StreamClass::Bulk).await.unwrap();
    drop(client);
    assert_eq!(ErrorKind::Closed, soon(server.closed()).await.kind());
    drop(stream);
}

fn impatient() -> TcpConfig {
    TcpConfig {
        keep_alive_interval: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(1000),
        ..TcpConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alive_outlives_the_idle_timeout() {
    let pair = pair(impatient()).await;
    let idle = 3 * impatient().idle_timeout;
    let closed = tokio::time::timeout(idle, pair.client.closed()).await;
    assert!(closed.is_err(), "{closed:?}");
    pair.transfer(1 << 20).await;
}

/// A proxy between the sides; what it does is switched while it runs.
struct Proxy {
    addr: SocketAddr,
    freeze_up: watch::Sender<bool>,
    freeze_down: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    async fn to(target: SocketAddr) -> Self {
        let port = Socket::bind("127.0.0.1:0").await.unwrap();
        let addr = port.local_addr().unwrap();
        let (freeze_up, up) = watch::channel(false);
        let (freeze_down, down) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (client, _) = port.accept().await.unwrap();
            let server = TcpStream::connect(target).await.unwrap();
            let (client_read, client_write) = client.into_split();
            let (server_read, server_write) = server.into_split();
            tokio::join!(
                pump(client_read, server_write, up),
                pump(server_read, client_write, down)
            );
        });
        Self {
            addr,
            freeze_up,
            freeze_down,
            _tasks: tasks,
        }
    }
}

/// Copies until frozen, and then keeps the sockets open and silent.
async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut frozen: watch::Receiver<bool>,
) {
    let stopped = async { drop(frozen.wait_for(|frozen| *frozen).await) };
    let ended = tokio::select! {
        () = stopped => false,
        _ = tokio::io::copy(&mut from, &mut to) => true,
    };
    if ended {
        let _ = to.shutdown().await;
    }
    std::future::pending::<()>().await;
}

async fn proxied() -> (Arc<dyn Connection>, Arc<dyn Connection>, Proxy) {
    let mut listener = listen(impatient(), None);
    let proxy = Proxy::to(listener.local_addr().unwrap()).await;
    let connector = TcpConnector::new(impatient(), None, &io()).unwrap();
    let url = url("127.0.0.1", proxy.addr);
    let (client, server) =
        soon(async { tokio::join!(connector.connect(&url), listener.accept()) }).await;
    (client.unwrap(), server.unwrap(), proxy)
}

/// It must be noticed within the idle timeout; some more for a machine that is busy.
async fn lost(connection: &Arc<dyn Connection>, began: Instant) {
    let err = soon(connection.closed()).await;
    assert_eq!(ErrorKind::ConnectionLost, err.kind(), "{err}");
    assert!(began.elapsed() < 5 * impatient().idle_timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_idle_peer_is_lost() {
    let (client, server, proxy) = proxied().await;
    let mut stream = client.open(StreamClass::Bulk).await.unwrap();
    let began = Instant::now();
    proxy.freeze_up.send_replace(true);
    proxy.freeze_down.send_replace(true);
    lost(&client, began).await;
    lost(&server, began).await;
    let err = soon(read(stream.recv.as_mut(), 1)).await.unwrap_err();
    assert!(matches!(err, StreamError::Connection(_)), "{err}");
}

/// The peer takes nothing of a write, although it still sends.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_stops_in_the_middle_of_a_write_is_lost() {
    let (client, server, proxy) = proxied().await;
    let reading = tokio::spawn({
        let server = Arc::clone(&server);
        async move {
            let mut stream = server.accept().await.unwrap();
            drain(stream.recv.as_mut()).await
        }
    });
    let mut stream = client.open(StreamClass::Bulk).await.unwrap();
    send(stream.send.as_mut(), vec![0; 8 << 20]).await.unwrap();
    let began = Instant::now();
    proxy.freeze_up.send_replace(true);
    let endless = async {
        loop {
            if let Err(err) = send(stream.send.as_mut(), vec![0; 1 << 20]).await {
                return err;
            }
        }
    };
    let err = soon(endless).await;
    assert!(matches!(err, StreamError::Connection(_)), "{err}");
    lost(&client, began).await;
    lost(&server, began).await;
    soon(reading).await.unwrap().unwrap_err();
}

/// What a peer may not do ends its connection, and both sides learn the rule.
#[tokio::test(flavor = "multi_thread")]
async fn a_violation_names_the_rule_on_both_sides() {
    let mut listener = listen(TcpConfig::default(), None);
    let addr = listener.local_addr().unwrap();
    let mut socket = TcpStream::connect(addr).await.unwrap();
    let mut bytes =
        b"\xdfDF-TCP\n\x01\0\0\0\0\0\x10\0\0\0\x01\0\x08\0\0\0\0\0\x01\0\0\0\x10\0".to_vec();
    // Finish of stream 8, which nobody opened.
    bytes.extend_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    socket.write_all(&bytes).await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    let err = soon(server.closed()).await;
    assert_eq!(ErrorKind::Protocol, err.kind());
    assert!(err.detail().contains("T-11"), "{err}");
    let mut answer = Vec::new();
    let heard = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut answer);
    soon(heard).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("T-11"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_peer_is_lost_at_once() {
    let (client, _server, proxy) = proxied().await;
    drop(proxy);
    let err = soon(client.closed()).await;
    assert_eq!(ErrorKind::ConnectionLost, err.kind(), "{err}");
}

/// Only a socket that nobody listens on gives way: a typing error must not cost a file.
#[tokio::test]
async fn a_file_in_the_place_of_a_socket_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, "precious").unwrap();
    let io = IoRuntime::shared().unwrap();
    let bound = TcpListener::bind_unix(&path, TcpConfig::default(), &io);
    assert_eq!(bound.unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    // A socket that a dead worker left.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    TcpListener::bind_unix(&path, TcpConfig::default(), &io).unwrap();
}
