//! The conformance kit: what a transport promises, as cases that any transport can be held to.
//!
//! Three lists, each with a trait for those who implement and a macro that makes a test of each case:
//!
//! | contract | list | trait | macro |
//! |---|---|---|---|
//! | of a multiplexed connection | [`connection::CASES`] | [`ConnectionHarness`] | [`connection_contract!`] |
//! | of a `WorkerChannel` | [`channel::CASES`] | [`ChannelHarness`] | [`channel_contract!`] |
//! | of a cluster under SQL | [`cluster::CASES`] | [`ChannelHarness`] | [`cluster_contract!`] |
//!
//! A [`ConnectionHarness`] is a [`ChannelHarness`] too. `tests/README.md` teaches how to write one, `docs/contract.md` states the contract in prose, and
//! program `contract-report` prints how our transports keep it ([`report`]).
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
