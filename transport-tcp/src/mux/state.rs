//! [`State`]: one side of a connection.

use crate::mux::early::Early;
use crate::mux::frame::MAX_REASON_BYTES;
use crate::mux::stream::{End, Phase, Stream};
use bytes::Bytes;
use datafusion_transport_core::connection::{StreamClass, StreamCode};
use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};

/// T-9: who made the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Opens streams with even numbers.
    Connector,
    /// Opens streams with odd numbers.
    Listener,
}

/// What one side allows the other, and itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of a stream that may arrive before they are read.
    pub(crate) stream_window_bytes: u32,
    /// Payload of one Data frame.
    pub(crate) max_frame_bytes: u32,
    /// Streams open at the same time, in each direction.
    pub(crate) max_streams: u32,
    /// Streams that wait to be accepted.
    pub(crate) max_unaccepted_streams: u32,
    /// Bytes of a stream that may arrive before any of it was read, where the sender opened the stream.
    pub(crate) early_window_bytes: u32,
    /// Early bytes that may arrive before their streams are accepted, of all streams together.
    pub(crate) early_limit_bytes: u32,
    /// Bulk bytes taken from writers and not yet handed to the socket.
    pub(crate) send_buffer_bytes: usize,
}

/// Wakers to be woken once the state is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Wakes(Vec<Waker>);

/// Why nothing can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    Stopped(StreamCode),
    Closed,
}

/// Streams, windows and queues of one side of a connection.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) ours: Limits,
    pub(super) theirs: Limits,
    pub(super) role: Role,
    pub(super) streams: HashMap<u64, Stream>,
    pub(super) next_stream: u64,
    /// T-10: opens that the peer allows in all; those whose stream was never announced come back.
    pub(super) opens_allowed: u64,
    pub(super) opens_returned: u64,
    opens_given: u64,
    pub(super) local_closed: u64,
    /// T-10, the other way.
    pub(super) remote_opened: u64,
    pub(super) remote_accepted: u64,
    pub(super) remote_closed: u64,
    pub(super) remote_allowed: u64,
    pub(super) allow_due: bool,
    pub(super) backlog: VecDeque<u64>,
    pub(super) acceptor: Option<Waker>,
    /// Streams with a grant, stop or reset to send.
    pub(super) urgent: VecDeque<u64>,
    pub(super) control: VecDeque<u64>,
    pub(super) bulk: VecDeque<u64>,
    pub(super) ping: Option<u64>,
    pub(super) pong: Option<u64>,
    pub(super) go_away: Option<Bytes>,
    pub(super) closed: bool,
    /// Bytes of data in the queues of all streams.
    pub(super) queued_bytes: usize,
    /// Streams whose writer waits until fewer are.
    pub(super) budget_waiters: VecDeque<u64>,
    pub(super) early: Early,
    pub(super) writer: Option<Waker>,
}

impl Limits {
    /// What a peer may open before it hears more.
    pub(crate) fn unaccepted_streams(&self) -> u32 {
        self.max_streams.min(self.max_unaccepted_streams)
    }

    /// T-25: bytes of a stream that its opener may send before any grant.
    pub(crate) fn early_window(&self) -> u32 {
        self.early_window_bytes.min(self.stream_window_bytes)
    }
}

impl Wakes {
    pub(super) fn add(&mut self, waker: &mut Option<Waker>) {
        self.0.extend(waker.take());
    }

    pub(crate) fn wake(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

impl State {
    /// A side that announced `ours` and read `theirs`.
    pub(crate) fn new(role: Role, ours: Limits, theirs: Limits) -> Self {
        Self {
            ours,
            theirs,
            role,
            streams: HashMap::new(),
            next_stream: match role {
                Role::Connector => 0,
                Role::Listener => 1,
            },
            opens_allowed: theirs.max_streams.into(),
            opens_returned: 0,
            opens_given: 0,
            local_closed: 0,
            remote_opened: 0,
            remote_accepted: 0,
            remote_closed: 0,
            remote_allowed: ours.unaccepted_streams().into(),
            allow_due: false,
            backlog: VecDeque::new(),
            acceptor: None,
            urgent: VecDeque::new(),
            control: VecDeque::new(),
            bulk: VecDeque::new(),
            ping: None,
            pong: None,
            go_away: None,
            closed: false,
            queued_bytes: 0,
            budget_waiters: VecDeque::new(),
            early: Early::new(&ours, &theirs),
            writer: None,
        }
    }

    /// How many more streams may be opened than when this was asked last. Each call of [`open`](Self::open) uses one.
    pub(crate) fn take_permits(&mut self) -> usize {
        let by_peer = self.opens_allowed.saturating_add(self.opens_returned);
        let by_self = self.local_closed + u64::from(self.ours.max_streams);
        let total = by_peer.min(by_self);
        let more = total.saturating_sub(self.opens_given);
        self.opens_given += more;
        usize::try_from(more).unwrap_or(usize::MAX)
    }

    /// Opens a stream; the peer hears of it with the first thing that is sent. `None` once closed.
    pub(crate) fn open(&mut self, class: StreamClass) -> Option<u64> {
        if self.closed {
            return None;
        }
        let id = self.next_stream;
        self.next_stream += 2;
        let stream = Stream::local(class, &self.ours, &self.theirs);
        self.streams.insert(id, stream);
        Some(id)
    }

    /// The oldest stream that the peer opened and nobody took; `None` once closed.
    pub(crate) fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
        wakes: &mut Wakes,
    ) -> Poll<Option<u64>> {
        if self.closed {
            return Poll::Ready(None);
        }
        let Some(id) = self.backlog.pop_front() else {
            self.acceptor = Some(cx.waker().clone());
            return Poll::Pending;
        };
        self.remote_accepted += 1;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.accepted = true;
        }
        self.release_early(id, wakes);
        self.update_allowance(wakes);
        Poll::Ready(Some(id))
    }

    /// Sends a ping (T-16); an earlier one that was not sent yet is forgotten.
    pub(crate) fn send_ping(&mut self, nonce: u64, wakes: &mut Wakes) {
        self.ping = Some(nonce);
        wakes.add(&mut self.writer);
    }

    /// Ends everything: streams fail, except that what was finished before is still sent, then `go_away`.
    pub(crate) fn close(&mut self, go_away: Option<&str>, wakes: &mut Wakes) {
        if self.closed {
            return;
        }
        self.closed = true;
        self.go_away = go_away.map(|reason| {
            let cut = reason.floor_char_boundary(MAX_REASON_BYTES);
            Bytes::copy_from_slice(reason.get(..cut).unwrap_or_default().as_bytes())
        });
        for stream in self.streams.values_mut() {
            if stream.send.phase != Phase::Finishing || go_away.is_none() {
                self.queued_bytes -= stream.send.discard();
                self.early.unspend(&mut stream.send);
                stream.send.phase = Phase::Ended;
            }
            wakes.add(&mut stream.send.waker);
            wakes.add(&mut stream.recv.waker);
        }
        // Nobody can accept them any more.
        for id in std::mem::take(&mut self.backlog) {
            if let Some(stream) = self.streams.remove(&id) {
                self.leave_queues(id, &stream);
            }
        }
        // Those whose user left before, and whose last word will not be said.
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            self.settle(id, wakes);
        }
        wakes.add(&mut self.acceptor);
        wakes.add(&mut self.writer);
    }

    /// T-10: what the peer should be told that it may open.
    pub(super) fn allowance(&self) -> u64 {
        let by_open = self.remote_closed + u64::from(self.ours.max_streams);
        let by_backlog = self.remote_accepted + u64::from(self.ours.max_unaccepted_streams);
        by_open.min(by_backlog).max(self.remote_allowed)
    }

    /// Not for each stream, but before the peer has to wait for long.
    pub(super) fn update_allowance(&mut self, wakes: &mut Wakes) {
        let more = self.allowance() - self.remote_allowed;
        let step = u64::from(self.ours.unaccepted_streams()).div_ceil(4);
        let exhausted = self.remote_opened >= self.remote_allowed;
        if more > 0 && (more >= step || exhausted) && !self.allow_due {
            self.allow_due = true;
            wakes.add(&mut self.writer);
        }
    }

    /// Removes a stream once nobody will ask for it again.
    pub(super) fn settle(&mut self, id: u64, wakes: &mut Wakes) {
        let closed = self.closed;
        let over = |stream: &&Stream| stream.is_over() || closed && stream.is_idle();
        let Some(stream) = self.streams.get(&id).filter(over) else {
            return;
        };
        if stream.remote {
            self.remote_closed += 1;
        } else {
            self.local_closed += 1;
        }
        if let Some(stream) = self.streams.remove(&id) {
            self.leave_queues(id, &stream);
        }
        self.update_allowance(wakes);
    }

    /// What waits in line must exist. Few of those that end still wait, so looking for them is cheap enough.
    fn leave_queues(&mut self, id: u64, stream: &Stream) {
        let others = |other: &u64| *other != id;
        if stream.urgent {
            self.urgent.retain(others);
        }
        if let Some(class) = stream.send.lane {
            self.lane(class).retain(others);
        }
        if stream.send.waits_for_budget {
            self.budget_waiters.retain(others);
        }
        if stream.send.waits_for_early {
            self.early.waiters.retain(others);
        }
    }

    /// A stream that the peer never heard of is over without a word.
    pub(super) fn withdraw(&mut self, id: u64, code: StreamCode, wakes: &mut Wakes) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send.phase = Phase::Ended;
            let recv = &mut stream.recv;
            recv.end.get_or_insert(End::Reset(code));
            recv.stop_due = false;
            wakes.add(&mut recv.waker);
            self.opens_returned += 1;
        }
        self.discard_unsent(id, wakes);
    }
}
