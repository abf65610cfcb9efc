//! Two connected state machines, and one with a hostile peer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod correct;
mod hostile;
mod rules;

use crate::mux::frame::{Frame, Violation};
use crate::mux::state::{Limits, Role, State, Wakes, WriteError};
use crate::mux::stream::{End, Phase};
use crate::mux::{Assembler, Event, Outgoing, Read};
use bytes::{BufMut, Bytes, BytesMut};
use datafusion_transport_core::connection::StreamClass;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

pub(super) const LIMITS: Limits = Limits {
    stream_window_bytes: 1000,
    max_frame_bytes: 300,
    max_streams: 8,
    max_unaccepted_streams: 4,
    send_buffer_bytes: 1500,
};

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A state machine, and the bytes on their way to it.
struct Side {
    state: State,
    out: Outgoing,
    wire: BytesMut,
    assembler: Assembler,
    permits: usize,
}

impl Side {
    fn new(role: Role, limits: Limits) -> Self {
        let theirs = Limits {
            max_streams: limits.unaccepted_streams(),
            ..limits
        };
        Self {
            state: State::new(role, limits, theirs),
            out: Outgoing::default(),
            wire: BytesMut::new(),
            assembler: Assembler::new(limits.max_frame_bytes),
            permits: 0,
        }
    }

    fn open(&mut self, class: StreamClass) -> Option<u64> {
        self.permits += self.state.take_permits();
        self.permits = self.permits.checked_sub(1)?;
        self.state.open(class)
    }

    fn accept(&mut self) -> Option<u64> {
        match self.state.poll_accept(&mut cx(), &mut Wakes::default()) {
            Poll::Ready(id) => id,
            Poll::Pending => None,
        }
    }

    /// Returns how many bytes were taken.
    fn write(&mut self, id: u64, bytes: &[u8]) -> Result<usize, WriteError> {
        let mut chunks: VecDeque<Bytes> = bytes.chunks(70).map(Bytes::copy_from_slice).collect();
        let wakes = &mut Wakes::default();
        let result = self.state.poll_write(id, &mut cx(), &mut chunks, wakes);
        if let Poll::Ready(Err(err)) = result {
            return Err(err);
        }
        Ok(bytes.len() - chunks.iter().map(Bytes::len).sum::<usize>())
    }

    fn read(&mut self, id: u64, max_bytes: usize) -> Poll<Read> {
        let wakes = &mut Wakes::default();
        self.state.poll_read(id, &mut cx(), max_bytes, wakes)
    }

    /// Puts what there is to send on the wire to `peer`.
    fn send_to(&mut self, peer: &mut Self, max_bytes: usize) {
        self.out.clear();
        self.state
            .fill(&mut self.out, max_bytes, &mut Wakes::default());
        for slice in self.out.slices.drain(..) {
            peer.wire.extend_from_slice(&slice);
        }
        self.check();
    }

    /// Takes the next bytes of the wire in.
    fn receive(&mut self, max_bytes: usize) -> Result<Vec<Event>, Violation> {
        let mut events = Vec::new();
        let mut arrived = self.wire.split_to(max_bytes.min(self.wire.len()));
        while !arrived.is_empty() {
            let mut space = self.assembler.space();
            let fits = arrived.len().min(space.remaining_mut());
            space.put_slice(&arrived.split_to(fits));
            while let Some(frame) = self.assembler.next_frame()? {
                events.push(self.on_frame(frame)?);
            }
        }
        Ok(events)
    }

    fn on_frame(&mut self, frame: Frame) -> Result<Event, Violation> {
        let event = self.state.on_frame(frame, &mut Wakes::default());
        self.check();
        event
    }

    /// What must be true between any two steps.
    fn check(&self) {
        let state = &self.state;
        let mut queued = 0;
        let mut remote = 0;
        for stream in state.streams.values() {
            let (send, recv) = (&stream.send, &stream.recv);
            queued += send.queued_bytes;
            remote += u64::from(stream.remote);
            let pieces: usize = send.queue.iter().map(|piece| piece.bytes.len()).sum();
            assert_eq!(pieces, send.queued_bytes);
            let window = u64::from(state.ours.stream_window_bytes);
            let counted = recv.allowed_bytes + recv.unread_bytes + recv.ungranted_bytes;
            if recv.stopped.is_none() && recv.end.is_none() {
                assert_eq!(window, counted, "a byte of the window is lost");
            }
            assert!(counted <= window);
            assert!(send.credit <= u64::from(state.theirs.stream_window_bytes));
            if send.has_work() && !state.closed {
                assert!(send.lane.is_some(), "bytes that nobody will send");
            }
            let due = recv.grant_due || recv.stop_due || matches!(send.phase, Phase::Resetting(_));
            assert!(!due || !stream.announced || stream.urgent || state.closed);
            assert!(!stream.is_over());
        }
        assert_eq!(queued, state.queued_bytes);
        assert!(remote <= u64::from(state.ours.max_streams));
        assert!(state.backlog.len() <= state.ours.max_unaccepted_streams as usize);
        assert!(state.urgent.len() <= state.streams.len() + 1 || state.closed);
    }
}

fn pair(limits: Limits) -> (Side, Side) {
    (
        Side::new(Role::Connector, limits),
        Side::new(Role::Listener, limits),
    )
}

/// Everything that either side has to say arrives.
fn settle(a: &mut Side, b: &mut Side) {
    loop {
        a.send_to(b, usize::MAX);
        b.send_to(a, usize::MAX);
        if a.wire.is_empty() && b.wire.is_empty() {
            return;
        }
        a.receive(usize::MAX).unwrap();
        b.receive(usize::MAX).unwrap();
    }
}

/// A number that looks random, and which byte of a stream is at `place`.
fn pattern(stream: u64, place: u64) -> u8 {
    (stream.wrapping_mul(131) ^ place.wrapping_mul(7)) as u8
}

fn drop_both(side: &mut Side, id: u64) {
    side.state.drop_send(id, &mut Wakes::default());
    side.state.drop_recv(id, &mut Wakes::default());
}

fn is_clean_end(read: &Poll<Read>) -> bool {
    matches!(read, Poll::Ready(Read::End(End::Finished)))
}
