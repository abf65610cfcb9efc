//! What many streams leave behind, and what they do to each other.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use bytes::Bytes;
use common::{drain, echo, pair, send, soon};
use datafusion_transport_core::connection::{StreamClass, StreamError, read};
use datafusion_transport_tcp::TcpConfig;
use tokio::task::JoinSet;

/// Streams cut in mid-data leave no credit behind: afterwards a stream gets as much as on a fresh connection.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_cancelled_streams_cost_no_credit() {
    let config = TcpConfig {
        stream_window_bytes: 64 << 10,
        send_buffer_bytes: 256 << 10,
        max_streams: 64,
        max_unaccepted_streams: 16,
        ..TcpConfig::default()
    };
    let pair = pair(config).await;
    let server = std::sync::Arc::clone(&pair.server);
    let serving = tokio::spawn(async move {
        let mut writers = JoinSet::new();
        for _ in 0..10_000 {
            let mut stream = server.accept().await.unwrap();
            writers.spawn(async move {
                // More than the window: ends only because it is stopped.
                send(stream.send.as_mut(), vec![0; 1 << 20])
                    .await
                    .unwrap_err()
            });
            while let Some(err) = writers.try_join_next() {
                assert!(matches!(err.unwrap(), StreamError::Stopped(_)));
            }
        }
        while let Some(err) = writers.join_next().await {
            assert!(matches!(err.unwrap(), StreamError::Stopped(_)));
        }
    });
    for number in 0..10_000 {
        let mut stream = soon(pair.client.open(StreamClass::Bulk)).await.unwrap();
        send(stream.send.as_mut(), &b"call"[..]).await.unwrap();
        // Dropped instead, the stream might be over before the peer ever hears of it.
        stream.send.finish();
        if number % 2 == 0 {
            soon(read(stream.recv.as_mut(), 1000))
                .await
                .unwrap()
                .unwrap();
        }
    }
    soon(serving).await.unwrap();
    // All places are free again, and so is the send buffer.
    let mut all = Vec::new();
    for _ in 0..64 {
        all.push(pair.stream().await);
    }
    drop(all);
    pair.transfer(64 << 20).await;
}

/// Messages under bulk load do not wait for the bulk data that is queued.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_stream_passes_waiting_bulk_data() {
    let pair = pair(TcpConfig::default()).await;
    let echo = tokio::spawn(echo(std::sync::Arc::clone(&pair.server)));
    let mut flood = JoinSet::new();
    for _ in 0..8 {
        let mut bulk = soon(pair.client.open(StreamClass::Bulk)).await.unwrap();
        flood.spawn(async move {
            let endless = async {
                let block = Bytes::from(vec![0; 1 << 20]);
                loop {
                    send(bulk.send.as_mut(), block.clone()).await.unwrap();
                }
            };
            tokio::select! {
                () = endless => {}
                _ = drain(bulk.recv.as_mut()) => {}
            }
        });
    }
    let mut control = soon(pair.client.open(StreamClass::Control)).await.unwrap();
    for _ in 0..200 {
        send(control.send.as_mut(), &b"ping"[..]).await.unwrap();
        let answer = soon(read(control.recv.as_mut(), 4)).await.unwrap().unwrap();
        assert_eq!(&b"ping"[..], answer);
    }
    drop(flood);
    drop(control);
    pair.client.close("done");
    echo.abort();
}
