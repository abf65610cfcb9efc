//! A peer that sends anything: never a panic, bounded memory, and each broken rule is named.

use crate::mux::frame::Frame;
use crate::mux::fuzzing::{Victim, hostile_peer};
use crate::mux::state::Role;
use datafusion_transport_core::connection::StreamCode;
use proptest::prelude::*;

fn frame() -> impl Strategy<Value = Frame> {
    let stream = prop_oneof![8 => 0..12_u64, 1 => any::<u64>()];
    let code = any::<u32>().prop_map(StreamCode);
    prop_oneof![
        4 => stream.clone().prop_map(|stream| Frame::Open { stream }),
        6 => (stream.clone(), 1..300_usize).prop_map(|(stream, bytes)| Frame::Data {
            stream,
            payload: vec![7; bytes].into(),
        }),
        2 => (stream.clone(), 1..1500_u32).prop_map(|(stream, bytes)| Frame::Window { stream, bytes }),
        1 => (stream.clone(), Just(u32::MAX)).prop_map(|(stream, bytes)| Frame::Window { stream, bytes }),
        2 => stream.clone().prop_map(|stream| Frame::Finish { stream }),
        2 => (stream.clone(), code.clone()).prop_map(|(stream, code)| Frame::Reset { stream, code }),
        2 => (stream, code).prop_map(|(stream, code)| Frame::Stop { stream, code }),
        1 => prop_oneof![0..20_u64, any::<u64>()].prop_map(|streams| Frame::Allow { streams }),
        1 => prop_oneof![0..2000_u64, any::<u64>()].prop_map(|bytes| Frame::Early { bytes }),
        1 => any::<u64>().prop_map(|nonce| Frame::Ping { nonce }),
        1 => any::<u64>().prop_map(|nonce| Frame::Pong { nonce }),
        1 => Just(Frame::GoAway { reason: bytes::Bytes::from_static(b"\xff bye") }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_frames_are_taken_or_a_violation(
        role in prop_oneof![Just(Role::Connector), Just(Role::Listener)],
        frames in prop::collection::vec((frame(), any::<u8>(), any::<u8>()), 0..300),
    ) {
        let mut side = Victim::new(role);
        for (frame, what, which) in frames {
            side.act(what, which);
            if let Err(violation) = side.on_frame(frame) {
                let words = violation.to_string();
                prop_assert!(words.contains("(T-"), "{}", words);
                break;
            }
        }
    }

    /// What the fuzzer does, without its search.
    #[test]
    fn any_bytes_and_acts_keep_the_invariants(
        bytes in prop::collection::vec(prop_oneof![3 => 0..13_u8, 1 => any::<u8>()], 0..2000),
    ) {
        hostile_peer(&bytes);
    }
}

/// A stream that was finished and not announced yet when its connection was closed: the writer ends it.
#[test]
fn streams_that_were_finished_before_a_close_are_ended() {
    hostile_peer(b"\x0aCC\x0aCC\x04/\x09\xff\xffk\x0a/");
}

/// A stream whose user had left it, and whose reset was not sent yet when its connection was closed, goes with the close.
#[test]
fn streams_that_were_left_before_a_close_are_forgotten() {
    hostile_peer(b"\xbe\x01\x00\xfe\xff\x8a\x8a\x1b\x2a\x3a\x8a\x2a\x2d\x77\x23");
}

/// A stream that nobody accepted before a close is in no queue after it.
#[test]
fn streams_that_were_not_accepted_before_a_close_are_forgotten() {
    hostile_peer(b"\x9a\x01\x7b\x7b\x7b\x01\x00\x00\x00\x01\xf6\x00\x00\x00\x8e");
}
