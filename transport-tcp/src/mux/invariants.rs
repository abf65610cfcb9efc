//! What must be true of a [`State`] between any two steps, whatever the peer sent. For tests and fuzzing.

use crate::mux::state::State;
use crate::mux::stream::{End, Phase, RecvHalf, SendHalf, Stream};
use datafusion_transport_core::connection::StreamClass;
use std::collections::VecDeque;

impl State {
    /// # Panics
    /// If anything is amiss.
    pub(crate) fn assert_invariants(&self) {
        for stream in self.streams.values() {
            self.check_sending(&stream.send);
            self.check_receiving(stream);
            self.check_wakers(stream);
            assert!(!stream.is_over(), "a closed stream was kept");
            assert!(!stream.remote || stream.announced);
        }
        self.check_sums();
        self.check_early();
        self.check_queues();
    }

    fn check_sending(&self, send: &SendHalf) {
        let pieces: usize = send.queue.iter().map(|piece| piece.bytes.len()).sum();
        assert_eq!(pieces, send.queued_bytes);
        assert!(send.credit <= u64::from(self.theirs.stream_window_bytes));
        assert!(send.early_queued as usize <= send.queued_bytes);
        assert!(u64::from(send.early_left) <= send.credit);
        let over = !matches!(send.phase, Phase::Open | Phase::Finishing);
        assert!(!over || send.queue.is_empty(), "bytes nobody will send");
        let lost = send.has_work() && send.lane.is_none() && !self.closed;
        assert!(!lost, "work that is in no lane");
    }

    fn check_receiving(&self, stream: &Stream) {
        let recv = &stream.recv;
        assert_eq!(recv.queued_bytes(), recv.unread_bytes);
        let counted = recv.allowed_bytes + recv.unread_bytes;
        assert!(counted <= u64::from(recv.window_bytes), "window exceeded");
        assert!(recv.window_bytes <= self.ours.stream_window_bytes);
        let cut = recv.stopped.is_some() || matches!(recv.end, Some(End::Reset(_)));
        assert!(!cut || recv.unread_bytes == 0, "bytes nobody will read");
        assert!(recv.end.is_none() || !recv.grant_due && !recv.stop_due);
        let due = recv.grant_due
            || recv.stop_due
            || stream.announced && matches!(stream.send.phase, Phase::Resetting(_));
        let lost = due && stream.announced && !stream.urgent && !self.closed;
        assert!(!lost, "something urgent is in no queue");
        if stream.accepted {
            assert_eq!(0, recv.early_held);
        } else {
            assert!(stream.remote);
            assert!(recv.unread_bytes <= u64::from(recv.early_held));
        }
    }

    /// Nobody sleeps who has something to do.
    fn check_wakers(&self, stream: &Stream) {
        let (send, recv) = (&stream.send, &stream.recv);
        if recv.waker.is_some() {
            let ready = recv.unread_bytes > 0 || recv.end.is_some() || self.closed;
            assert!(!ready, "a reader sleeps");
        }
        if send.waker.is_some() {
            let failed = send.stopped.is_some() || self.closed;
            let budget = send.waits_for_budget && self.queued_bytes > 0;
            let early = send.waits_for_early && self.early.room(send) == 0;
            let waits = send.credit == 0 || budget || early;
            assert!(waits && !failed, "a writer sleeps");
        }
    }

    fn check_sums(&self) {
        let count = |remote: bool| self.streams.values().filter(|s| s.remote == remote).count();
        let queued: usize = self.streams.values().map(|s| s.send.queued_bytes).sum();
        assert_eq!(queued, self.queued_bytes);
        assert!(count(true) <= self.ours.max_streams as usize);
        assert!(self.backlog.len() <= self.ours.max_unaccepted_streams as usize);
        assert!(self.remote_opened <= self.remote_allowed);
        if !self.closed {
            let open = self.remote_opened - self.remote_closed;
            assert_eq!(open, count(true) as u64);
            let unaccepted = self.remote_opened - self.remote_accepted;
            assert_eq!(unaccepted, self.backlog.len() as u64);
            let open = self.next_stream / 2 - self.local_closed;
            assert_eq!(open, count(false) as u64);
        }
    }

    fn check_early(&self) {
        let early = &self.early;
        let held = |s: &Stream| u64::from(s.recv.early_held);
        assert!(early.arrived <= early.told);
        if !self.closed {
            let held: u64 = self.streams.values().map(held).sum();
            assert_eq!(early.arrived, early.released + held);
            assert!(held <= u64::from(self.ours.early_limit_bytes));
        }
        let queued = |s: &Stream| u64::from(s.send.early_queued);
        let queued: u64 = self.streams.values().map(queued).sum();
        assert!(queued <= early.spent && early.spent <= early.allowed);
    }

    fn check_queues(&self) {
        let lane = |class| move |s: &Stream| s.send.lane == Some(class);
        self.check_queue(&self.urgent, |s| s.urgent);
        self.check_queue(&self.control, lane(StreamClass::Control));
        self.check_queue(&self.bulk, lane(StreamClass::Bulk));
        self.check_queue(&self.budget_waiters, |s| s.send.waits_for_budget);
        self.check_queue(&self.early.waiters, |s| s.send.waits_for_early);
        if !self.closed {
            self.check_queue(&self.backlog, |s| !s.accepted);
        }
        if self.acceptor.is_some() {
            assert!(self.backlog.is_empty() && !self.closed, "nobody accepts");
        }
        if self.writer.is_some() {
            let asleep = self.pong.is_none() && self.ping.is_none() && self.go_away.is_none();
            let asleep = asleep && !self.allow_due && !self.early.due && self.urgent.is_empty();
            let asleep = asleep && self.control.is_empty() && self.bulk.is_empty();
            assert!(asleep && !self.closed, "the writer sleeps");
        }
    }

    /// A queue holds the streams that think so, each once.
    fn check_queue(&self, queue: &VecDeque<u64>, waits: impl Fn(&Stream) -> bool) {
        let here = |id: &u64| self.streams.get(id).is_some_and(&waits);
        assert!(queue.iter().all(here), "a queue holds a closed stream");
        let all = self.streams.values().filter(|s| waits(s)).count();
        assert_eq!(all, queue.len());
    }
}

impl RecvHalf {
    fn queued_bytes(&self) -> u64 {
        let sum: usize = self.chunks.iter().map(bytes::Bytes::len).sum();
        (sum + self.tail.len()) as u64
    }
}
