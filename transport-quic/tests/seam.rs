//! What QUIC adds to the connection contract, which package `tests` runs: its limits, its windows, and what it knows of the path.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Pair, drain, pair, send, soon};
use datafusion_transport_core::connection::{StreamClass, StreamCode, StreamError};
use datafusion_transport_quic::QuicConfig;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn statistics_tell_the_path() {
    let pair = pair(QuicConfig::default()).await;
    let (_ours, _theirs) = pair.stream().await;
    let stats = pair.client.stats();
    assert!(stats.path_mtu_bytes.unwrap() >= 1200 && stats.round_trip.is_some());
    assert!(pair.client.peer().contains("quic://127.0.0.1:"));
}

/// The stop meets the writer in all states: running, waiting for the stream's window, for the send window, for both.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_reaches_a_writer_in_every_state() {
    let config = QuicConfig {
        stream_window_bytes: 64 << 10,
        send_window_bytes: 64 << 10,
        ..QuicConfig::default()
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
    let config = QuicConfig::default();
    assert!((config.initial_streams as usize) < STREAMS);
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
    let config = QuicConfig {
        initial_streams: 4,
        max_streams: 8,
        ..QuicConfig::default()
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
    // More is announced once an eighth is free, not for each stream.
    open.truncate(6);
    open.push(soon(pair.stream()).await);
}
