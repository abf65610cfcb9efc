//! Peers that fall silent.

use super::*;
use crate::silence::Suspendable;
use std::time::{Duration, Instant};

type Conn = Trial<dyn ConnectionHarness>;

/// A lost peer must be noticed within 10 s, and that by a busy machine.
pub(crate) const NOTICED: Duration = Duration::from_secs(15);

/// A coordinator channel is mostly silent for as long as its query runs (the engine keeps it open to the end).
pub async fn an_idle_connection_lives_on(t: Conn) {
    let pair = t.pair().await;
    let (mut ours, mut theirs) = pair.stream().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(pair.client.close_reason().is_none());
    send(theirs.send.as_mut(), &b"still here"[..])
        .await
        .expect("a reader");
    theirs.send.finish();
    assert_eq!(soon(drain(ours.recv.as_mut())).await.expect("an end"), 10);
}

/// A peer that says nothing any more, and closes nothing either, is lost (materialize#20299, linkerd2#13023: unnoticed for 15 minutes).
pub async fn a_silent_peer_is_lost_while_idle(t: Conn) {
    let io = Suspendable::start();
    let pair = t.pair_on(io.runtime()).await;
    let (mut ours, _theirs) = pair.stream().await;
    let _suspended = io.suspend();
    let start = Instant::now();
    let outcome = within("the loss is noticed", NOTICED, drain(ours.recv.as_mut())).await;
    assert!(
        matches!(outcome, Err(StreamError::Connection(_))),
        "{outcome:?}"
    );
    assert!(pair.client.close_reason().is_some());
    assert!(start.elapsed() < NOTICED);
}

/// Likewise while a write waits for it (linkerd2#13023).
pub async fn a_silent_peer_is_lost_in_the_middle_of_a_write(t: Conn) {
    let io = Suspendable::start();
    let pair = t.pair_on(io.runtime()).await;
    let (mut ours, _theirs) = pair.stream().await;
    let _suspended = io.suspend();
    let writing = send_endlessly(ours.send.as_mut());
    let err = within("the loss is noticed", NOTICED, writing).await;
    assert!(matches!(err, StreamError::Connection(_)), "{err}");
}
