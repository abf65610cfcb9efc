//! Benchmarks of the transports against the reference gRPC transport: what is measured, and how.
//!
//! A [`scenario`] says what crosses the network, a [`subject`] carries it, [`rounds`] runs all subjects in turns so that drift
//! hits all alike, [`samples`] keeps what was seen, [`targets`] says what it must come to, and program `bench-report`
//! prints that. `cargo bench` runs it all; `docs/performance.md` shows a run.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod copies;
pub mod fit;
pub mod grpc;
pub mod impaired;
pub mod memory;
pub mod pipe;
pub mod plot;
pub mod report;
pub mod rounds;
pub mod samples;
pub mod scenario;
pub mod subject;
pub mod targets;
pub mod timeline;
pub mod transfer;
pub mod waiting;
