//! A side under attack: one [`State`] that takes whatever a peer may send, while its own user does whatever a user may
//! do. Driven by `tests/hostile.rs` with random steps and by `fuzz/` with searched ones.

use crate::mux::frame::{Frame, HEADER_BYTES, Header, Kind, Violation};
use crate::mux::state::{Limits, Role, State, Wakes};
use crate::mux::{Assembler, Outgoing};
use bytes::{BufMut, Bytes};
use datafusion_transport_core::connection::{StreamClass, StreamCode};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// Small, so that every one of them is reached soon.
pub(crate) const LIMITS: Limits = Limits {
    stream_window_bytes: 1000,
    max_frame_bytes: 300,
    max_streams: 8,
    max_unaccepted_streams: 4,
    early_window_bytes: 400,
    early_limit_bytes: 700,
    send_buffer_bytes: 1500,
};

/// The attacked side.
pub(crate) struct Victim {
    pub(crate) state: State,
    assembler: Assembler,
    out: Outgoing,
    permits: usize,
    /// Streams that its user has, and which of their halves.
    handles: Vec<(u64, bool, bool)>,
}

/// What the bytes mean: half of the steps are the peer's, the others the user's. The first violation ends it.
///
/// # Panics
/// If the peer can bring the multiplexer into a state that must not be.
#[allow(unreachable_pub)] // Public with feature `fuzzing` only.
pub fn hostile_peer(mut data: &[u8]) {
    let listens = take(&mut data).is_multiple_of(2);
    let mut victim = Victim::new(if listens {
        Role::Listener
    } else {
        Role::Connector
    });
    while !data.is_empty() {
        let step = take(&mut data);
        let outcome = match step % 4 {
            0 => {
                let bytes = usize::from(take(&mut data)).min(data.len());
                let (raw, rest) = data.split_at(bytes);
                data = rest;
                victim.receive(raw)
            }
            1 => victim.receive(&frame_bytes(&mut data)),
            _ => {
                victim.act(step / 4, take(&mut data));
                Ok(())
            }
        };
        if outcome.is_err() {
            return victim.wind_down();
        }
    }
    victim.wind_down();
}

/// A frame that is well formed more often than chance would have it.
fn frame_bytes(data: &mut &[u8]) -> Vec<u8> {
    const KINDS: [Kind; 12] = [
        Kind::Open,
        Kind::Data,
        Kind::Data,
        Kind::Window,
        Kind::Finish,
        Kind::Reset,
        Kind::Stop,
        Kind::Allow,
        Kind::Early,
        Kind::Ping,
        Kind::Pong,
        Kind::GoAway,
    ];
    let kind = KINDS.into_iter().cycle().nth(take(data).into());
    let (id, value) = (u64::from(take(data)), u32::from(take(data)) * 2);
    let header = Header::new(kind.unwrap_or(Kind::Open), value, id);
    let mut bytes = header.encode().to_vec();
    bytes.resize(HEADER_BYTES + header.body_bytes(), 7);
    bytes
}

fn take(data: &mut &[u8]) -> u8 {
    data.split_off_first().copied().unwrap_or_default()
}

impl Victim {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            state: State::new(role, LIMITS, LIMITS),
            assembler: Assembler::new(LIMITS.max_frame_bytes),
            out: Outgoing::default(),
            permits: 0,
            handles: Vec::new(),
        }
    }

    /// Bytes from the peer.
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        while !bytes.is_empty() {
            let mut space = self.assembler.space();
            let (now, later) = bytes.split_at(bytes.len().min(space.remaining_mut()));
            assert!(!now.is_empty(), "no room for what follows");
            space.put_slice(now);
            bytes = later;
            while let Some(frame) = self.assembler.next_frame()? {
                self.on_frame(frame)?;
            }
        }
        Ok(())
    }

    pub(crate) fn on_frame(&mut self, frame: Frame) -> Result<(), Violation> {
        let taken = self.state.on_frame(frame, &mut Wakes::default());
        if taken.is_ok() {
            self.state.assert_invariants();
            self.assert_bounded();
        }
        taken.map(drop)
    }

    /// What it holds for its peer.
    fn assert_bounded(&self) {
        let streams = || self.state.streams.values();
        let unread = |accepted: bool| -> u64 {
            let those = streams().filter(|s| s.accepted == accepted);
            those.map(|s| s.recv.unread_bytes).sum()
        };
        assert!(unread(false) <= u64::from(LIMITS.early_limit_bytes));
        assert!(unread(true) <= 1000 * 2 * u64::from(LIMITS.max_streams));
    }

    /// Something that a user may do, to the stream that `which` chooses.
    pub(crate) fn act(&mut self, what: u8, which: u8) {
        let wakes = &mut Wakes::default();
        let cx = &mut Context::from_waker(Waker::noop());
        match what % 16 {
            0 => self.open(which),
            1..4 => {
                if let Poll::Ready(Some(id)) = self.state.poll_accept(cx, wakes) {
                    self.handles.push((id, true, true));
                }
            }
            4..7 => {
                let max_bytes = 1 + 16 * usize::from(which);
                self.out.clear();
                let _ = self.state.poll_fill(cx, &mut self.out, max_bytes, wakes);
            }
            15 if which > 250 => self.state.close(Some("enough"), wakes),
            15 => self.state.send_ping(which.into(), wakes),
            _ => self.act_on_stream(what % 16, which, cx),
        }
        self.state.assert_invariants();
    }

    fn open(&mut self, which: u8) {
        self.permits += self.state.take_permits();
        if self.permits == 0 {
            return;
        }
        self.permits -= 1;
        let opened = self.state.open(class(which));
        self.handles.extend(opened.map(|id| (id, true, true)));
    }

    fn act_on_stream(&mut self, what: u8, which: u8, cx: &mut Context<'_>) {
        let wakes = &mut Wakes::default();
        let count = self.handles.len().max(1);
        let Some((id, sends, reads)) = self.handles.get_mut(usize::from(which) % count) else {
            return;
        };
        let (id, state) = (*id, &mut self.state);
        match what {
            7 | 8 if *reads => drop(state.poll_read(id, cx, 1 + usize::from(which), wakes)),
            9 | 10 if *sends => {
                let bytes = Bytes::from(vec![3; 3 * usize::from(which)]);
                let _ = state.poll_write(id, cx, &mut VecDeque::from([bytes]), wakes);
            }
            11 if *sends => match which % 3 {
                0 => state.finish(id, wakes),
                1 => state.reset(id, StreamCode(which.into()), wakes),
                _ => state.set_class(id, class(which / 3), wakes),
            },
            12 if *reads => state.stop(id, StreamCode::CANCELLED, wakes),
            13 if *sends => {
                *sends = false;
                state.drop_send(id, wakes);
            }
            14 if *reads => {
                *reads = false;
                state.drop_recv(id, wakes);
            }
            _ => {}
        }
        self.handles.retain(|(_, sends, reads)| *sends || *reads);
    }

    /// The connection ends, and with it all that it held.
    #[allow(clippy::panic)]
    fn wind_down(mut self) {
        let wakes = &mut Wakes::default();
        self.state.close(None, wakes);
        self.state.assert_invariants();
        for (id, sends, reads) in std::mem::take(&mut self.handles) {
            if sends {
                self.state.drop_send(id, wakes);
            }
            if reads {
                self.state.drop_recv(id, wakes);
            }
        }
        self.state.assert_invariants();
        // The writer still sends what was finished before the close, and then it ends.
        let cx = &mut Context::from_waker(Waker::noop());
        loop {
            self.out.clear();
            match self.state.poll_fill(cx, &mut self.out, usize::MAX, wakes) {
                Poll::Ready(true) => self.state.assert_invariants(),
                Poll::Ready(false) => break,
                Poll::Pending => panic!("a closed connection has nothing to send and no end"),
            }
        }
        assert!(self.state.streams.is_empty(), "a stream outlives its users");
        assert_eq!(0, self.state.queued_bytes);
    }
}

fn class(which: u8) -> StreamClass {
    match which % 2 {
        0 => StreamClass::Control,
        _ => StreamClass::Bulk,
    }
}
