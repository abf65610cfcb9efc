//! What many streams do to each other.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use bytes::Bytes;
use common::{drain, echo, pair, send, soon};
use datafusion_transport_core::connection::{StreamClass, read};
use datafusion_transport_tcp::TcpConfig;
use tokio::task::JoinSet;

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
