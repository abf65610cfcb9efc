//! A hostile peer of the multiplexer, and a user of it who does whatever a user may do. Any broken invariant is a panic.
//!
//! In `transport-tcp`, with `cargo install cargo-fuzz` and a nightly compiler (or `RUSTC_BOOTSTRAP=1`):
//! `cargo fuzz run --dev -s none multiplexer -- -max_len=4096 -rss_limit_mb=2048 -malloc_limit_mb=64`. The test
//! `any_bytes_and_acts_keep_the_invariants` calls the same function with random bytes on every test run.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| datafusion_transport_tcp::fuzzing::hostile_peer(data));
