//! The prost messages. Field numbers are part of the protocol: never reuse one.

use super::arrow::ArrowMessage;
use super::diagnostic::DiagnosticMessage;
use super::io::IoMessage;
use super::object_store::ObjectStoreMessage;
use super::parquet::ParquetMessage;
use super::path::PathMessage;
use super::schema::SchemaMessage;
use super::sql::SqlMessage;

/// An error as it travels. Built by [`encode_error`](super::encode_error), read by
/// [`decode_error`](super::decode_error).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ErrorMessage {
    /// The tree of error values in pre-order: the error itself, then what it holds.
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<Node>,
}

/// One error value.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Node {
    /// How many errors this one holds. Their nodes, each with all that it holds, follow this one.
    #[prost(uint32, tag = "1")]
    pub(super) children: u32,
    #[prost(
        oneof = "Kind",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 32, 33, 34, 35, 36, 37"
    )]
    pub(super) kind: Option<Kind>,
}

/// Which error a node is. Anything larger than a string is boxed, to keep small what a peer can make us allocate with
/// two bytes.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Kind {
    // `DataFusionError`. The unit ones say all by what they hold.
    #[prost(message, tag = "2")]
    Arrow(Backtrace),
    #[prost(message, tag = "3")]
    Parquet(()),
    #[prost(message, tag = "4")]
    ObjectStore(()),
    #[prost(message, tag = "5")]
    Io(()),
    #[prost(message, boxed, tag = "6")]
    Sql(Box<SqlMessage>),
    #[prost(string, tag = "7")]
    NotImplemented(String),
    #[prost(string, tag = "8")]
    Internal(String),
    #[prost(string, tag = "9")]
    Plan(String),
    #[prost(string, tag = "10")]
    Configuration(String),
    #[prost(message, boxed, tag = "11")]
    Schema(Box<SchemaMessage>),
    #[prost(string, tag = "12")]
    Execution(String),
    #[prost(string, tag = "13")]
    ResourcesExhausted(String),
    #[prost(message, tag = "14")]
    External(()),
    #[prost(string, tag = "15")]
    Context(String),
    #[prost(string, tag = "16")]
    Substrait(String),
    #[prost(message, boxed, tag = "17")]
    Diagnostic(Box<DiagnosticMessage>),
    #[prost(message, tag = "18")]
    Collection(()),
    #[prost(message, tag = "19")]
    Shared(()),
    #[prost(string, tag = "20")]
    Ffi(String),

    // Errors of other types, held by one of the above or by each other.
    #[prost(string, tag = "32")]
    RemoteValue(String),
    #[prost(message, boxed, tag = "33")]
    ArrowValue(Box<ArrowMessage>),
    #[prost(message, boxed, tag = "34")]
    ParquetValue(Box<ParquetMessage>),
    #[prost(message, boxed, tag = "35")]
    ObjectStoreValue(Box<ObjectStoreMessage>),
    #[prost(message, boxed, tag = "36")]
    PathValue(Box<PathMessage>),
    #[prost(message, boxed, tag = "37")]
    IoValue(Box<IoMessage>),
}

/// The backtrace that the engine keeps beside an error. Absent and empty are not the same.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Backtrace {
    #[prost(string, optional, tag = "1")]
    pub(super) text: Option<String>,
}

impl Kind {
    /// The text that the node itself carries, where it has one.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::NotImplemented(text)
            | Self::Internal(text)
            | Self::Plan(text)
            | Self::Configuration(text)
            | Self::Execution(text)
            | Self::ResourcesExhausted(text)
            | Self::Context(text)
            | Self::Substrait(text)
            | Self::Ffi(text)
            | Self::RemoteValue(text) => text,
            Self::Sql(msg) => &msg.text,
            Self::Diagnostic(msg) => &msg.message,
            Self::ArrowValue(msg) => &msg.text,
            Self::ParquetValue(msg) => &msg.text,
            Self::ObjectStoreValue(msg) => &msg.text,
            Self::PathValue(msg) => &msg.text,
            Self::IoValue(msg) => &msg.text,
            Self::Arrow(_)
            | Self::Parquet(())
            | Self::ObjectStore(())
            | Self::Io(())
            | Self::Schema(_)
            | Self::External(())
            | Self::Collection(())
            | Self::Shared(()) => "",
        }
    }
}
