//! A hostile peer of the multiplexer, and a user of it who does whatever a user may do. Any broken invariant is a panic.
//!
//! `cargo +nightly fuzz run multiplexer -- -max_len=4096` in `transport-tcp`. The test
//! `any_bytes_and_acts_keep_the_invariants` calls the same function with random bytes on every test run.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| datafusion_transport_tcp::fuzzing::hostile_peer(data));
