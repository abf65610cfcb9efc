//! Flow control: every stream has its own, and there is none that streams share.

use super::*;
use crate::wait::eventually;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

type Conn = Trial<dyn ConnectionHarness>;

/// Far more than any transport may hold for a stream that nobody reads.
const TOO_MUCH: usize = 256 << 20;

/// Writes without end and counts; stops counting when the writer waits.
fn flood(mut stream: BiStream, tasks: &mut JoinSet<()>) -> Arc<AtomicUsize> {
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    tasks.spawn(async move {
        let block = Bytes::from(vec![0; 64 << 10]);
        while send(stream.send.as_mut(), block.clone()).await.is_ok() {
            count.fetch_add(block.len(), Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    });
    written
}

/// Waits until a flood stands still.
async fn stands_still(written: &AtomicUsize) -> usize {
    let mut last = usize::MAX;
    loop {
        let now = written.load(Ordering::SeqCst);
        assert!(now < TOO_MUCH, "an unread stream took {now} bytes");
        if now == last {
            return now;
        }
        last = now;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A reader that does not read stops its writer: memory for a stream is bounded (flink-web#218).
pub async fn an_unread_stream_stops_its_writer(t: Conn) {
    let pair = t.pair().await;
    let (_ours, theirs) = pair.stream().await;
    let mut tasks = JoinSet::new();
    let written = flood(theirs, &mut tasks);
    soon(stands_still(&written)).await;
}

/// ... and nobody else, whatever the amount of data (dfd#419, flink-web#218).
pub async fn an_unread_stream_delays_no_other(t: Conn) {
    const BYTES: usize = 12 << 20;
    let pair = t.pair().await;
    let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
    let mut unread = None;
    for number in 0..6 {
        let (mut ours, mut theirs) = pair.stream().await;
        writers.spawn(async move {
            send(theirs.send.as_mut(), vec![0; BYTES])
                .await
                .expect("a reader");
            theirs.send.finish();
            theirs
        });
        match number {
            3 => unread = Some(ours),
            _ => {
                drop(readers.spawn(async move { drain(ours.recv.as_mut()).await.expect("an end") }))
            }
        }
    }
    while let Some(bytes) = soon(readers.join_next()).await {
        assert_eq!(bytes.expect("no panic"), BYTES);
        pair.progress.made();
    }
    // The unread one is still whole.
    let mut unread = unread.expect("the fourth");
    assert_eq!(
        soon(drain(unread.recv.as_mut())).await.expect("an end"),
        BYTES
    );
}

/// A hundred streams that nobody reads, each full, take nothing that the next one needs (dfd#419).
pub async fn many_unread_streams_use_up_nothing_shared(t: Conn) {
    let pair = t.pair().await;
    let mut tasks = JoinSet::new();
    let mut unread = vec![];
    for _ in 0..100 {
        let (ours, theirs) = pair.stream().await;
        unread.push(ours);
        // More than a transport holds for all together, if it bounds that, and not so much for each.
        let mut stream = theirs;
        tasks.spawn(async move {
            let _ = send(stream.send.as_mut(), vec![0; 1 << 20]).await;
            std::future::pending::<()>().await;
        });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    pair.transfer(8 << 20).await;
}

/// A reader that pauses with everything full behind it loses nothing, nor its connection (quinn#2809, #2814).
pub async fn a_paused_reader_gets_everything(t: Conn) {
    const BYTES: usize = 24 << 20;
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    let sent = pattern(6, BYTES);
    let writing = tokio::spawn({
        let sent = sent.clone();
        async move {
            send(theirs.send.as_mut(), sent).await.expect("a reader");
            theirs.send.finish();
            theirs
        }
    });
    let mut got = vec![];
    for _ in 0..3 {
        let chunk = soon(read(ours.recv.as_mut(), 1 << 20))
            .await
            .expect("bytes");
        got.extend_from_slice(&chunk.expect("not the end"));
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    got.extend(
        soon(read_all(ours.recv.as_mut(), 1 << 20))
            .await
            .expect("an end"),
    );
    assert!(got == sent, "other bytes arrived");
    soon(writing).await.expect("no panic");
}

/// The writer goes on as the reader reads, and only so far: what may be unread stays bounded while data flows.
pub async fn reading_is_what_makes_room(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, theirs) = pair.stream().await;
    let mut tasks = JoinSet::new();
    let written = flood(theirs, &mut tasks);
    let first = soon(stands_still(&written)).await;
    let mut taken = 0;
    while taken < first {
        let chunk = soon(read(ours.recv.as_mut(), 1 << 20))
            .await
            .expect("bytes");
        taken += chunk.expect("not the end").len();
    }
    eventually("the writer goes on", SOON, || {
        written.load(Ordering::SeqCst) > first
    })
    .await;
    let second = soon(stands_still(&written)).await;
    assert!(
        second <= 3 * first + (1 << 20),
        "{first}, then {second} bytes"
    );
}

/// A query with a thousand partitions to a worker has them all open (ballista#1943).
pub async fn a_thousand_streams_are_open_at_once(t: Conn) {
    const STREAMS: usize = 1000;
    let pair = t.pair().await;
    let mut open = vec![];
    for _ in 0..STREAMS {
        open.push(pair.stream().await);
    }
    for (mut ours, mut theirs) in open {
        send(theirs.send.as_mut(), &b"hello"[..])
            .await
            .expect("a reader");
        theirs.send.finish();
        assert_eq!(soon(drain(ours.recv.as_mut())).await.expect("an end"), 5);
    }
}

/// Small messages pass a connection full of bulk data: plans and metrics must not wait for partitions (quinn#2002). How fast is for
/// benchmarks; here a hundred exchanges take moments while bulk flows without end.
pub async fn control_passes_bulk(t: Conn) {
    let pair = t.pair().await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (mut ours, theirs) = pair.stream().await;
        flood(theirs, &mut tasks);
        let progress = pair.progress.clone();
        tasks.spawn(async move {
            while let Ok(Some(_)) = read(ours.recv.as_mut(), 1 << 20).await {
                progress.made();
                tokio::task::yield_now().await;
            }
        });
    }
    let mut ours = soon(pair.client.open(StreamClass::Control))
        .await
        .expect("a stream");
    send(ours.send.as_mut(), &b"?"[..]).await.expect("a reader");
    let mut theirs = soon(pair.server.accept()).await.expect("a stream");
    theirs.send.set_class(StreamClass::Control);
    tasks.spawn(async move {
        while let Ok(Some(asked)) = read(theirs.recv.as_mut(), 1).await {
            send(theirs.send.as_mut(), asked).await.expect("a reader");
        }
    });
    for _ in 0..100 {
        let answer = soon(read(ours.recv.as_mut(), 1)).await.expect("a byte");
        assert_eq!(answer.as_deref(), Some(&b"?"[..]));
        send(ours.send.as_mut(), &b"?"[..]).await.expect("a reader");
    }
}
