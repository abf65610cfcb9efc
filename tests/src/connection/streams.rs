//! What a stream carries.

use super::*;
use std::time::Duration;
use tokio::task::JoinSet;

type Conn = Trial<dyn ConnectionHarness>;

/// Chunks of any size, empty ones and ones larger than any window among them, arrive as one sequence of bytes, both ways. Batches are
/// written as many chunks of one frame.
pub async fn bytes_arrive_whole_and_in_order(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    let whole = pattern(1, 6_000_000);
    let cuts = [
        0..0,
        0..1,
        1..1,
        1..70_000,
        70_000..70_001,
        70_001..6_000_000,
    ];
    let mut chunks: VecDeque<Bytes> = cuts.map(|range| whole.slice(range)).into();
    let echo = tokio::spawn(async move {
        while let Some(chunk) = read(theirs.recv.as_mut(), 1 << 20).await.expect("bytes") {
            send(theirs.send.as_mut(), chunk).await.expect("a reader");
        }
        theirs.send.finish();
        theirs
    });
    let writing = tokio::spawn(async move {
        write(ours.send.as_mut(), &mut chunks)
            .await
            .expect("a reader");
        assert!(chunks.is_empty(), "what was taken stays in the queue");
        ours.send.finish();
        ours.send
    });
    let got = soon(read_all(ours.recv.as_mut(), 10_000))
        .await
        .expect("an end");
    assert!(got == whole, "other bytes arrived");
    soon(writing).await.expect("no panic");
    soon(echo).await.expect("no panic");
}

/// A reader that asks for little gets little: the layer above places bytes itself.
pub async fn a_read_gives_no_more_than_was_asked_for(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    let sent = pattern(2, 5000);
    send(theirs.send.as_mut(), sent.clone())
        .await
        .expect("a reader");
    theirs.send.finish();
    for at_once in [1, 2, 3, 700] {
        let chunk = soon(read(ours.recv.as_mut(), at_once))
            .await
            .expect("bytes");
        let chunk = chunk.expect("not the end");
        assert!(
            (1..=at_once).contains(&chunk.len()),
            "{} bytes",
            chunk.len()
        );
    }
    soon(read_all(ours.recv.as_mut(), 999))
        .await
        .expect("an end");
}

/// An empty stream is a stream that ends.
pub async fn a_stream_without_bytes_ends_cleanly(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    theirs.send.finish();
    assert_eq!(soon(drain(ours.recv.as_mut())).await.expect("an end"), 0);
}

/// Finishing twice does nothing, and whoever reads on after the end sees the end.
pub async fn the_clean_end_is_told_again(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    send(theirs.send.as_mut(), &b"all"[..])
        .await
        .expect("a reader");
    theirs.send.finish();
    theirs.send.finish();
    assert_eq!(soon(drain(ours.recv.as_mut())).await.expect("an end"), 3);
    for _ in 0..3 {
        let more = soon(read(ours.recv.as_mut(), 9)).await;
        assert!(matches!(more, Ok(None)), "{more:?}");
    }
}

/// A direction that ended leaves the other one: a partition's request ends long before its data.
pub async fn the_directions_are_independent(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    ours.send.finish();
    assert_eq!(soon(drain(theirs.recv.as_mut())).await.expect("an end"), 0);
    send(theirs.send.as_mut(), pattern(3, 100_000))
        .await
        .expect("a reader");
    theirs.send.finish();
    assert_eq!(
        soon(drain(ours.recv.as_mut())).await.expect("an end"),
        100_000
    );
}

/// Streams of both classes at once never mix their bytes.
pub async fn many_streams_carry_their_own_bytes(t: Conn) {
    const STREAMS: usize = 50;
    let pair = t.pair().await;
    let mut tasks = JoinSet::new();
    for number in 0..STREAMS {
        let (mut ours, mut theirs) = pair.stream().await;
        if number % 2 == 0 {
            theirs.send.set_class(StreamClass::Control);
        }
        let bytes = 1000 + number * 997;
        tasks.spawn(async move {
            let sent = pattern(number, bytes);
            for chunk in sent.chunks(4096) {
                send(theirs.send.as_mut(), chunk.to_vec())
                    .await
                    .expect("a reader");
            }
            theirs.send.finish();
            // Kept until the reader is through.
            let _ = read(theirs.recv.as_mut(), 1).await;
        });
        tasks.spawn(async move {
            let got = read_all(ours.recv.as_mut(), 8192).await.expect("an end");
            assert!(got == pattern(number, bytes), "bytes of another stream");
        });
    }
    while let Some(done) = soon(tasks.join_next()).await {
        done.expect("no panic");
    }
}

/// A worker learns only from the request how urgent a stream is.
pub async fn changing_the_class_loses_nothing(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    let sent = pattern(4, 3_000_000);
    let writing = tokio::spawn({
        let sent = sent.clone();
        async move {
            for (i, chunk) in sent.chunks(100_000).enumerate() {
                let class = [StreamClass::Control, StreamClass::Bulk][i % 2];
                theirs.send.set_class(class);
                send(theirs.send.as_mut(), chunk.to_vec())
                    .await
                    .expect("a reader");
            }
            theirs.send.finish();
            theirs
        }
    });
    let got = soon(read_all(ours.recv.as_mut(), 1 << 20))
        .await
        .expect("an end");
    assert!(got == sent, "other bytes arrived");
    soon(writing).await.expect("no panic");
}

/// A dropped write has taken what it took, and the rest is still in the queue: the layer above drops writes when a reader's
/// message comes first.
pub async fn an_interrupted_write_goes_on_where_it_was(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    let sent = pattern(5, 20_000_000);
    let mut chunks: VecDeque<Bytes> = sent.chunks(1 << 18).map(Bytes::copy_from_slice).collect();
    let writing = tokio::spawn(async move {
        while !chunks.is_empty() {
            let write = write(theirs.send.as_mut(), &mut chunks);
            let _ = tokio::time::timeout(Duration::from_millis(1), write).await;
        }
        theirs.send.finish();
        theirs
    });
    let got = soon(read_all(ours.recv.as_mut(), 1 << 16))
        .await
        .expect("an end");
    assert!(got == sent, "other bytes arrived");
    soon(writing).await.expect("no panic");
}

/// A dropped read has taken nothing.
pub async fn an_interrupted_read_loses_nothing(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    let writing = tokio::spawn(async move {
        for number in 0..50_u8 {
            send(theirs.send.as_mut(), vec![number])
                .await
                .expect("a reader");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        theirs.send.finish();
        theirs
    });
    let mut got = vec![];
    let all = async {
        loop {
            let read = read(ours.recv.as_mut(), 1);
            match tokio::time::timeout(Duration::from_micros(300), read).await {
                Ok(chunk) => match chunk.expect("bytes") {
                    Some(chunk) => got.extend_from_slice(&chunk),
                    None => break,
                },
                Err(_) => continue,
            }
        }
    };
    soon(all).await;
    assert!(got.into_iter().eq(0..50), "other bytes arrived");
    soon(writing).await.expect("no panic");
}

/// A call may be given up between opening a stream and writing to it.
pub async fn a_stream_that_was_never_written_harms_nobody(t: Conn) {
    let pair = t.pair().await;
    for _ in 0..20 {
        drop(
            soon(pair.client.open(StreamClass::Bulk))
                .await
                .expect("a stream"),
        );
    }
    let mut ours = soon(pair.client.open(StreamClass::Bulk))
        .await
        .expect("a stream");
    send(ours.send.as_mut(), &b"here"[..])
        .await
        .expect("a reader");
    ours.send.finish();
    // Whether the peer sees the others is the transport's affair; they must not end cleanly with bytes.
    loop {
        let mut theirs = soon(pair.server.accept()).await.expect("a stream");
        match soon(read_all(theirs.recv.as_mut(), 9)).await {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => return assert_eq!(bytes, b"here"),
            Err(StreamError::Reset(_)) => {}
            Err(err) => panic!("{err}"),
        }
    }
}
