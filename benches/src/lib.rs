//! Reserved for what the benchmarks share. Empty so far.
#![forbid(unsafe_code)]
