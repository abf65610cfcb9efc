//! The two halves of a stream, as the state machine keeps them.

use crate::mux::frame::Violation;
use bytes::{Bytes, BytesMut};
use datafusion_transport_core::connection::{StreamClass, StreamCode};
use std::collections::VecDeque;
use std::task::Waker;

/// Payloads below this are copied together on arrival: a small message must not keep a large network buffer alive,
/// and many tiny frames must not cost more memory than the window says.
pub(crate) const COPY_BELOW_BYTES: usize = 4 * 1024;

/// A stream. Lives until both directions have ended on the wire and both handles are dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    /// Opened by the peer.
    pub(crate) remote: bool,
    /// The peer knows of it.
    pub(crate) announced: bool,
    /// Waits in the urgent lane.
    pub(crate) urgent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// May be written.
    Open,
    /// Ends cleanly once the queue is sent.
    Finishing,
    /// A reset is to be sent.
    Resetting(StreamCode),
    /// Finish was sent; a reset may still cut what has not been read.
    Finished,
    /// Nothing more will be sent.
    Ended,
}

#[derive(Debug)]
pub(crate) struct SendHalf {
    /// What was taken from the writer; every byte of it is covered by credit that is spent already.
    pub(crate) queue: VecDeque<Piece>,
    pub(crate) queued_bytes: usize,
    /// Bytes that may still be taken.
    pub(crate) credit: u64,
    pub(crate) phase: Phase,
    pub(crate) class: StreamClass,
    /// The lane it waits in.
    pub(crate) lane: Option<StreamClass>,
    /// The peer reads no further.
    pub(crate) stopped: Option<StreamCode>,
    pub(crate) waker: Option<Waker>,
    pub(crate) waits_for_budget: bool,
    pub(crate) dropped: bool,
}

/// Bytes to send, and whether a write began with them: a write that fits stays together in one frame.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    pub(crate) begins_write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Reset(StreamCode),
}

#[derive(Debug)]
pub(crate) struct RecvHalf {
    chunks: VecDeque<Bytes>,
    /// The youngest bytes, while they are small.
    tail: BytesMut,
    /// Bytes in `chunks` and `tail`.
    pub(crate) unread_bytes: u64,
    /// Bytes that the peer may still send.
    pub(crate) allowed_bytes: u64,
    /// Bytes that were read and not yet granted again.
    pub(crate) ungranted_bytes: u64,
    pub(crate) grant_due: bool,
    /// The peer's end, as it arrived.
    pub(crate) end: Option<End>,
    /// This side reads no further.
    pub(crate) stopped: Option<StreamCode>,
    pub(crate) stop_due: bool,
    pub(crate) waker: Option<Waker>,
    pub(crate) dropped: bool,
}

impl Stream {
    pub(crate) fn new(class: StreamClass, remote: bool, credit: u32, window: u32) -> Self {
        Self {
            send: SendHalf {
                queue: VecDeque::new(),
                queued_bytes: 0,
                credit: credit.into(),
                phase: Phase::Open,
                class,
                lane: None,
                stopped: None,
                waker: None,
                waits_for_budget: false,
                dropped: false,
            },
            recv: RecvHalf {
                chunks: VecDeque::new(),
                tail: BytesMut::new(),
                unread_bytes: 0,
                allowed_bytes: window.into(),
                ungranted_bytes: 0,
                grant_due: false,
                end: None,
                stopped: None,
                stop_due: false,
                waker: None,
                dropped: false,
            },
            remote,
            announced: remote,
            urgent: false,
        }
    }

    /// Nobody will ask for it again, on either side.
    pub(crate) fn is_over(&self) -> bool {
        let sent = matches!(self.send.phase, Phase::Finished | Phase::Ended);
        let ended = sent && self.recv.end.is_some();
        ended && self.send.dropped && self.recv.dropped
    }

    /// Nobody uses it here, and nothing of it waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.send.dropped && self.recv.dropped && !self.send.has_work()
    }
}

impl SendHalf {
    /// Forgets what is not sent yet. Returns how many bytes that were.
    pub(crate) fn discard(&mut self) -> usize {
        self.queue = VecDeque::new();
        std::mem::take(&mut self.queued_bytes)
    }

    /// Has something for a data lane: bytes, or a clean end.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.phase == Phase::Finishing
    }
}

impl RecvHalf {
    /// Takes a payload from the peer.
    pub(crate) fn push(&mut self, payload: Bytes) -> Result<(), Violation> {
        let bytes = payload.len() as u64;
        if self.end.is_some() {
            return Err(Violation::new("T-11", "Data after the stream's end"));
        }
        let Some(left) = self.allowed_bytes.checked_sub(bytes) else {
            let detail = format!(
                "{bytes} bytes of data where the stream's window has room for {}",
                self.allowed_bytes
            );
            return Err(Violation::new("T-12", detail));
        };
        self.allowed_bytes = left;
        if self.stopped.is_some() {
            return Ok(());
        }
        self.unread_bytes += bytes;
        if payload.len() < COPY_BELOW_BYTES {
            self.tail.extend_from_slice(&payload);
            if self.tail.len() >= COPY_BELOW_BYTES {
                self.seal_tail();
            }
        } else {
            self.seal_tail();
            self.chunks.push_back(payload);
        }
        Ok(())
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks
                .push_back(std::mem::take(&mut self.tail).freeze());
        }
    }

    /// The oldest bytes, at most `max_bytes`.
    pub(crate) fn pop(&mut self, max_bytes: usize) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.seal_tail();
        }
        let mut chunk = self.chunks.pop_front()?;
        if chunk.len() > max_bytes {
            let rest = chunk.split_off(max_bytes);
            self.chunks.push_front(rest);
        }
        self.unread_bytes = self.unread_bytes.saturating_sub(chunk.len() as u64);
        self.ungranted_bytes += chunk.len() as u64;
        Some(chunk)
    }

    /// Forgets what is not read yet.
    pub(crate) fn discard(&mut self) {
        self.chunks = VecDeque::new();
        self.tail = BytesMut::new();
        self.unread_bytes = 0;
    }

    /// Whether reading has made so much room that the peer should know.
    pub(crate) fn wants_grant(&self, window: u32) -> bool {
        let open = self.end.is_none() && self.stopped.is_none();
        open && self.ungranted_bytes >= u64::from(window).div_ceil(2)
    }
}
