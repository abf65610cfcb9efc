//! Peers that say nothing, or nonsense, many a second and from several addresses: they hold a bounded number of places, and
//! keep nobody out.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{DEADLINE, Log, echo, io, listen, send, soon, url};
use datafusion_transport_core::connection::{Connector, Listener, StreamClass, read};
use datafusion_transport_core::testing::Flood;
use datafusion_transport_tcp::{TcpConfig, TcpConnector, TcpListener};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Few places, and silent peers that stay for longer than a test: only the bounds end them.
fn config() -> TcpConfig {
    TcpConfig {
        handshake_timeout: DEADLINE,
        max_handshakes: 64,
        max_handshakes_per_address: 16,
        ..TcpConfig::default()
    }
}

/// A client with the default timeouts connects, and its connection works.
async fn honest_client(listener: &mut TcpListener) {
    let connector = TcpConnector::new(TcpConfig::default(), None, &io()).unwrap();
    let url = url("127.0.0.1", listener.local_addr().unwrap());
    let (client, server) = tokio::join!(connector.connect(&url), soon(listener.accept()));
    let serving = tokio::spawn(echo(server.unwrap()));
    let client = client.unwrap();
    let mut stream = soon(client.open(StreamClass::Bulk)).await.unwrap();
    send(stream.send.as_mut(), &b"?"[..]).await.unwrap();
    let answer = soon(read(stream.recv.as_mut(), 1)).await.unwrap();
    assert_eq!(&b"?"[..], answer.unwrap());
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_bounded_and_honest_clients_get_in() {
    let mut listener = listen(config(), None);
    let flood = Flood::tcp(listener.local_addr().unwrap());
    let places = config().max_handshakes;
    // More silent ones than there are places.
    flood.goes_on(3 * places).await;
    for _ in 0..20 {
        honest_client(&mut listener).await;
        assert!((places / 2..=places).contains(&listener.handshakes()));
        flood.goes_on(10).await;
    }
    // As the flood sees it, whose latest peers the kernel may still hold.
    let began = Instant::now();
    while flood.open() > places {
        assert!(began.elapsed() < DEADLINE, "{}", flood.open());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const PREAMBLE: &[u8; 32] =
    b"\xdfDF-TCP\n\x01\0\0\0\0\0\x01\0\0\0\x01\0\0\x01\0\0\0\0\x01\0\0\0\x01\0";

async fn connect_from(source: [u8; 4], addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    soon(socket.connect(addr)).await.unwrap()
}

/// Begins a handshake.
async fn begin(source: [u8; 4], addr: SocketAddr) -> TcpStream {
    let mut socket = connect_from(source, addr).await;
    socket
        .write_all(PREAMBLE.first_chunk::<10>().unwrap())
        .await
        .unwrap();
    socket
}

/// Goes on with one that was begun; whether the listener did too.
async fn complete(mut socket: TcpStream) -> bool {
    // It may be closed already.
    let _ = socket.write_all(PREAMBLE.last_chunk::<22>().unwrap()).await;
    soon(socket.read_exact(&mut [0; 32])).await.is_ok()
}

/// Waits until so many handshakes are in progress, which those that were begun are soon.
async fn in_progress(listener: &TcpListener, count: usize) {
    soon(async {
        while listener.handshakes() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// A slow link, say: many times more peers come in the meantime than there are places.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handshake_outlives_a_flood() {
    let listener = listen(config(), None);
    let addr = listener.local_addr().unwrap();
    let flood = Flood::tcp(addr);
    let slow = begin([127, 0, 0, 1], addr).await;
    flood.goes_on(6 * config().max_handshakes).await;
    assert!(complete(slow).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_over_its_share_loses_its_own_oldest_handshake() {
    let (mut listener, other) = (listen(config(), None), [127, 0, 0, 2]);
    let addr = listener.local_addr().unwrap();
    let share = config().max_handshakes_per_address;
    let honest = begin([127, 0, 0, 1], addr).await;
    let mut others = Vec::new();
    for number in 0..=share {
        others.push(begin(other, addr).await);
        in_progress(&listener, 1 + share.min(number + 1)).await;
    }
    let mut others = others.into_iter();
    closed(&mut others.next().unwrap()).await;
    assert!(complete(others.next().unwrap()).await);
    assert!(complete(honest).await);
    assert!(soon(listener.accept()).await.is_some());
}

/// Waits until the listener has given this one up.
async fn closed(socket: &mut (impl AsyncRead + Unpin)) {
    let end = soon(socket.read(&mut [0])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

/// There it's all processes of the host that share.
#[tokio::test(flavor = "multi_thread")]
async fn unix_sockets_are_bounded_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("worker.sock");
    let listener = TcpListener::bind_unix(&path, config(), &io()).unwrap();
    let mut sockets = Vec::new();
    for _ in 0..2 * config().max_handshakes_per_address {
        sockets.push(tokio::net::UnixStream::connect(&path).await.unwrap());
    }
    in_progress(&listener, config().max_handshakes_per_address).await;
    for given_up in sockets.iter_mut().take(config().max_handshakes_per_address) {
        closed(given_up).await;
    }
}

/// Whether the listener has, as far as is known here. Reads what it said before.
fn is_closed(socket: &TcpStream) -> bool {
    loop {
        match socket.try_read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(err) => return err.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

/// They wait in their handshakes' places, beyond those that the listener keeps for whoever accepts.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nobody_accepts_are_bounded() {
    const BACKLOG: usize = 64;
    const TOO_MANY: usize = 8;
    let mut listener = listen(config(), None);
    let addr = listener.local_addr().unwrap();
    let share = config().max_handshakes_per_address;
    let mut clients = Vec::new();
    for _ in 0..BACKLOG + share + TOO_MANY {
        let mut client = connect_from([127, 0, 0, 2], addr).await;
        client.write_all(PREAMBLE).await.unwrap();
        soon(client.read_exact(&mut [0; 32])).await.unwrap();
        clients.push(client);
    }
    let given_up = || clients.iter().filter(|client| is_closed(client)).count();
    soon(async {
        while given_up() < TOO_MANY {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let mut kept = Vec::new();
    for _ in 0..BACKLOG + share {
        kept.push(soon(listener.accept()).await.unwrap());
    }
    in_progress(&listener, 0).await;
    assert_eq!(TOO_MANY, given_up());
}

/// It was told why, and gets a moment to read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_was_turned_away_keeps_no_place() {
    let listener = listen(config(), None);
    let mut peer = connect_from([127, 0, 0, 2], listener.local_addr().unwrap()).await;
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    in_progress(&listener, 1).await;
    in_progress(&listener, 0).await;
    drop(peer);
}

/// Of warnings: level debug has each failure.
#[tokio::test]
async fn the_log_is_not_flooded() {
    const FAILURES: usize = 50;
    let log = Log::capture();
    let listener = listen(config(), None);
    let addr = listener.local_addr().unwrap();
    let began = Instant::now();
    for failures in 1..=FAILURES {
        drop(connect_from([127, 0, 0, 2], addr).await);
        soon(async {
            while log.lines(&["TCP handshake failed", "127.0.0.2"]) < failures {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    let warnings = log.lines(&["WARN", "TCP handshake failed"]);
    assert!((1..=1 + seconds).contains(&warnings), "{warnings}");
}
