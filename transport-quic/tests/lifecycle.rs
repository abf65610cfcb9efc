//! How connections live and end, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Pair, drain, pair, send, soon};
use datafusion_transport_core::connection::{Listener, StreamClass, StreamError, read};
use datafusion_transport_core::error::{Delivery, ErrorKind};
use datafusion_transport_quic::QuicConfig;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_to_close_reaches_the_peer() {
    let Pair {
        client,
        server,
        mut listener,
    } = pair(QuicConfig::default()).await;
    assert!(client.close_reason().is_none());
    let mut stream = client.open(StreamClass::Bulk).await.unwrap();
    server.close("draining for an upgrade");
    server.close("another reason");
    let err = soon(client.closed()).await;
    assert_eq!(
        (ErrorKind::Closed, "draining for an upgrade"),
        (err.kind(), err.detail())
    );
    assert!(err.peer().contains("quic://127.0.0.1"), "{err}");
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

/// The close must not wait for the congestion window, which is full while data flows.
#[tokio::test(flavor = "multi_thread")]
async fn a_reason_to_close_overtakes_data() {
    let config = QuicConfig {
        keep_alive_interval: Duration::from_millis(300),
        idle_timeout: Duration::from_secs(2),
        ..QuicConfig::default()
    };
    for _ in 0..20 {
        let pair = pair(config.clone()).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_listener_tells_the_peers_and_frees_the_port() {
    let Pair {
        client,
        server: _server,
        mut listener,
    } = pair(QuicConfig::default()).await;
    let addr = listener.local_addr();
    assert_eq!(format!("quic {addr}"), listener.describe());
    soon(listener.close()).await;
    let err = soon(client.closed()).await;
    assert!(err.detail().contains("shutting down"), "{err}");
    drop((listener, client, _server));
    let free = async {
        while std::net::UdpSocket::bind(addr).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_closes() {
    let Pair {
        client,
        server,
        listener: _listener,
    } = pair(QuicConfig::default()).await;
    let stream = client.open(StreamClass::Bulk).await.unwrap();
    drop(client);
    assert_eq!(ErrorKind::Closed, soon(server.closed()).await.kind());
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alive_outlives_the_idle_timeout() {
    let config = QuicConfig {
        keep_alive_interval: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(500),
        ..QuicConfig::default()
    };
    let pair = pair(config).await;
    let idle = Duration::from_secs(2);
    assert!(
        tokio::time::timeout(idle, pair.client.closed())
            .await
            .is_err()
    );
    let (mut ours, mut theirs) = pair.stream().await;
    send(theirs.send.as_mut(), &b"still here"[..])
        .await
        .unwrap();
    theirs.send.finish();
    assert_eq!(10, soon(drain(ours.recv.as_mut())).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sockets_share_one_port() {
    let config = QuicConfig {
        endpoints: 2,
        ..QuicConfig::default()
    };
    let pair = pair(config).await;
    let (mut ours, mut theirs) = pair.stream().await;
    let writing = tokio::spawn(async move {
        send(theirs.send.as_mut(), vec![0; 10 << 20]).await.unwrap();
        theirs.send.finish();
    });
    assert_eq!(10 << 20, soon(drain(ours.recv.as_mut())).await.unwrap());
    soon(writing).await.unwrap();
}
