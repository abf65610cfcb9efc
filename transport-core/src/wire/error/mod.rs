//! [`ErrorMessage`]: a [`DataFusionError`] on the wire, so that what a worker raised arrives as the same variant.
//!
//! # Shape
//!
//! An error is a tree: a `Context` holds another error, an arrow error may hold any error at all, a `Collection` holds
//! many. The message is that tree written flat, in pre-order, each node with its number of children. So the bytes nest
//! to the same small depth whatever the error does, and neither side needs a recursive parser for what a peer sent.
//!
//! Every error value is one node. `DataFusionError::ArrowError(ArrowError::ExternalError(DataFusionError::Plan))` is
//! three.
//!
//! # What arrives
//!
//! The same variant with the same `Display` text, also for errors held by other errors as `dyn Error`, as long as they
//! are of `DataFusionError`, `ArrowError`, `ParquetError`, `object_store::Error` or `io::Error`. The exceptions:
//!
//! | raised | arrives as |
//! |---|---|
//! | an error of another type inside `External` and the like | [`RemoteError`], with its text and its sources |
//! | `ExecutionJoin` | `External` with the whole text, panic message included: a `JoinError` cannot be built |
//! | `object_store::Error::JoinError` | `object_store::Error::Generic` with the whole text, for the same reason |
//! | `ParquetError` or `SQL`, where a side lacks the feature `parquet` or `sql` | `External` with the whole text |
//! | `io::Error` of the operating system | same kind and text, without the system's number |
//! | an error nested more than [`MAX_DEPTH`] levels | same text; the levels beyond are merged into text |
//! | `FieldNotFound` with names of some 10 KiB and more | without its valid fields, which take too long to compare |
//! | a `Collection` beyond [`MAX_NODES`] errors | the first ones and a text saying how many are missing |

mod arrow;
mod decode;
mod diagnostic;
mod encode;
mod flatten;
mod io;
mod message;
mod object_store;
mod parquet;
mod path;
mod remote;
mod schema;
mod sql;
mod store_name;

#[cfg(test)]
mod tests;

use datafusion::error::DataFusionError;

pub use message::ErrorMessage;
pub use remote::RemoteError;

/// Levels of errors within errors that travel as errors of their own.
///
/// The engine nests a handful of levels. 64 leaves room for a plan that adds a context per operator, while building,
/// printing and dropping the decoded error, which recurse once per level, stay within some tens of KiB of stack.
pub const MAX_DEPTH: usize = 64;

/// Error values that one message carries.
///
/// More than anyone reads. Collections that share their members could otherwise double with every level.
pub const MAX_NODES: usize = 4096;

/// Puts an error into a message.
///
/// The message holds every text of the error once and whole: its size is not capped here. Recursion is bounded by
/// [`MAX_DEPTH`], however deep `err` is.
pub fn encode_error(err: &DataFusionError) -> ErrorMessage {
    encode::encode(err)
}

/// Takes the error out of a message.
///
/// Never fails: where the message is empty, incomplete, or of a newer protocol, the result is an
/// [`External`](DataFusionError::External) whose text says so and keeps the texts that could be read. Recursion is
/// bounded by [`MAX_DEPTH`], whatever the message says.
pub fn decode_error(msg: ErrorMessage) -> DataFusionError {
    decode::decode(msg)
}
