//! Benchmarks live in `benches/`; nothing is shared among them yet.
#![forbid(unsafe_code)]
