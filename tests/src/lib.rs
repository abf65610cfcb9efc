//! The conformance kit.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

pub mod case;
pub mod channel;
pub mod cluster;
pub mod connection;
mod feed;
pub mod harness;
mod probe;
pub mod report;
mod rig;
pub mod rows;
mod service;
mod silence;
mod wait;

pub use case::{Capability, Case, Shortcoming, Subject, Symptom, Trial, Verdict, check};
pub use feed::{FeedExec, Unit};
pub use harness::{ChannelHarness, ConnectionHarness, Served, Service};
pub use probe::{PartitionProbe, ProbeCodec, ProbeExec};
pub use rig::{BUDGET, Execution, Rig, Task, WORKER_VERSION, compression, new_key};
pub use silence::{Suspendable, Suspended};
pub use wait::{SOON, eventually, never, within};
