//! What a peer that has a connection may hold by saying too little, or too much.

use super::{Batches, batches};
use crate::connection::{
    BiStream, Connection, Connector, StreamClass, StreamCode, StreamError, read,
};
use crate::framed::{FrameReader, MAX_CONTROL_BYTES};
use crate::memory::MemoryNetwork;
use crate::runtime::IoRuntime;
use crate::server::{Server, ServerHandle};
use crate::wire::call::TaskCalls;
use crate::wire::frame::{FrameHeader, FrameKind, put_frame};
use bytes::Bytes;
use datafusion::prelude::SessionContext;
use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey};
use http::HeaderMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_secs(60);

/// A server that waits for requests so long, and a connection to it.
async fn serve() -> (ServerHandle, Arc<dyn Connection>) {
    let url = "http://worker:1".parse().unwrap();
    let network = MemoryNetwork::new();
    let server = Server::builder(Batches(batches()))
        .listener(Box::new(network.listen(&url)))
        .io_runtime(IoRuntime::from_handle(Handle::current()))
        .request_timeout(PATIENCE);
    let server = server.start().unwrap();
    (server, network.connect(&url).await.unwrap())
}

/// A call that says this and then nothing more.
async fn say(connection: &Arc<dyn Connection>, bytes: &[u8]) -> BiStream {
    let mut stream = connection.open(StreamClass::Bulk).await.unwrap();
    let mut bytes = VecDeque::from([Bytes::copy_from_slice(bytes)]);
    crate::connection::write(stream.send.as_mut(), &mut bytes)
        .await
        .unwrap();
    stream
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap()
}

#[tokio::test]
async fn a_request_that_does_not_come_whole_is_given_up() {
    let (server, connection) = serve().await;
    let header = FrameHeader::new(FrameKind::Call, 100).encode();
    // Half a header, and half a request.
    for begun in [&header[..8], &[&header[..], &[0; 50]].concat()] {
        let began = Instant::now();
        let mut stream = say(&connection, begun).await;
        let end = soon(read(stream.recv.as_mut(), 1)).await.unwrap_err();
        assert!(matches!(end, StreamError::Reset(StreamCode::CANCELLED)));
        assert!(began.elapsed() >= PATIENCE);
    }
    soon(async {
        while server.stats().calls > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(1, server.stats().connections);
}

#[tokio::test]
async fn a_request_over_the_limit_is_refused_before_it_arrives() {
    let (_server, connection) = serve().await;
    for length in [MAX_CONTROL_BYTES + 1, FrameHeader::MAX_PAYLOAD_BYTES] {
        let header = FrameHeader::new(FrameKind::Call, length).encode();
        let stream = say(&connection, &header).await;
        let mut reader = FrameReader::new(stream.recv, "test", "worker");
        let frame = soon(reader.next()).await.unwrap().unwrap();
        assert_eq!(FrameKind::Error, frame.header.kind);
        let text = String::from_utf8_lossy(&frame.payload).into_owned();
        assert!(text.contains("F-7"), "{text}");
    }
}

#[tokio::test]
async fn a_release_of_a_task_that_never_comes_is_answered() {
    let (_server, connection) = serve().await;
    let request = ExecuteTaskRequest {
        task_key: TaskKey {
            query_id: Uuid::from_u128(1),
            stage_id: 1,
            task_number: 0,
        },
        target_partition_start: 0,
        target_partition_end: 4,
        producer_head: ProducerHead::None,
    };
    let ctx = SessionContext::new().task_ctx();
    let calls = TaskCalls::try_new(&HeaderMap::new(), request, &ctx).unwrap();
    let mut release = VecDeque::new();
    put_frame(&mut release, FrameKind::Call, 0, calls.release(0..4).into());
    let began = Instant::now();
    let stream = say(&connection, &release.pop_front().unwrap()).await;
    let mut reader = FrameReader::new(stream.recv, "test", "worker");
    let frame = soon(reader.next()).await.unwrap().unwrap();
    assert_eq!(FrameKind::End, frame.header.kind);
    assert!(began.elapsed() < DEADLINE / 2);
}

/// It was answered, with an error here, and its peer keeps its own half open: 10 s, to be sure that the answer arrives.
#[tokio::test]
async fn a_call_that_its_peer_does_not_end_is_let_go() {
    let (server, connection) = serve().await;
    let mut request = VecDeque::new();
    put_frame(&mut request, FrameKind::Call, 0, Bytes::new());
    let stream = say(&connection, &request.pop_front().unwrap()).await;
    let mut reader = FrameReader::new(stream.recv, "test", "worker");
    let frame = soon(reader.next()).await.unwrap().unwrap();
    assert_eq!(FrameKind::Error, frame.header.kind);
    assert_eq!(1, server.stats().calls);
    let began = Instant::now();
    soon(async {
        while server.stats().calls > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(began.elapsed() < DEADLINE / 2);
    drop(stream.send);
}
