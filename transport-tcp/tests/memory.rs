//! What a stream that is open costs. A process of its own, because it measures the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use bytes::Bytes;
use common::{drain, pair, send, soon};
use datafusion_transport_core::connection::{StreamClass, read};
use datafusion_transport_tcp::TcpConfig;
use std::sync::Arc;

const STREAMS: usize = 10_000;
/// The promise is 64 KiB for one side; here both sides are in one process, and a tenth of that is enough for them.
const MAX_STREAM_BYTES: usize = 6 << 10;

fn message_bytes(number: usize) -> usize {
    if number.is_multiple_of(10) { 5000 } else { 200 }
}

/// Memory of this process that is really there.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

/// Each has an unread message each way; some are large enough to be kept as they arrived, among bulk data that is read.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_costs_little() {
    let pair = pair(TcpConfig::default()).await;
    // What the first use of everything costs is no stream's.
    pair.transfer(8 << 20).await;
    let (mut bulk, mut bulk_writer) = pair.stream().await;
    let writing = tokio::spawn(async move {
        let block = Bytes::from(vec![0; 256 << 10]);
        while send(bulk_writer.send.as_mut(), block.clone()).await.is_ok() {}
    });
    let before = resident_bytes();
    let server = Arc::clone(&pair.server);
    let accepting = tokio::spawn(async move {
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            let mut stream = server.accept().await.unwrap();
            let message = vec![1; message_bytes(number)];
            send(stream.send.as_mut(), message).await.unwrap();
            streams.push(stream);
        }
        streams
    });
    let mut ours = Vec::new();
    for number in 0..STREAMS {
        let mut stream = soon(pair.client.open(StreamClass::Bulk)).await.unwrap();
        let message = vec![1; message_bytes(number)];
        send(stream.send.as_mut(), message).await.unwrap();
        ours.push(stream);
        let mut beside = 0;
        while number.is_multiple_of(10) && beside < 300 << 10 {
            let chunk = soon(read(bulk.recv.as_mut(), usize::MAX)).await.unwrap();
            beside += chunk.unwrap().len();
        }
    }
    let mut theirs = soon(accepting).await.unwrap();
    // All has arrived once a stream that was opened last is through.
    for stream in [ours.last_mut(), theirs.last_mut()].into_iter().flatten() {
        stream.send.finish();
    }
    for stream in [ours.last_mut(), theirs.last_mut()].into_iter().flatten() {
        let bytes = soon(drain(stream.recv.as_mut())).await.unwrap();
        assert_eq!(message_bytes(STREAMS - 1), bytes);
    }
    let in_flight: usize = (0..STREAMS).map(|number| 2 * message_bytes(number)).sum();
    let grown = resident_bytes().saturating_sub(before + in_flight);
    let each = grown / STREAMS;
    println!("{each} bytes for a stream, both sides");
    assert!(each < MAX_STREAM_BYTES, "{each} bytes for a stream");
    drop((bulk, ours, theirs));
    soon(writing).await.unwrap();
}
