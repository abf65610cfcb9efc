//! [`Early`]: the bytes that a stream's opener sends before the other side has read any (T-25).
//!
//! A side must take what it is sent on streams that its user has not accepted yet. This account bounds the sum: both
//! sides count the early bytes of all streams since the connection began, and the receiver raises the limit by what
//! is no longer its own to hold.

use crate::mux::frame::Violation;
use crate::mux::state::{Limits, State, Wakes};
use crate::mux::stream::SendHalf;
use std::collections::VecDeque;

/// Early bytes of all streams, both ways.
#[derive(Debug)]
pub(crate) struct Early {
    /// What the peer allows in all.
    pub(super) allowed: u64,
    /// What was taken from writers, less what was discarded unsent.
    pub(super) spent: u64,
    /// Streams whose writer waits for more.
    pub(super) waiters: VecDeque<u64>,
    /// What the peer was told that it may send in all.
    pub(super) told: u64,
    pub(super) arrived: u64,
    /// What arrived and waits for no accept any more.
    pub(super) released: u64,
    pub(super) due: bool,
    limit: u64,
}

impl Early {
    pub(super) fn new(ours: &Limits, theirs: &Limits) -> Self {
        let limit = u64::from(ours.early_limit_bytes);
        Self {
            allowed: theirs.early_limit_bytes.into(),
            spent: 0,
            waiters: VecDeque::new(),
            told: limit,
            arrived: 0,
            released: 0,
            due: false,
            limit,
        }
    }

    /// How much of a stream may be taken from its writer, as far as this is concerned.
    pub(super) fn room(&self, send: &SendHalf) -> usize {
        let room = self.allowed.saturating_sub(self.spent);
        if room >= u64::from(send.early_left) {
            return usize::MAX;
        }
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// `bytes` were taken from the writer.
    pub(super) fn spend(&mut self, bytes: usize, send: &mut SendHalf) {
        let early = u32::try_from(bytes).map_or(send.early_left, |all| all.min(send.early_left));
        send.early_left -= early;
        send.early_queued += early;
        self.spent += u64::from(early);
    }

    /// The queue was discarded. True if that made room.
    pub(super) fn unspend(&mut self, send: &mut SendHalf) -> bool {
        let early = std::mem::take(&mut send.early_queued);
        self.spent -= u64::from(early);
        early > 0
    }

    pub(super) fn wait(&mut self, id: u64, send: &mut SendHalf) {
        if !send.waits_for_early {
            send.waits_for_early = true;
            self.waiters.push_back(id);
        }
    }

    /// What to tell the peer, if it is time.
    pub(super) fn take_grant(&mut self) -> Option<u64> {
        std::mem::take(&mut self.due).then(|| {
            self.told = self.released + self.limit;
            self.told
        })
    }
}

impl State {
    /// The peer allows more.
    pub(super) fn on_early(&mut self, bytes: u64, wakes: &mut Wakes) -> Result<(), Violation> {
        if bytes < self.early.allowed {
            let detail = format!("{bytes} early bytes allowed after {}", self.early.allowed);
            return Err(Violation::new("T-25", detail));
        }
        self.early.allowed = bytes;
        self.wake_early_waiters(wakes);
        Ok(())
    }

    /// Lets writers go on that wait for it: all of them, so that one that does not write holds up no other.
    pub(super) fn wake_early_waiters(&mut self, wakes: &mut Wakes) {
        for id in std::mem::take(&mut self.early.waiters) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send.waits_for_early = false;
                wakes.add(&mut stream.send.waker);
            }
        }
    }

    /// Counts a payload of `bytes` that arrived.
    pub(super) fn on_early_data(
        &mut self,
        id: u64,
        bytes: usize,
        wakes: &mut Wakes,
    ) -> Result<(), Violation> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        let recv = &mut stream.recv;
        let early = u32::try_from(bytes).map_or(recv.early_left, |all| all.min(recv.early_left));
        recv.early_left -= early;
        recv.early_held += early;
        self.early.arrived += u64::from(early);
        if self.early.arrived > self.early.told {
            let detail = format!("more early bytes than the {} allowed", self.early.told);
            return Err(Violation::new("T-25", detail));
        }
        if stream.accepted || recv.stopped.is_some() {
            self.release_early(id, wakes);
        }
        Ok(())
    }

    /// The stream was accepted, or what arrived of it is gone.
    pub(super) fn release_early(&mut self, id: u64, wakes: &mut Wakes) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let early = &mut self.early;
        early.released += u64::from(std::mem::take(&mut stream.recv.early_held));
        let more = (early.released + early.limit).saturating_sub(early.told);
        if more >= early.limit.div_ceil(4) && !early.due {
            early.due = true;
            wakes.add(&mut self.writer);
        }
    }
}
