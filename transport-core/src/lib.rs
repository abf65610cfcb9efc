//! Shared core of the transports for distributed DataFusion.
//!
//! `datafusion-distributed` runs a query's stages on many workers, which exchange record batches through the trait
//! `WorkerChannel`. This crate implements that trait once, over anything that carries independent streams:
//!
//! ```text
//!   engine:     WorkerChannel                                    Worker
//!                    |                                              |
//!   client/     PooledChannel --- PartitionStream     server/   serve_partition     <- upper seam: service.rs
//!                    |                 |                            |
//!   wire/          calls         frames, batches              frames, batches       (no I/O)
//!                    |                 |                            |
//!   seam:       Connector        RecvStream    <== network ==   SendStream          <- lower seam: connection.rs
//! ```
//!
//! - [`Transports`] registers transports by kind and wires them into sessions ([`TransportExt`]) and workers
//!   ([`Transports::worker`]). A session chooses with `SET transport.kind = 'quic'`.
//! - [`Server`] serves a worker over any set of listeners.
//! - [`connection`] is what a new network implements; [`memory`] is the smallest example. [`Target`] and, with feature
//!   `tls`, the module `tls` are what such networks have in common.
//! - [`service`] is what an engine with a worker of its own implements.
//!
//! The wire format is specified in `docs/protocol.md`, whose numbered rules the code cites.
#![forbid(unsafe_code)]

mod auto;
mod client;
pub mod config;
pub mod connection;
pub mod error;
mod framed;
#[cfg(feature = "grpc")]
mod grpc;
mod landing;
pub mod memory;
mod places;
mod race;
mod resolver;
mod runtime;
mod server;
pub mod service;
mod sweep;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
#[cfg(feature = "tls")]
pub mod tls;
mod transports;
pub mod wire;
mod worker;

pub use auto::{AutoChoice, AutoOptions};
pub use client::{PeerStats, PoolOptions};
pub use config::TransportOptions;
pub use error::{Delivery, ErrorKind, TransportError};
#[cfg(feature = "grpc")]
pub use grpc::GrpcStream;
pub use landing::Landing;
pub use places::{Origin, Place, Places};
pub use resolver::TransportResolver;
pub use runtime::IoRuntime;
pub use server::{Server, ServerBuilder, ServerHandle, ServerStats};
pub use service::{TaskOutput, WorkerService};
pub use target::Target;
pub use throttle::Throttle;
pub use transports::{TransportExt, Transports, TransportsBuilder};
pub use worker::WiredWorker;
