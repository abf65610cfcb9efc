//! One rule at a time.

use super::*;
use crate::mux::frame::{HEADER_BYTES, Header, Kind};
use crate::mux::{PREAMBLE_BYTES, Preamble, PreambleError};
use datafusion_transport_core::connection::StreamCode;

/// What is early is as good as what is not.
const ROOMY: Limits = Limits {
    early_window_bytes: 1024,
    early_limit_bytes: 100_000,
    ..LIMITS
};

fn rule_of(result: Result<Event, Violation>) -> String {
    let words = result.unwrap_err().to_string();
    words
        .rsplit_once('(')
        .unwrap()
        .1
        .trim_end_matches(')')
        .to_owned()
}

fn data(stream: u64, bytes: usize) -> Frame {
    Frame::Data {
        stream,
        payload: vec![0; bytes].into(),
    }
}

#[test]
fn broken_rules_are_named() {
    let listener = || Side::new(Role::Listener, ROOMY);
    let open = |side: &mut Side| side.on_frame(Frame::Open { stream: 0 }).unwrap();

    assert_eq!(
        "T-9",
        rule_of(listener().on_frame(Frame::Open { stream: 1 }))
    );
    let mut side = listener();
    open(&mut side);
    assert_eq!("T-9", rule_of(side.on_frame(Frame::Open { stream: 0 })));

    let mut side = listener();
    for stream in [0, 2, 4, 6] {
        side.on_frame(Frame::Open { stream }).unwrap();
    }
    assert_eq!("T-10", rule_of(side.on_frame(Frame::Open { stream: 8 })));
    assert_eq!("T-10", rule_of(side.on_frame(Frame::Allow { streams: 0 })));

    assert_eq!("T-11", rule_of(listener().on_frame(data(0, 1))));
    let mut side = listener();
    open(&mut side);
    side.on_frame(Frame::Finish { stream: 0 }).unwrap();
    assert_eq!("T-11", rule_of(side.on_frame(data(0, 1))));
    assert_eq!("T-11", rule_of(side.on_frame(Frame::Finish { stream: 0 })));

    let mut side = listener();
    open(&mut side);
    side.on_frame(data(0, 1000)).unwrap();
    assert_eq!("T-12", rule_of(side.on_frame(data(0, 1))));
    let grant = Frame::Window {
        stream: 0,
        bytes: 1,
    };
    assert_eq!("T-13", rule_of(side.on_frame(grant)));
}

#[test]
fn lengths_are_checked_before_their_bytes_arrive() {
    for (rule, header) in [
        ("T-6", [0; HEADER_BYTES]),
        ("T-7", Header::new(Kind::Data, 301, 0).encode()),
        ("T-7", Header::new(Kind::Data, 0, 0).encode()),
        ("T-8", Header::new(Kind::GoAway, 1001, 0).encode()),
        ("T-13", Header::new(Kind::Window, 0, 0).encode()),
    ] {
        let words = Header::decode(header, 300).unwrap_err().to_string();
        assert!(words.contains(rule), "{words}");
    }
}

#[test]
fn an_unread_stream_holds_up_nobody() {
    let (mut a, mut b) = pair(ROOMY);
    let (unread, other) = (
        a.open(StreamClass::Bulk).unwrap(),
        a.open(StreamClass::Bulk).unwrap(),
    );
    let mut arrived = 0;
    for _ in 0..100 {
        let _ = a.write(unread, &[1; 500]).unwrap();
        let _ = a.write(other, &[2; 500]).unwrap();
        settle(&mut a, &mut b);
        while let Poll::Ready(Read::Bytes(bytes)) = b.read(other, usize::MAX) {
            arrived += bytes.len();
        }
        settle(&mut a, &mut b);
    }
    assert!(arrived > 40_000);
    assert_eq!(1000, b.state.streams[&unread].recv.unread_bytes);
}

#[test]
fn control_goes_before_bulk_and_bulk_in_turn() {
    let (mut a, mut b) = pair(ROOMY);
    let bulk = [
        a.open(StreamClass::Bulk).unwrap(),
        a.open(StreamClass::Bulk).unwrap(),
    ];
    let control = a.open(StreamClass::Control).unwrap();
    for id in bulk {
        assert_eq!(700, a.write(id, &[1; 700]).unwrap());
    }
    // The send buffer is nearly full, which is no concern of a control stream.
    assert_eq!(900, a.write(control, &[1; 900]).unwrap());
    let mut order = Vec::new();
    for _ in 0..9 {
        a.send_to(&mut b, 1);
        while let Some(frame) = next_frame(&mut b) {
            if let Frame::Data { stream, .. } = frame {
                order.push(stream);
            }
        }
    }
    let [x, y] = bulk;
    assert_eq!(vec![control, control, control, x, y, x, y, x, y], order);
}

fn next_frame(side: &mut Side) -> Option<Frame> {
    let mut space = side.assembler.space();
    space.put_slice(&std::mem::take(&mut side.wire));
    side.assembler.next_frame().unwrap()
}

#[test]
fn what_was_finished_arrives_before_the_reason() {
    let (mut a, mut b) = pair(ROOMY);
    let done = a.open(StreamClass::Bulk).unwrap();
    let open = a.open(StreamClass::Bulk).unwrap();
    let wakes = &mut Wakes::default();
    a.write(done, &[1; 600]).unwrap();
    a.state.finish(done, wakes);
    a.write(open, &[1; 600]).unwrap();
    a.state.close(Some("enough"), wakes);
    assert_eq!(Err(WriteError::Closed), a.write(open, &[1]));
    a.send_to(&mut b, usize::MAX);
    let events = b.receive(usize::MAX).unwrap();
    let bye = Event::GoAway(Bytes::from_static(b"enough"));
    assert_eq!(Some(&bye), events.last());
    assert_eq!(Some(done), b.accept());
    b.state.close(None, wakes);
    let mut read = 0;
    while let Poll::Ready(Read::Bytes(bytes)) = b.read(done, usize::MAX) {
        read += bytes.len();
    }
    assert_eq!(600, read);
    assert!(is_clean_end(&b.read(done, 1)));
    assert!(!b.state.streams.contains_key(&open));
}

#[test]
fn a_whole_write_arrives_in_one_aligned_piece() {
    let limits = Limits {
        stream_window_bytes: 1 << 20,
        early_window_bytes: 1 << 20,
        early_limit_bytes: 1 << 20,
        max_frame_bytes: 1 << 18,
        send_buffer_bytes: 1 << 20,
        ..ROOMY
    };
    let (mut a, mut b) = pair(limits);
    let id = a.open(StreamClass::Bulk).unwrap();
    for _ in 0..9 {
        let header = Bytes::from(vec![1; 16]);
        let payload = Bytes::from(vec![2; 100_001]);
        let mut chunks = VecDeque::from([header, payload]);
        let wakes = &mut Wakes::default();
        let written = a.state.poll_write(id, &mut cx(), &mut chunks, wakes);
        assert_eq!(Poll::Ready(Ok(())), written);
    }
    settle(&mut a, &mut b);
    for _ in 0..9 {
        let Poll::Ready(Read::Bytes(chunk)) = b.read(id, usize::MAX) else {
            panic!("nothing arrived");
        };
        assert_eq!(100_017, chunk.len());
        assert_eq!(0, chunk.slice(16..).as_ptr().addr() % 64);
    }
}

#[test]
fn a_stream_that_was_never_announced_costs_the_peer_nothing() {
    let (mut a, mut b) = pair(ROOMY);
    for _ in 0..100 {
        let id = a.open(StreamClass::Bulk).unwrap();
        drop_both(&mut a, id);
        a.send_to(&mut b, usize::MAX);
    }
    assert!(b.wire.is_empty() && a.state.streams.is_empty());
}

#[test]
fn a_stop_is_answered_even_after_finish() {
    let (mut a, mut b) = pair(ROOMY);
    let id = a.open(StreamClass::Bulk).unwrap();
    let wakes = &mut Wakes::default();
    a.write(id, &[1; 900]).unwrap();
    a.send_to(&mut b, 1);
    b.receive(usize::MAX).unwrap();
    a.state.finish(id, wakes);
    b.state.stop(id, StreamCode(9), wakes);
    b.send_to(&mut a, usize::MAX);
    a.receive(usize::MAX).unwrap();
    assert_eq!(0, a.state.queued_bytes);
    assert_eq!(Err(WriteError::Stopped(StreamCode(9))), a.write(id, &[1]));
    settle(&mut a, &mut b);
    assert_eq!(
        Some(End::Reset(StreamCode(9))),
        b.state.streams[&id].recv.end
    );
}

#[test]
fn preambles_round_trip_and_others_are_named() {
    let ours = Preamble { limits: ROOMY };
    let bytes = ours.encode();
    for cut in 0..PREAMBLE_BYTES {
        assert_eq!(Ok(None), Preamble::decode(&bytes[..cut]));
    }
    let limits = Limits {
        stream_window_bytes: 4096,
        max_frame_bytes: 2048,
        ..ROOMY
    };
    let read = Preamble::decode(&Preamble { limits }.encode())
        .unwrap()
        .unwrap();
    assert_eq!(
        (4096, 2048, 4, 1024, 100_000),
        (
            read.limits.stream_window_bytes,
            read.limits.max_frame_bytes,
            read.limits.max_streams,
            read.limits.early_window_bytes,
            read.limits.early_limit_bytes,
        )
    );
    let mut tight = ours.encode();
    tight[24..28].fill(0);
    let err = Preamble::decode(&tight).unwrap_err().to_string();
    assert!(err.contains("T-3"), "{err}");
    let foreign = |bytes: &[u8]| Preamble::decode(bytes).unwrap_err().to_string();
    assert!(foreign(&[0x16, 3, 1]).contains("TLS"));
    assert!(foreign(b"PRI * HTTP/2.0").contains("gRPC"));
    assert!(foreign(b"GET /").contains("HTTP/1"));
    let mut newer = bytes;
    newer[8] = 7;
    assert_eq!(
        Err(PreambleError::Version(7)),
        Preamble::decode(&newer[..12])
    );
    assert!(foreign(&newer).contains("version 7") && foreign(&newer).contains("version 1"));
}

fn accept_and_read(side: &mut Side, id: u64) -> usize {
    assert_eq!(Some(id), side.accept());
    read_all(side, id)
}

fn read_all(side: &mut Side, id: u64) -> usize {
    let mut bytes = 0;
    while let Poll::Ready(Read::Bytes(chunk)) = side.read(id, usize::MAX) {
        bytes += chunk.len();
    }
    bytes
}

#[test]
fn a_stream_gets_its_whole_window_once_it_is_read() {
    let (mut a, mut b) = pair(LIMITS);
    let id = a.open(StreamClass::Bulk).unwrap();
    assert_eq!(400, a.write(id, &[1; 1500]).unwrap());
    settle(&mut a, &mut b);
    // To accept is not enough: nobody may read it.
    assert_eq!(Some(id), b.accept());
    settle(&mut a, &mut b);
    assert_eq!(0, a.write(id, &[1; 1500]).unwrap());
    assert_eq!(400, read_all(&mut b, id));
    settle(&mut a, &mut b);
    assert_eq!(1000, a.write(id, &[1; 1500]).unwrap());
    // What answers it has the whole window from the start: its reader asked for it.
    assert_eq!(1000, b.write(id, &[1; 1500]).unwrap());
}

#[test]
fn streams_that_nobody_accepts_share_a_limit() {
    let (mut a, mut b) = pair(LIMITS);
    let open = |a: &mut Side| a.open(StreamClass::Control).unwrap();
    let (one, two, three) = (open(&mut a), open(&mut a), open(&mut a));
    assert_eq!(400, a.write(one, &[1; 500]).unwrap());
    assert_eq!(300, a.write(two, &[1; 500]).unwrap());
    assert_eq!(0, a.write(three, &[1; 500]).unwrap());
    settle(&mut a, &mut b);
    // One that was cut before it was accepted is held no more.
    a.state.reset(two, StreamCode(7), &mut Wakes::default());
    settle(&mut a, &mut b);
    assert_eq!(300, a.write(three, &[1; 500]).unwrap());
    settle(&mut a, &mut b);
    assert_eq!(400, accept_and_read(&mut b, one));
    assert_eq!(0, accept_and_read(&mut b, two));
    settle(&mut a, &mut b);
    assert_eq!(100, a.write(three, &[1; 500]).unwrap());
}

#[test]
fn what_was_never_sent_gives_its_early_bytes_back() {
    let (mut a, mut b) = pair(LIMITS);
    for _ in 0..100 {
        let id = a.open(StreamClass::Bulk).unwrap();
        assert_eq!(400, a.write(id, &[1; 500]).unwrap());
        drop_both(&mut a, id);
        // The same for one that the peer has heard of.
        let id = a.open(StreamClass::Bulk).unwrap();
        assert_eq!(400, a.write(id, &[1; 500]).unwrap());
        a.send_to(&mut b, 1);
        b.receive(usize::MAX).unwrap();
        drop_both(&mut a, id);
        settle(&mut a, &mut b);
        let theirs = b.accept().unwrap();
        drop_both(&mut b, theirs);
        settle(&mut a, &mut b);
    }
}

#[test]
fn more_early_bytes_than_allowed_are_a_violation() {
    let mut side = Side::new(Role::Listener, LIMITS);
    for stream in [0, 2] {
        side.on_frame(Frame::Open { stream }).unwrap();
    }
    side.on_frame(data(0, 300)).unwrap();
    side.on_frame(data(0, 100)).unwrap();
    side.on_frame(data(2, 300)).unwrap();
    let wakes = &mut Wakes::default();
    let sent = side.state.on_frame(data(2, 1), wakes);
    assert_eq!("T-25", rule_of(sent));
    let less = Frame::Early { bytes: 699 };
    assert_eq!("T-25", rule_of(side.state.on_frame(less, wakes)));
}

#[test]
fn a_reader_learns_that_its_stream_was_withdrawn() {
    let (mut a, _) = pair(LIMITS);
    let id = a.open(StreamClass::Bulk).unwrap();
    assert_eq!(Poll::Pending, a.read(id, 1));
    a.state.drop_send(id, &mut Wakes::default());
    a.check();
    assert!(matches!(
        a.read(id, 1),
        Poll::Ready(Read::End(End::Reset(_)))
    ));
}

#[test]
fn a_withdrawn_stream_leaves_its_room_to_others() {
    let (mut a, _) = pair(ROOMY);
    let [one, two, three] = [(); 3].map(|()| a.open(StreamClass::Bulk).unwrap());
    assert_eq!(1000, a.write(one, &[1; 1000]).unwrap());
    assert_eq!(500, a.write(two, &[1; 500]).unwrap());
    assert_eq!(0, a.write(three, &[1; 500]).unwrap());
    drop_both(&mut a, one);
    drop_both(&mut a, two);
    a.check();
    assert_eq!(500, a.write(three, &[1; 500]).unwrap());
}

/// A message that is kept keeps nothing else alive.
#[test]
fn large_payloads_have_allocations_of_their_own() {
    let limits = Limits {
        stream_window_bytes: 1 << 20,
        early_window_bytes: 1 << 20,
        early_limit_bytes: 1 << 20,
        max_frame_bytes: 1 << 18,
        ..LIMITS
    };
    let (mut a, mut b) = pair(limits);
    let id = a.open(StreamClass::Control).unwrap();
    for bytes in [5000, 200_000, 5000, 70_000] {
        assert_eq!(bytes, a.write(id, &vec![1; bytes]).unwrap());
        settle(&mut a, &mut b);
    }
    let kept = [5000, 200_000, 5000, 70_000].map(|bytes| {
        let Poll::Ready(Read::Bytes(chunk)) = b.read(id, usize::MAX) else {
            panic!("nothing arrived");
        };
        assert_eq!(bytes, chunk.len());
        chunk
    });
    assert!(b.assembler.is_staging_free());
    drop(kept);
}
