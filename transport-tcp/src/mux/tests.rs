//! Two connected state machines, and one with a hostile peer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod correct;
mod hostile;
mod rules;

use crate::mux::frame::{Frame, Violation};
pub(super) use crate::mux::fuzzing::LIMITS;
use crate::mux::state::{Limits, Role, State, Wakes, WriteError};
use crate::mux::stream::End;
use crate::mux::{Assembler, Event, Outgoing, Read};
use bytes::{BufMut, Bytes, BytesMut};
use datafusion_transport_core::connection::StreamClass;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

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
        let wakes = &mut Wakes::default();
        let _ = self
            .state
            .poll_fill(&mut cx(), &mut self.out, max_bytes, wakes);
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

    fn check(&self) {
        self.state.assert_invariants();
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
