//! The two halves of a stream, as the state machine keeps them.

use crate::mux::frame::Violation;
use crate::mux::state::Limits;
use bytes::{Bytes, BytesMut};
use datafusion_transport_core::connection::{StreamClass, StreamCode};
use std::collections::VecDeque;
use std::task::Waker;

/// Payloads below this are copied together on arrival: many tiny frames must not cost more memory than the window says,
/// nor keep the buffer alive that they were read into. Larger ones have allocations of their own.
pub(crate) const COPY_BELOW_BYTES: usize = 4 * 1024;

/// A queue that was drained keeps room for this many pieces: what a usual message needs.
const IDLE_CHUNKS: usize = 8;

/// A stream. Lives until both directions have ended on the wire and both handles are dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    /// Opened by the peer.
    pub(crate) remote: bool,
    /// This side's user has taken it up.
    pub(crate) accepted: bool,
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
    /// T-25: how many of the next bytes to be taken are early.
    pub(crate) early_left: u32,
    /// How many of the queue's first bytes are early.
    pub(crate) early_queued: u32,
    pub(crate) phase: Phase,
    pub(crate) class: StreamClass,
    /// The lane it waits in.
    pub(crate) lane: Option<StreamClass>,
    /// The peer reads no further.
    pub(crate) stopped: Option<StreamCode>,
    pub(crate) waker: Option<Waker>,
    pub(crate) waits_for_budget: bool,
    pub(crate) waits_for_early: bool,
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
    pub(super) chunks: VecDeque<Bytes>,
    /// The youngest bytes, while they are small.
    pub(super) tail: BytesMut,
    /// Bytes in `chunks` and `tail`.
    pub(crate) unread_bytes: u64,
    /// Bytes that the peer may still send.
    pub(crate) allowed_bytes: u64,
    /// The window as it is: small for a stream that the peer opened, until it is read (T-13).
    pub(crate) window_bytes: u32,
    /// T-25: how many of the next bytes to arrive are early.
    pub(crate) early_left: u32,
    /// Early bytes that count against the limit of the connection.
    pub(crate) early_held: u32,
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
    /// One that this side opens.
    pub(crate) fn local(class: StreamClass, ours: &Limits, theirs: &Limits) -> Self {
        let early = theirs.early_window();
        let mut stream = Self::new(class, early, ours.stream_window_bytes);
        stream.send.early_left = early;
        stream.accepted = true;
        stream
    }

    /// One that the peer opened.
    pub(crate) fn remote(ours: &Limits, theirs: &Limits) -> Self {
        let early = ours.early_window();
        let mut stream = Self::new(StreamClass::Bulk, theirs.stream_window_bytes, early);
        stream.recv.early_left = early;
        stream.remote = true;
        stream.announced = true;
        stream
    }

    fn new(class: StreamClass, credit: u32, window: u32) -> Self {
        Self {
            send: SendHalf {
                queue: VecDeque::new(),
                queued_bytes: 0,
                credit: credit.into(),
                early_left: 0,
                early_queued: 0,
                phase: Phase::Open,
                class,
                lane: None,
                stopped: None,
                waker: None,
                waits_for_budget: false,
                waits_for_early: false,
                dropped: false,
            },
            recv: RecvHalf {
                chunks: VecDeque::new(),
                tail: BytesMut::new(),
                unread_bytes: 0,
                allowed_bytes: window.into(),
                window_bytes: window,
                early_left: 0,
                early_held: 0,
                grant_due: false,
                end: None,
                stopped: None,
                stop_due: false,
                waker: None,
                dropped: false,
            },
            remote: false,
            accepted: false,
            announced: false,
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

    /// Takes `bytes` off the front of the queue's account. The caller takes them off the queue.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        let early = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.early_queued = self.early_queued.saturating_sub(early);
        if self.queue.is_empty() && self.queue.capacity() > IDLE_CHUNKS {
            self.queue = VecDeque::new();
        }
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
        if self.chunks.is_empty() && self.chunks.capacity() > IDLE_CHUNKS {
            self.chunks = VecDeque::new();
        }
        Some(chunk)
    }

    /// Forgets what is not read yet.
    pub(crate) fn discard(&mut self) {
        self.chunks = VecDeque::new();
        self.tail = BytesMut::new();
        self.unread_bytes = 0;
    }

    /// Whether reading has made so much room that the peer should know.
    pub(crate) fn wants_grant(&self) -> bool {
        let open = self.end.is_none() && self.stopped.is_none();
        let half = u64::from(self.window_bytes).div_ceil(2);
        open && self.ungranted_bytes() >= half
    }

    /// Bytes that were read and not yet granted again.
    pub(crate) fn ungranted_bytes(&self) -> u64 {
        u64::from(self.window_bytes).saturating_sub(self.allowed_bytes + self.unread_bytes)
    }

    /// Grants what brings the sender to a window of `window_bytes`. Returns how much that is.
    pub(crate) fn grant(&mut self, window_bytes: u32) -> u32 {
        self.window_bytes = window_bytes;
        let bytes = self.ungranted_bytes();
        self.allowed_bytes += bytes;
        u32::try_from(bytes).unwrap_or(window_bytes)
    }
}
