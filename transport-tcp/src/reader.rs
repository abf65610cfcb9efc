//! The reader task: from the socket to the streams. It waits for the socket and for nothing else.

use crate::link::Link;
use crate::mux::{Assembler, Event, State, Violation, Wakes};
use crate::socket::{BoxRead, failure};
use datafusion_transport_core::error::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncReadExt;

/// What a batch of frames meant for the connection.
enum Outcome {
    GoOn,
    Pong(u64),
    GoAway(String),
    Violation(Violation),
}

/// Reads until the peer's end, and on past this side's close, so that the peer gets to read the reason.
pub(crate) async fn run(link: Arc<Link>, mut socket: BoxRead, max_frame_bytes: u32) {
    let mut assembler = Assembler::new(max_frame_bytes);
    while !link.is_closed() {
        let read = socket.read_buf(&mut assembler.space()).await;
        match read {
            Ok(0) => {
                let detail =
                    "the peer ended the connection without a reason: it was probably killed";
                return link.fail(ErrorKind::ConnectionLost, detail, None);
            }
            Ok(bytes) => {
                let received = &link.traffic.received;
                received.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(err) => return link.fail(ErrorKind::ConnectionLost, failure(&err), None),
        }
        loop {
            match link.with(|state, wakes| take_frames(&mut assembler, state, wakes)) {
                Outcome::GoOn => break,
                Outcome::Pong(nonce) => link.traffic.pong(nonce),
                Outcome::GoAway(reason) => return link.fail(ErrorKind::Closed, reason, None),
                Outcome::Violation(violation) => {
                    let told = format!("protocol violation: {violation}");
                    link.fail(ErrorKind::Protocol, violation.to_string(), Some(&told));
                    break;
                }
            }
        }
    }
    let mut ignored = vec![0; 64 << 10];
    while matches!(socket.read(&mut ignored).await, Ok(1..)) {}
}

fn take_frames(assembler: &mut Assembler, state: &mut State, wakes: &mut Wakes) -> Outcome {
    loop {
        let event = match assembler.next_frame() {
            Ok(None) => return Outcome::GoOn,
            Ok(Some(frame)) => state.on_frame(frame, wakes),
            Err(violation) => Err(violation),
        };
        match event {
            Ok(Event::None) => {}
            Ok(Event::Pong(nonce)) => return Outcome::Pong(nonce),
            Ok(Event::GoAway(reason)) => {
                let reason = String::from_utf8_lossy(&reason).into_owned();
                let unsaid = "no reason given".to_owned();
                return Outcome::GoAway(if reason.is_empty() { unsaid } else { reason });
            }
            Err(violation) => return Outcome::Violation(violation),
        }
    }
}
