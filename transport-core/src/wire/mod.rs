//! The wire format (`docs/protocol.md`): codecs without I/O and without a runtime.
//!
//! Everything here turns values into bytes and bytes into values. Decoders take what a peer sent: they never panic,
//! never allocate more than a small multiple of what was received, and name the field they could not accept.

pub mod batch;
pub mod call;
pub mod coordinator;
pub mod error;
pub mod frame;
pub mod headers;
pub mod metrics;
pub mod plan;
pub mod worker_info;

use std::fmt;

/// Bytes from a peer that are not what the protocol allows. Names the message and field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(String);

impl DecodeError {
    /// Builds an error; `what` names the message and the field, and says what was found.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// The error for a field that must be present.
    pub fn missing(field: &'static str) -> Self {
        Self(format!("field {field} is missing"))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

impl From<prost::DecodeError> for DecodeError {
    fn from(err: prost::DecodeError) -> Self {
        Self(err.to_string())
    }
}
