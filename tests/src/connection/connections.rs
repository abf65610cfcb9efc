//! How connections begin and end.

use super::*;
use crate::wait::eventually;
use datafusion_transport_core::error::{Delivery, ErrorKind};
use std::time::{Duration, Instant};

type Conn = Trial<dyn ConnectionHarness>;

/// The peer learns why: it is what a user reads when a worker goes away.
pub async fn a_close_tells_its_reason(t: Conn) {
    let pair = t.pair().await;
    assert!(pair.client.close_reason().is_none());
    pair.server.close("draining for an upgrade");
    let err = soon(pair.client.closed()).await;
    assert_eq!(
        (err.kind(), err.detail()),
        (ErrorKind::Closed, "draining for an upgrade")
    );
    assert!(!err.peer().is_empty());
    let again = pair.client.close_reason().expect("a reason");
    assert_eq!(again.kind(), ErrorKind::Closed);
    assert!(pair.server.close_reason().is_some());
}

/// Streams that are open fail on both sides, whatever they wait for, and none opens any more; one that did not open has sent
/// nothing, and says so.
pub async fn a_close_fails_streams_on_both_sides(t: Conn) {
    let pair = t.pair().await;
    let (mut reading, mut far_writing) = pair.stream().await;
    let (mut writing, _far_reading) = pair.stream().await;
    let read = tokio::spawn(async move { drain(reading.recv.as_mut()).await });
    let write = tokio::spawn(async move { send_endlessly(writing.send.as_mut()).await });
    pair.server.close("maintenance");
    match soon(read).await.expect("no panic") {
        Err(StreamError::Connection(err)) => assert!(err.detail().contains("maintenance"), "{err}"),
        other => panic!("{other:?}"),
    }
    let err = soon(write).await.expect("no panic");
    assert!(matches!(err, StreamError::Connection(_)), "{err}");
    let err = soon(send_endlessly(far_writing.send.as_mut())).await;
    assert!(matches!(err, StreamError::Connection(_)), "{err}");
    assert!(soon(pair.server.accept()).await.is_err());
    let err = soon(pair.client.open(StreamClass::Bulk)).await.err();
    let err = err.expect("a closed connection opens nothing");
    assert_eq!(err.delivery(), Delivery::NotDelivered, "{err}");
}

/// A reason to close does not queue behind data that nobody takes.
pub async fn a_close_overtakes_data(t: Conn) {
    for _ in 0..5 {
        let pair = t.pair().await;
        let (mut ours, mut theirs) = pair.stream().await;
        let writing = tokio::spawn(async move { send_endlessly(theirs.send.as_mut()).await });
        soon(read(ours.recv.as_mut(), 1)).await.expect("a byte");
        pair.server.close("enough");
        let err = soon(pair.client.closed()).await;
        assert_eq!((err.kind(), err.detail()), (ErrorKind::Closed, "enough"));
        soon(writing).await.expect("no panic");
    }
}

/// The first reason counts.
pub async fn a_second_close_changes_nothing(t: Conn) {
    let pair = t.pair().await;
    pair.server.close("the first");
    pair.server.close("the second");
    pair.client.close("the third");
    let own = pair.server.close_reason().expect("a reason");
    assert!(own.detail().contains("the first"), "{own}");
}

/// A client that is dropped frees its worker.
pub async fn dropping_the_last_handle_closes(t: Conn) {
    let Pair {
        client,
        server,
        listener,
        ..
    } = t.pair().await;
    let stream = soon(client.open(StreamClass::Bulk))
        .await
        .expect("a stream");
    drop(stream);
    drop(client);
    soon(server.closed()).await;
    drop(listener);
}

/// Closing one connection leaves the others of the same listener and connector.
pub async fn connections_are_independent(t: Conn) {
    let mut pair = t.pair().await;
    let listener = pair.listener.get_mut().expect("no panic");
    let (other, _other_server) = connect(&pair.connector, &pair.url, listener).await;
    other.close("only this one");
    soon(other.closed()).await;
    pair.transfer(100_000).await;
}

/// `accept` then gives none, and the peers are told.
pub async fn a_closed_listener_gives_no_connection(t: Conn) {
    let (_url, mut listener) = t.listen(None).await;
    soon(listener.close()).await;
    assert!(soon(listener.accept()).await.is_none());
    assert!(!listener.describe().is_empty());
}

/// A worker that is not there is an error within the handshake's limit, of a kind that says that nothing was sent.
pub async fn nobody_listening_is_an_error_that_names_the_url(t: Conn) {
    let (url, mut listener) = t.listen(None).await;
    soon(listener.close()).await;
    drop(listener);
    let connector = t.harness.connector().expect("a connector");
    let start = Instant::now();
    let err = soon(connector.connect(&url)).await.err();
    let err = err.expect("nobody is there");
    assert!(start.elapsed() < Duration::from_secs(12), "{err}");
    assert!(
        matches!(err.kind(), ErrorKind::Connect | ErrorKind::Timeout),
        "{err:?}"
    );
    assert_eq!(err.peer(), url.as_str());
}

/// A dial that its caller gave up leaves nothing behind that harms the next one.
pub async fn a_dropped_connect_leaves_the_listener_usable(t: Conn) {
    let (url, mut listener) = t.listen(None).await;
    let connector = t.harness.connector().expect("a connector");
    for micros in [0, 1, 100, 500, 1000, 3000] {
        let limit = Duration::from_micros(micros);
        let _ = tokio::time::timeout(limit, connector.connect(&url)).await;
    }
    let client = tokio::spawn({
        let (connector, url) = (Arc::clone(&connector), url.clone());
        async move {
            let client = connector.connect(&url).await.expect("a connection");
            let mut stream = client.open(StreamClass::Bulk).await.expect("a stream");
            send(stream.send.as_mut(), &b"!"[..])
                .await
                .expect("a reader");
            (client, stream)
        }
    });
    // Of those given up, some may have been made: they are closed.
    let lives = async {
        loop {
            let server = listener.accept().await.expect("a connection");
            if server.accept().await.is_ok() {
                return server;
            }
        }
    };
    soon(lives).await;
    soon(client).await.expect("no panic");
}

/// An accept that was dropped loses no connection: the server waits for several things at once.
pub async fn an_interrupted_accept_loses_no_connection(t: Conn) {
    const CONNECTIONS: usize = 5;
    let (url, mut listener) = t.listen(None).await;
    let connector = t.harness.connector().expect("a connector");
    let clients = tokio::spawn(async move {
        let mut clients = vec![];
        for _ in 0..CONNECTIONS {
            clients.push(connector.connect(&url).await.expect("a connection"));
        }
        clients
    });
    let mut servers = vec![];
    let accepted = async {
        while servers.len() < CONNECTIONS {
            let accept = tokio::time::timeout(Duration::from_micros(200), listener.accept());
            servers.extend(accept.await.ok().flatten());
        }
    };
    soon(accepted).await;
    soon(clients).await.expect("no panic");
}

/// Nor a stream.
pub async fn an_interrupted_accept_loses_no_stream(t: Conn) {
    const STREAMS: usize = 30;
    let pair = t.pair().await;
    let client = Arc::clone(&pair.client);
    let opened = tokio::spawn(async move {
        let mut streams = vec![];
        for _ in 0..STREAMS {
            let mut stream = client.open(StreamClass::Bulk).await.expect("a stream");
            send(stream.send.as_mut(), &b"!"[..])
                .await
                .expect("a reader");
            streams.push(stream);
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
        streams
    });
    let mut streams = vec![];
    let accepted = async {
        while streams.len() < STREAMS {
            let accept = pair.server.accept();
            let accept = tokio::time::timeout(Duration::from_micros(200), accept);
            streams.extend(accept.await.ok().map(|stream| stream.expect("a stream")));
        }
    };
    soon(accepted).await;
    soon(opened).await.expect("no panic");
}

/// A worker that was restarted is reached again by the same connector.
pub async fn a_listener_starts_again_at_its_url(t: Conn) {
    let Pair {
        client,
        server,
        listener,
        connector,
        url,
        ..
    } = t.pair().await;
    server.close("it goes away");
    let mut listener = listener.into_inner().expect("no panic");
    soon(listener.close()).await;
    soon(client.closed()).await;
    drop((client, server, listener));
    let io = IoRuntime::shared().expect("threads");
    let again = async {
        loop {
            match t.harness.listen(Some(&url), &io).await {
                Ok(listening) => return listening,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let (at, mut listener) = soon(again).await;
    assert_eq!(at, url);
    connect(&connector, &url, &mut listener).await;
}

/// What the connection carried shows in its counters, overheads included, on both sides; the peer has a name for messages.
pub async fn bytes_are_counted(t: Conn) {
    const BYTES: usize = 1 << 20;
    let pair = t.pair().await;
    pair.transfer(BYTES).await;
    // A side may count what it wrote a moment after the other side has read it.
    let sent = || pair.server.stats().bytes_sent >= BYTES as u64;
    eventually("the server has counted", SOON, sent).await;
    let received = || pair.client.stats().bytes_received;
    eventually("the client has counted", SOON, || {
        received() >= BYTES as u64
    })
    .await;
    assert!(received() < 2 * BYTES as u64, "{}", received());
    assert!(!pair.client.peer().is_empty() && !pair.server.peer().is_empty());
}
