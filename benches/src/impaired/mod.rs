//! Links that are slow, far, or lose packets, and what the transports do over them. Program `impaired-links` runs it.
//!
//! A [`link`] is a TUN device in a network namespace of its own; [`bulk`], [`latency`] and [`independence`] are measured over it.

pub mod bulk;
pub mod independence;
pub mod latency;
pub mod link;
pub mod report;
pub mod subject;
