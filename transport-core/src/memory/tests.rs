#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::connection::{BiStream, StreamClass, StreamCode, StreamError, read, write};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(20);

async fn pair() -> (Arc<dyn Connection>, Arc<dyn Connection>) {
    let network = MemoryNetwork::new();
    let url = "memory://a".parse().unwrap();
    let mut listener = network.listen(&url);
    let client = network.connect(&url).await.unwrap();
    (client, listener.accept().await.unwrap())
}

async fn streams() -> (Arc<dyn Connection>, Arc<dyn Connection>, BiStream, BiStream) {
    let (client, server) = pair().await;
    let near = client.open(StreamClass::Bulk).await.unwrap();
    let far = server.accept().await.unwrap();
    (client, server, near, far)
}

fn chunks(bytes: &'static [u8]) -> VecDeque<Bytes> {
    [Bytes::from_static(bytes)].into()
}

#[tokio::test]
async fn bytes_and_the_clean_end_arrive() {
    let (_client, _server, mut near, mut far) = streams().await;
    write(&mut *near.send, &mut chunks(b"hello")).await.unwrap();
    near.send.finish();
    assert_eq!(read(&mut *far.recv, 2).await.unwrap().unwrap(), "he");
    assert_eq!(read(&mut *far.recv, 9).await.unwrap().unwrap(), "llo");
    assert!(read(&mut *far.recv, 9).await.unwrap().is_none());
}

#[tokio::test]
async fn a_dropped_sender_is_no_clean_end() {
    let (_client, _server, near, mut far) = streams().await;
    drop(near.send);
    let err = read(&mut *far.recv, 9).await.unwrap_err();
    assert!(
        matches!(err, StreamError::Reset(StreamCode::ABANDONED)),
        "{err}"
    );
}

#[tokio::test]
async fn a_dropped_receiver_stops_the_writer() {
    let (_client, _server, mut near, far) = streams().await;
    drop(far.recv);
    let err = write(&mut *near.send, &mut chunks(b"x")).await.unwrap_err();
    assert!(
        matches!(err, StreamError::Stopped(StreamCode::CANCELLED)),
        "{err}"
    );
}

#[tokio::test]
async fn an_unread_stream_stops_its_writer_and_nobody_else() {
    let (client, server, mut near, _far) = streams().await;
    let mut big: VecDeque<Bytes> = [Bytes::from(vec![0; 1 << 20])].into();
    let blocked = timeout(Duration::from_millis(50), write(&mut *near.send, &mut big)).await;
    assert!(blocked.is_err(), "the window let a megabyte through");
    assert!(!big.is_empty());

    let mut other = client.open(StreamClass::Bulk).await.unwrap();
    let mut other_far = server.accept().await.unwrap();
    write(&mut *other.send, &mut chunks(b"free")).await.unwrap();
    assert_eq!(
        read(&mut *other_far.recv, 9).await.unwrap().unwrap(),
        "free"
    );
}

#[tokio::test]
async fn closing_fails_streams_on_both_sides_with_the_reason() {
    let (client, server, mut near, mut far) = streams().await;
    let waiting = tokio::spawn(async move { read(&mut *far.recv, 9).await.map(|_| ()) });
    client.close("maintenance");
    let err = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap_err();
    assert!(err.to_string().contains("maintenance"), "{err}");
    assert!(write(&mut *near.send, &mut chunks(b"x")).await.is_err());
    assert!(server.close_reason().is_some());
    assert!(server.accept().await.is_err());
    assert!(client.open(StreamClass::Bulk).await.is_err());
}

#[tokio::test]
async fn a_url_without_listener_is_refused() {
    let url = "memory://nobody".parse().unwrap();
    let err = MemoryNetwork::new()
        .connect(&url)
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Connect);
    assert!(err.to_string().contains("memory://nobody"), "{err}");
}
