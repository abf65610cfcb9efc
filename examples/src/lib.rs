//! Programs that run distributed SQL over the transports, and the parts they are made of.
//!
//! - [`worker`]: serves a worker, on every transport under one port number.
//! - [`query`]: runs SQL on a set of workers.
//! - [`certificates`]: makes the certificates of a cluster.
//! - [`local_cluster`]: starts worker processes, generates TPC-H data, runs queries and compares
//!   transports.
//!
//! Each program is a module with its arguments and a `run` function; its file in `src/bin` only
//! calls it. What other packages may want as well: [`tpch`] (data and queries), [`compare`] (are two
//! results equal), [`cluster`] and [`worker_process`] (workers in processes of their own).
//!
//! To see how a coordinator and a worker are wired, read `transports.rs`; which transports there are,
//! and how each is set up, is in `kind.rs` and `listening.rs`.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod cluster;
pub mod compare;
pub mod execution;
#[cfg(target_os = "linux")]
pub mod fifo;
mod grpc_client;
mod grpc_server;
pub mod kind;
pub mod listening;
pub mod local_cluster;
pub mod matrix;
mod named_worker;
mod on_demand;
pub mod output;
pub mod program;
pub mod query;
mod scratch;
pub mod session;
mod show;
pub mod sql_engine;
pub mod tables;
pub mod tls;
pub mod tpch;
pub mod traffic;
pub mod transports;
pub mod units;
pub mod worker;
pub mod worker_process;
pub mod workers;
