//! Random interleavings of what two correct sides do.

use super::*;
use crate::mux::stream::Stream;
use datafusion_transport_core::connection::StreamCode;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Step {
    Open(bool),
    Accept,
    Write(usize, u16),
    Read(usize, u16),
    Finish(usize),
    Reset(usize),
    Stop(usize),
    Class(usize, bool),
    DropSend(usize),
    DropRecv(usize),
    Send(u16),
    Receive(u16),
    /// All that was said arrives.
    Settle,
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let n = 0..6_usize;
    let step = prop_oneof![
        3 => any::<bool>().prop_map(Step::Open),
        3 => Just(Step::Accept),
        8 => (n.clone(), 1..2500_u16).prop_map(|(n, b)| Step::Write(n, b)),
        8 => (n.clone(), 1..2500_u16).prop_map(|(n, b)| Step::Read(n, b)),
        2 => n.clone().prop_map(Step::Finish),
        1 => n.clone().prop_map(Step::Reset),
        1 => n.clone().prop_map(Step::Stop),
        1 => (n.clone(), any::<bool>()).prop_map(|(n, c)| Step::Class(n, c)),
        2 => n.clone().prop_map(Step::DropSend),
        2 => n.prop_map(Step::DropRecv),
        9 => (1..3000_u16).prop_map(Step::Send),
        9 => (1..3000_u16).prop_map(Step::Receive),
        1 => Just(Step::Settle),
    ];
    (any::<bool>(), step)
}

/// What the test knows of one direction of a stream.
#[derive(Default)]
struct Track {
    written: u64,
    read: u64,
    finished: bool,
    cut: bool,
}

struct World {
    sides: [Side; 2],
    handles: [Vec<u64>; 2],
    send_dropped: [Vec<u64>; 2],
    recv_dropped: [Vec<u64>; 2],
    tracks: HashMap<(u64, usize), Track>,
}

impl World {
    fn new() -> Self {
        let (a, b) = pair(LIMITS);
        Self {
            sides: [a, b],
            handles: Default::default(),
            send_dropped: Default::default(),
            recv_dropped: Default::default(),
            tracks: HashMap::new(),
        }
    }

    fn track(&mut self, id: u64, from: usize) -> &mut Track {
        self.tracks.entry((id, from)).or_default()
    }

    fn step(&mut self, me: usize, step: &Step) {
        let wakes = &mut Wakes::default();
        let pick = |n: &usize, list: &Vec<u64>| list.get(n % list.len().max(1)).copied();
        match step {
            Step::Open(control) => {
                let class = if *control {
                    StreamClass::Control
                } else {
                    StreamClass::Bulk
                };
                let opened = self.sides[me].open(class);
                self.handles[me].extend(opened);
            }
            Step::Accept => {
                let accepted = self.sides[me].accept();
                self.handles[me].extend(accepted);
            }
            Step::Send(max) => {
                let [a, b] = &mut self.sides;
                let (from, to) = if me == 0 { (a, b) } else { (b, a) };
                from.send_to(to, usize::from(*max));
            }
            Step::Receive(max) => {
                self.sides[me].receive(usize::from(*max)).unwrap();
            }
            Step::Settle => self.settle(),
            Step::Write(n, _)
            | Step::Read(n, _)
            | Step::Finish(n)
            | Step::Reset(n)
            | Step::Stop(n)
            | Step::Class(n, _)
            | Step::DropSend(n)
            | Step::DropRecv(n) => {
                if let Some(id) = pick(n, &self.handles[me]) {
                    self.stream_step(me, id, step, wakes);
                }
            }
        }
        self.sides[me].check();
    }

    fn stream_step(&mut self, me: usize, id: u64, step: &Step, wakes: &mut Wakes) {
        let sends = !self.send_dropped[me].contains(&id);
        let reads = !self.recv_dropped[me].contains(&id);
        match step {
            Step::Write(_, bytes) if sends => self.write(me, id, (*bytes).into()),
            Step::Read(_, bytes) if reads => self.read(me, id, (*bytes).into()),
            Step::Finish(_) if sends => {
                let cut = self.track(id, me).cut;
                self.sides[me].state.finish(id, wakes);
                self.track(id, me).finished |= !cut;
            }
            Step::Reset(_) if sends => {
                self.track(id, me).cut = true;
                self.sides[me].state.reset(id, StreamCode(77), wakes);
            }
            Step::Stop(_) if reads => {
                self.track(id, 1 - me).cut = true;
                self.sides[me].state.stop(id, StreamCode(78), wakes);
            }
            Step::Class(_, control) if sends => {
                let class = if *control {
                    StreamClass::Control
                } else {
                    StreamClass::Bulk
                };
                self.sides[me].state.set_class(id, class, wakes);
            }
            Step::DropSend(_) if sends => {
                let track = self.track(id, me);
                track.cut |= !track.finished;
                self.send_dropped[me].push(id);
                self.sides[me].state.drop_send(id, wakes);
            }
            Step::DropRecv(_) if reads => {
                self.track(id, 1 - me).cut = true;
                self.recv_dropped[me].push(id);
                self.sides[me].state.drop_recv(id, wakes);
            }
            _ => {}
        }
        let gone =
            |me: usize| self.send_dropped[me].contains(&id) && self.recv_dropped[me].contains(&id);
        if gone(me) {
            self.handles[me].retain(|handle| *handle != id);
        }
    }

    fn write(&mut self, me: usize, id: u64, bytes: u64) {
        let start = self.track(id, me).written;
        let data: Vec<u8> = (start..start + bytes).map(|at| pattern(id, at)).collect();
        match self.sides[me].write(id, &data) {
            Ok(taken) => {
                let track = self.track(id, me);
                assert!(!track.finished || taken == 0);
                track.written += taken as u64;
            }
            Err(err) => {
                let track = self.track(id, me);
                assert!(track.cut || track.finished, "{err:?}");
            }
        }
    }

    fn read(&mut self, me: usize, id: u64, bytes: usize) {
        let read = self.sides[me].read(id, bytes);
        let track = self.track(id, 1 - me);
        match read {
            Poll::Ready(Read::Bytes(got)) => {
                assert!((1..=bytes).contains(&got.len()));
                for byte in got {
                    assert_eq!(pattern(id, track.read), byte);
                    track.read += 1;
                }
                assert!(track.read <= track.written);
            }
            Poll::Ready(Read::End(End::Finished)) => {
                assert!(track.finished);
                assert_eq!(track.written, track.read, "the end outran the data");
            }
            // One that was reset by its own side before the peer knew of it is over in both directions.
            Poll::Ready(Read::End(End::Reset(_))) => {
                assert!(track.cut || self.track(id, me).cut);
            }
            Poll::Ready(Read::Closed) => panic!("closed"),
            Poll::Pending => {}
        }
    }

    /// With nothing on the wire both sides agree on what is whose.
    fn settle(&mut self) {
        let [a, b] = &mut self.sides;
        settle(a, b);
        for (from, to) in [(&*a, &*b), (&*b, &*a)] {
            let early = &from.state.early;
            let queued = |s: &Stream| u64::from(s.send.early_queued);
            let queued: u64 = from.state.streams.values().map(queued).sum();
            assert_eq!(early.spent - queued, to.state.early.arrived);
            assert_eq!(early.allowed, to.state.early.told);
            assert_eq!(from.state.opens_allowed, to.state.remote_allowed);
            for (id, stream) in &from.state.streams {
                let Some(peer) = to.state.streams.get(id) else {
                    continue;
                };
                let (send, recv) = (&stream.send, &peer.recv);
                if recv.end.is_none() && recv.stopped.is_none() {
                    let sendable = send.credit + send.queued_bytes as u64;
                    assert_eq!(sendable, recv.allowed_bytes, "credit is lost");
                }
            }
        }
    }

    /// Reads everything to its end, drops everything: nothing may be left.
    fn wind_down(&mut self) {
        for round in 0..1000 {
            for me in [0, 1] {
                while let Some(id) = self.sides[me].accept() {
                    self.handles[me].push(id);
                }
                for id in self.handles[me].clone() {
                    self.wind_down_stream(me, id);
                }
            }
            let [a, b] = &mut self.sides;
            settle(a, b);
            if round > 3 && self.handles.iter().all(Vec::is_empty) {
                break;
            }
        }
        assert!(
            self.handles.iter().all(Vec::is_empty),
            "a stream never ends"
        );
        for side in &mut self.sides {
            assert!(side.state.streams.is_empty());
            assert_eq!(0, side.state.queued_bytes);
            side.permits += side.state.take_permits();
            assert!(side.permits >= 1, "the peer's allowance leaked");
        }
    }

    fn wind_down_stream(&mut self, me: usize, id: u64) {
        let wakes = &mut Wakes::default();
        self.stream_step(me, id, &Step::Finish(0), wakes);
        self.stream_step(me, id, &Step::DropSend(0), wakes);
        while !self.recv_dropped[me].contains(&id) {
            match self.sides[me].read(id, usize::MAX) {
                Poll::Pending => return,
                Poll::Ready(Read::Bytes(bytes)) => {
                    self.track(id, 1 - me).read += bytes.len() as u64;
                }
                end => {
                    let track = self.track(id, 1 - me);
                    assert!(!is_clean_end(&end) || track.read == track.written);
                    self.stream_step(me, id, &Step::DropRecv(0), wakes);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn correct_sides_lose_nothing(steps in prop::collection::vec(step(), 0..400)) {
        let mut world = World::new();
        for (connector, step) in &steps {
            world.step(usize::from(*connector), step);
        }
        world.wind_down();
    }
}

#[test]
fn ten_thousand_cancelled_streams_leave_nothing() {
    let (mut a, mut b) = pair(LIMITS);
    for round in 0..10_000 {
        let id = a.open(StreamClass::Bulk).unwrap();
        a.write(id, &[1; 800]).unwrap();
        settle(&mut a, &mut b);
        let theirs = b.accept().unwrap();
        b.write(theirs, &[2; 5000]).unwrap();
        match round % 3 {
            0 => drop_both(&mut a, id),
            1 => drop_both(&mut b, theirs),
            _ => {
                b.send_to(&mut a, 400);
                let _ = a.read(id, 10);
            }
        }
        drop_both(&mut a, id);
        drop_both(&mut b, theirs);
        settle(&mut a, &mut b);
        assert!(a.state.streams.is_empty() && b.state.streams.is_empty());
    }
    for side in [&mut a, &mut b] {
        side.check();
        assert_eq!(0, side.state.queued_bytes);
    }
    // A new stream gets a whole window.
    let id = a.open(StreamClass::Bulk).unwrap();
    assert_eq!(400, a.write(id, &[1; 5000]).unwrap());
}
