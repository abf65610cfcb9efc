//! How a stream ends: cleanly only where its sender said so.

use super::*;
use datafusion_transport_core::connection::StreamCode;
use std::time::Duration;

type Conn = Trial<dyn ConnectionHarness>;

fn reset_code(outcome: Result<usize, StreamError>) -> StreamCode {
    match outcome {
        Err(StreamError::Reset(code)) => code,
        other => panic!("expected a reset, got {other:?}"),
    }
}

fn stop_code(err: StreamError) -> StreamCode {
    match err {
        StreamError::Stopped(code) => code,
        other => panic!("expected a stop, got {other:?}"),
    }
}

/// A sender that goes away without finishing has not finished. Where dropping means finishing, an aborted worker task looks like the
/// end of its data (quinn#2411, irpc#27).
pub async fn a_dropped_sender_is_no_clean_end(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    send(theirs.send.as_mut(), &b"part of a message"[..])
        .await
        .expect("a reader");
    drop(theirs.send);
    for _ in 0..2 {
        // Whoever reads on sees the same.
        let code = reset_code(soon(drain(ours.recv.as_mut())).await);
        assert_eq!(code, StreamCode::ABANDONED);
    }
}

/// Likewise wherever it was: before the first byte, between messages, in the middle of a large one (quinn#2411).
pub async fn a_sender_dropped_at_any_point_is_no_clean_end(t: Conn) {
    let pair = t.pair().await;
    for messages in [0, 1, 2, 5, 40] {
        let (mut ours, mut theirs) = pair.stream().await;
        for _ in 0..messages {
            send(theirs.send.as_mut(), vec![0; 3000])
                .await
                .expect("a reader");
        }
        drop(theirs.send);
        let code = reset_code(soon(drain(ours.recv.as_mut())).await);
        assert_eq!(code, StreamCode::ABANDONED, "after {messages} messages");
    }
}

/// Codes tell a cancelled call from a refused one.
pub async fn a_reset_carries_its_code(t: Conn) {
    let pair = t.pair().await;
    for code in [0, 1, 4, 77, 65_535] {
        let (mut ours, mut theirs) = pair.stream().await;
        theirs.send.reset(StreamCode(code));
        let got = reset_code(soon(drain(ours.recv.as_mut())).await);
        assert_eq!(got, StreamCode(code));
    }
}

/// A reset after finish may come too late, when all has arrived. What it must not do is cut the rest and let the end look clean.
pub async fn a_reset_after_finish_never_shortens_in_silence(t: Conn) {
    let pair = t.pair().await;
    for _ in 0..20 {
        let (mut ours, mut theirs) = pair.stream().await;
        let mut chunks = VecDeque::from([Bytes::from(vec![0; 32 << 20])]);
        let writing = write(theirs.send.as_mut(), &mut chunks);
        let _ = tokio::time::timeout(Duration::from_millis(5), writing).await;
        let taken = (32 << 20) - chunks.iter().map(Bytes::len).sum::<usize>();
        theirs.send.finish();
        theirs.send.reset(StreamCode(9));
        match soon(drain(ours.recv.as_mut())).await {
            Ok(bytes) => assert_eq!(bytes, taken),
            Err(StreamError::Reset(code)) => assert_eq!(code, StreamCode(9)),
            Err(err) => panic!("{err}"),
        }
    }
}

/// An error and no panic: the layer above may learn of an end later than the stream.
pub async fn writing_after_the_end_is_an_error(t: Conn) {
    let pair = t.pair().await;
    for reset in [false, true] {
        let (_ours, mut theirs) = pair.stream().await;
        match reset {
            true => theirs.send.reset(StreamCode::CANCELLED),
            false => theirs.send.finish(),
        }
        let err = soon(send(theirs.send.as_mut(), &b"x"[..])).await;
        assert!(matches!(err, Err(StreamError::Stopped(_))), "{err:?}");
    }
}

/// A reader that goes away stops its writer: a partition that was dropped must cost nothing more (dfd#482).
pub async fn a_dropped_receiver_stops_the_writer(t: Conn) {
    let pair = t.pair().await;
    let (ours, mut theirs) = pair.stream().await;
    drop(ours.recv);
    let err = soon(send_endlessly(theirs.send.as_mut())).await;
    assert_eq!(stop_code(err), StreamCode::CANCELLED);
}

/// A reader says why it reads no further.
pub async fn a_stop_carries_its_code(t: Conn) {
    let pair = t.pair().await;
    for code in [0, 3, 77, 65_535] {
        let (mut ours, mut theirs) = pair.stream().await;
        ours.recv.stop(StreamCode(code));
        let err = soon(send_endlessly(theirs.send.as_mut())).await;
        assert_eq!(stop_code(err), StreamCode(code));
    }
}

/// The stop meets the writer wherever it is: running, waiting for the stream's window, waiting for the connection (dfd#473).
pub async fn a_stop_reaches_a_writer_in_every_state(t: Conn) {
    let pair = t.pair().await;
    for round in 0..100 {
        let (ours, mut theirs) = pair.stream().await;
        let writing = tokio::spawn(async move { send_endlessly(theirs.send.as_mut()).await });
        for _ in 0..round % 16 {
            tokio::task::yield_now().await;
        }
        drop(ours.recv);
        let err = soon(writing).await.expect("no panic");
        assert_eq!(stop_code(err), StreamCode::CANCELLED);
        pair.progress.made();
    }
}

/// Later reads yield whatever, but no clean end: it would make a part look whole.
pub async fn a_stopped_stream_never_ends_cleanly(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    ours.recv.stop(StreamCode::PROTOCOL);
    ours.recv.stop(StreamCode::CANCELLED);
    let err = soon(send_endlessly(theirs.send.as_mut())).await;
    assert_eq!(stop_code(err), StreamCode::PROTOCOL);
    drop(theirs);
    let after = tokio::time::timeout(Duration::from_millis(200), drain(ours.recv.as_mut())).await;
    assert!(!matches!(after, Ok(Ok(_))), "{after:?}");
}

/// Stopping one direction leaves the other: a worker reads on after its data was refused.
pub async fn a_stop_leaves_the_other_direction(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    ours.recv.stop(StreamCode::CANCELLED);
    let err = soon(send_endlessly(theirs.send.as_mut())).await;
    assert_eq!(stop_code(err), StreamCode::CANCELLED);
    send(ours.send.as_mut(), &b"still here"[..])
        .await
        .expect("a reader");
    ours.send.finish();
    assert_eq!(soon(drain(theirs.recv.as_mut())).await.expect("an end"), 10);
}
