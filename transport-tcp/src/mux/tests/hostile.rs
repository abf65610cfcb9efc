//! A peer that sends anything: never a panic, bounded memory, and each broken rule is named.

use super::*;
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
        1 => any::<u64>().prop_map(|nonce| Frame::Ping { nonce }),
        1 => any::<u64>().prop_map(|nonce| Frame::Pong { nonce }),
        1 => Just(Frame::GoAway { reason: Bytes::from_static(b"\xff bye") }),
    ]
}

/// What the attacked side does meanwhile.
fn use_streams(side: &mut Side, choice: u8) {
    let wakes = &mut Wakes::default();
    let id = u64::from(choice % 12);
    match choice % 7 {
        0 => drop(side.open(StreamClass::Bulk)),
        1 => drop(side.accept()),
        2 => drop(side.read(id, 100)),
        3 => drop(side.write(id, &[3; 600])),
        4 => side.state.finish(id, wakes),
        5 => side.state.stop(id, StreamCode::CANCELLED, wakes),
        _ => {
            side.out.clear();
            side.state.fill(&mut side.out, 1000, wakes);
        }
    }
    side.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn any_frames_are_taken_or_a_violation(
        role in prop_oneof![Just(Role::Connector), Just(Role::Listener)],
        frames in prop::collection::vec((frame(), any::<u8>()), 0..300),
    ) {
        let mut side = Side::new(role, LIMITS);
        for (frame, choice) in frames {
            use_streams(&mut side, choice);
            if let Err(violation) = side.on_frame(frame) {
                let words = violation.to_string();
                prop_assert!(words.contains("(T-"), "{}", words);
                break;
            }
            let held: u64 = side.state.streams.values().map(|s| s.recv.unread_bytes).sum();
            prop_assert!(held <= 8 * 1000 + 8 * 1000);
        }
    }

    #[test]
    fn any_bytes_are_taken_or_a_violation(
        bytes in prop::collection::vec(prop_oneof![3 => 0..11_u8, 1 => any::<u8>()], 0..2000),
        cut in 1..500_usize,
    ) {
        let mut side = Side::new(Role::Listener, LIMITS);
        side.wire.extend_from_slice(&bytes);
        while !side.wire.is_empty() {
            if side.receive(cut).is_err() {
                break;
            }
        }
    }
}
