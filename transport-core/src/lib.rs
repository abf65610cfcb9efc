//! Shared core of the transports for distributed DataFusion.
#![forbid(unsafe_code)]

pub mod connection;
pub mod error;
pub mod wire;
