//! What TCP adds to the connection contract, which package `tests` runs: TLS, Unix sockets, its limits and its windows.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use bytes::Bytes;
use common::{Authority, Pair, connected, drain, echo, io, pair, pair_with, send, soon};
use datafusion_transport_core::connection::Listener;
use datafusion_transport_core::connection::{
    BiStream, StreamClass, StreamCode, StreamError, read, write,
};
use datafusion_transport_tcp::{TcpConfig, TcpListener};
use std::collections::VecDeque;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn bytes_arrive_over_tls() {
    let authority = Authority::new();
    let tls = (authority.server("127.0.0.1"), authority.client());
    bytes_arrive_whole_and_in_order(pair_with(TcpConfig::default(), Some(tls)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_arrive_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("worker.sock");
    // One that nobody listens on any more is in the way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = TcpListener::bind_unix(&path, TcpConfig::default(), &io()).unwrap();
    assert_eq!(format!("unix {}", path.display()), listener.describe());
    let err = TcpListener::bind_unix(&path, TcpConfig::default(), &io()).unwrap_err();
    assert!(err.to_string().contains("worker.sock"), "{err}");
    let url = format!("unix://{}", path.display()).parse().unwrap();
    bytes_arrive_whole_and_in_order(connected(listener, &url, TcpConfig::default(), None).await)
        .await;
    assert!(!path.exists());
}

async fn bytes_arrive_whole_and_in_order(pair: Pair) {
    let Pair {
        client,
        server,
        listener,
    } = pair;
    let echo = tokio::spawn(echo(server));
    let BiStream {
        send: mut tx,
        recv: mut rx,
    } = client.open(StreamClass::Control).await.unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let whole = Bytes::from(sent.clone());
    // Empty, small, and larger than any window.
    let mut chunks: VecDeque<Bytes> = [
        0..0,
        0..1,
        1..1,
        1..70_000,
        70_000..70_001,
        70_001..whole.len(),
    ]
    .map(|range| whole.slice(range))
    .into();
    let writing = tokio::spawn(async move {
        write(tx.as_mut(), &mut chunks).await.unwrap();
        assert!(chunks.is_empty());
        tx.finish();
        tx.finish();
    });
    let mut got = Vec::new();
    while let Some(chunk) = soon(read(rx.as_mut(), 10_000)).await.unwrap() {
        assert!((1..=10_000).contains(&chunk.len()));
        got.extend_from_slice(&chunk);
    }
    assert!(got == sent);
    assert!(soon(read(rx.as_mut(), 1)).await.unwrap().is_none());
    soon(writing).await.unwrap();

    let stats = client.stats();
    assert!(stats.bytes_sent > sent.len() as u64 && stats.bytes_received > sent.len() as u64);
    assert!(stats.round_trip.is_some());
    assert!(client.peer().contains("://"));
    drop((client, listener));
    soon(echo).await.unwrap();
}

/// The stop meets the writer in all states: running, waiting for the stream's window, for the send window, for both.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_reaches_a_writer_in_every_state() {
    let config = TcpConfig {
        stream_window_bytes: 64 << 10,
        send_buffer_bytes: 64 << 10,
        ..TcpConfig::default()
    };
    let pair = pair(config).await;
    for round in 0..200 {
        let (ours, mut theirs) = pair.stream().await;
        let writing = tokio::spawn(async move {
            loop {
                if let Err(err) = send(theirs.send.as_mut(), vec![0; 16 << 10]).await {
                    return err;
                }
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..round % 8 {
            tokio::task::yield_now().await;
        }
        drop(ours.recv);
        let err = soon(writing).await.unwrap();
        assert!(
            matches!(err, StreamError::Stopped(StreamCode::CANCELLED)),
            "{err}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_streams_are_open_at_once() {
    const STREAMS: usize = 10_000;
    let config = TcpConfig::default();
    assert!((config.max_unaccepted_streams as usize) < STREAMS);
    let Pair {
        client,
        server,
        listener: _listener,
    } = pair(config).await;
    let accepting = tokio::spawn(async move {
        let mut streams = Vec::new();
        while streams.len() < STREAMS {
            streams.push(server.accept().await.unwrap());
        }
        (server, streams)
    });
    let mut ours = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = soon(client.open(StreamClass::Bulk)).await.unwrap();
        send(stream.send.as_mut(), &b"hello"[..]).await.unwrap();
        stream.send.finish();
        ours.push(stream);
    }
    let (server, theirs) = soon(accepting).await.unwrap();
    for mut stream in theirs {
        assert_eq!(5, soon(drain(stream.recv.as_mut())).await.unwrap());
        stream.send.finish();
    }
    for mut stream in ours {
        assert_eq!(0, soon(drain(stream.recv.as_mut())).await.unwrap());
    }
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streams_than_allowed_wait() {
    let config = TcpConfig {
        max_unaccepted_streams: 4,
        max_streams: 8,
        ..TcpConfig::default()
    };
    let pair = pair(config).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(pair.stream().await);
    }
    // Dropping the wait opens nothing.
    let ninth = pair.client.open(StreamClass::Bulk);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), ninth)
            .await
            .is_err()
    );
    open.truncate(6);
    open.push(soon(pair.stream()).await);
}
