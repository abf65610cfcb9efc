//! What the user of a stream's sending half asks of [`State`].

use crate::mux::state::{State, Wakes, WriteError};
use crate::mux::stream::{Phase, Piece};
use bytes::Bytes;
use datafusion_transport_core::connection::{StreamClass, StreamCode};
use std::collections::VecDeque;
use std::task::{Context, Poll};

impl State {
    /// Takes `chunks` as far as the stream's credit and, for bulk streams, the send buffer have room.
    pub(crate) fn poll_write(
        &mut self,
        id: u64,
        cx: &mut Context<'_>,
        chunks: &mut VecDeque<Bytes>,
        wakes: &mut Wakes,
    ) -> Poll<Result<(), WriteError>> {
        let limit = self.ours.send_buffer_bytes;
        let closed = self.closed;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(WriteError::Closed));
        };
        let send = &mut stream.send;
        if let Some(code) = send.stopped {
            return Poll::Ready(Err(WriteError::Stopped(code)));
        }
        if closed {
            return Poll::Ready(Err(WriteError::Closed));
        }
        if send.phase != Phase::Open {
            return Poll::Ready(Err(WriteError::Stopped(StreamCode::ABANDONED)));
        }
        let room = match send.class {
            StreamClass::Control => usize::MAX,
            // Not less than a frame: a message that is cut here arrives in pieces, which have to be copied together.
            StreamClass::Bulk if self.queued_bytes < limit => {
                (limit - self.queued_bytes).max(self.ours.max_frame_bytes as usize)
            }
            StreamClass::Bulk => 0,
        };
        let credit = usize::try_from(send.credit).unwrap_or(usize::MAX);
        let room = room.min(credit).min(self.early.room(send));
        let taken = take(chunks, room, &mut send.queue);
        send.credit = send.credit.saturating_sub(taken as u64);
        send.queued_bytes += taken;
        self.queued_bytes += taken;
        self.early.spend(taken, send);
        let done = chunks.is_empty();
        if !done {
            send.waker = Some(cx.waker().clone());
            if send.credit == 0 {
                // A grant wakes it.
            } else if self.early.room(send) == 0 {
                self.early.wait(id, send);
            } else if !send.waits_for_budget {
                send.waits_for_budget = true;
                self.budget_waiters.push_back(id);
            }
        }
        if taken > 0 {
            self.enter_lane(id, wakes);
        }
        if done {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Ends the stream cleanly.
    pub(crate) fn finish(&mut self, id: u64, wakes: &mut Wakes) {
        if self.closed {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.send.phase == Phase::Open
        {
            stream.send.phase = Phase::Finishing;
            self.enter_lane(id, wakes);
        }
    }

    /// Cuts the stream, also after `finish`: what has not been read by then is lost.
    pub(crate) fn reset(&mut self, id: u64, code: StreamCode, wakes: &mut Wakes) {
        let closed = self.closed;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if closed || matches!(stream.send.phase, Phase::Resetting(_) | Phase::Ended) {
            return;
        }
        if !stream.announced {
            return self.withdraw(id, code, wakes);
        }
        stream.send.phase = Phase::Resetting(code);
        self.discard_unsent(id, wakes);
        self.enter_urgent(id, wakes);
    }

    /// Forgets what of a stream is not sent yet, and lets others have the room.
    pub(super) fn discard_unsent(&mut self, id: u64, wakes: &mut Wakes) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let discarded = stream.send.discard();
        if self.early.unspend(&mut stream.send) {
            self.wake_early_waiters(wakes);
        }
        self.freed(discarded, wakes);
    }

    /// Changes the urgency of the stream, also of what is queued.
    pub(crate) fn set_class(&mut self, id: u64, class: StreamClass, wakes: &mut Wakes) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.send.class = class;
        // A control stream need not wait for the send buffer.
        wakes.add(&mut stream.send.waker);
        if let Some(lane) = stream.send.lane.take_if(|lane| *lane != class) {
            self.lane(lane).retain(|other| *other != id);
            self.enter_lane(id, wakes);
        }
    }

    /// The handle is gone.
    pub(crate) fn drop_send(&mut self, id: u64, wakes: &mut Wakes) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.send.phase == Phase::Open
        {
            self.reset(id, StreamCode::ABANDONED, wakes);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.send.dropped = true;
        stream.send.waker = None;
        self.settle(id, wakes);
    }

    /// Puts a stream with bytes or an end to send in line.
    pub(super) fn enter_lane(&mut self, id: u64, wakes: &mut Wakes) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.send.lane.is_some() || !stream.send.has_work() {
            return;
        }
        let class = stream.send.class;
        stream.send.lane = Some(class);
        self.lane(class).push_back(id);
        wakes.add(&mut self.writer);
    }

    pub(super) fn lane(&mut self, class: StreamClass) -> &mut VecDeque<u64> {
        match class {
            StreamClass::Control => &mut self.control,
            StreamClass::Bulk => &mut self.bulk,
        }
    }

    /// Puts a stream with a grant, stop or reset to send in line.
    pub(super) fn enter_urgent(&mut self, id: u64, wakes: &mut Wakes) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.announced
            && !stream.urgent
        {
            stream.urgent = true;
            self.urgent.push_back(id);
            wakes.add(&mut self.writer);
        }
    }

    /// Bytes left the queues: lets writers go on that wait for it. When nothing is queued all of them are woken, so that
    /// one that was woken and does not write can't hold up the others for ever.
    pub(super) fn freed(&mut self, bytes: usize, wakes: &mut Wakes) {
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        let mut turns = match self.queued_bytes {
            0 => usize::MAX,
            _ if bytes == 0 => 0,
            _ => bytes / BYTES_PER_TURN + 1,
        };
        while turns > 0 {
            let Some(id) = self.budget_waiters.pop_front() else {
                return;
            };
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send.waits_for_budget = false;
                turns -= usize::from(stream.send.waker.is_some());
                wakes.add(&mut stream.send.waker);
            }
        }
    }
}

/// One waiting writer is woken for each of these that left the queues.
const BYTES_PER_TURN: usize = 64 * 1024;

/// Moves up to `room` bytes; empty chunks are dropped. Returns how many.
fn take(chunks: &mut VecDeque<Bytes>, room: usize, queue: &mut VecDeque<Piece>) -> usize {
    let mut taken = 0;
    while let Some(chunk) = chunks.front_mut() {
        let fits = chunk.len().min(room - taken);
        if fits == 0 && !chunk.is_empty() {
            break;
        }
        let whole = fits == chunk.len();
        let bytes = chunk.split_to(fits);
        if whole {
            chunks.pop_front();
        }
        if !bytes.is_empty() {
            queue.push_back(Piece {
                bytes,
                begins_write: taken == 0,
            });
        }
        taken += fits;
    }
    taken
}
