//! Transports that are broken on purpose, each in one way: what the kit must notice.

pub mod channel;
pub mod connection;
