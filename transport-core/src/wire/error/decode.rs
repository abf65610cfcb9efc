//! From nodes in pre-order to an error.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::vec;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use super::message::{ErrorMessage, Kind, Node};
use super::remote::RemoteError;
use super::{MAX_DEPTH, arrow, diagnostic, object_store as store, parquet, path, schema, sql};

pub(super) fn decode(msg: ErrorMessage) -> DataFusionError {
    Decoder {
        nodes: msg.nodes.into_iter(),
    }
    .value(0)
    .into_datafusion()
}

/// The nodes not yet read.
struct Decoder {
    nodes: vec::IntoIter<Node>,
}

impl Decoder {
    /// The next error, with all that it holds. Recurses up to [`MAX_DEPTH`].
    fn value(&mut self, depth: usize) -> Value {
        let Some(node) = self.nodes.next() else {
            return Value::or_missing(None);
        };
        if depth >= MAX_DEPTH {
            return self.flattened(node);
        }
        let mut held = Vec::new();
        for _ in 0..node.children {
            if self.nodes.as_slice().is_empty() {
                break;
            }
            held.push(self.value(depth + 1));
        }
        match node.kind {
            Some(kind) => assemble(kind, held),
            None => Value::unknown("error", "", held.into_iter().next()),
        }
    }

    /// The texts of a node and all below it. Only a peer that nests deeper than we do sends such nodes.
    fn flattened(&mut self, root: Node) -> Value {
        let mut text = format!("errors nested more than {MAX_DEPTH} levels:");
        let mut pending = 0_u64;
        let mut next = Some(root);
        while let Some(node) = next {
            if let Some(own) = node
                .kind
                .as_ref()
                .map(Kind::text)
                .filter(|own| !own.is_empty())
            {
                text.push('\n');
                text.push_str(own);
            }
            pending = pending.saturating_add(u64::from(node.children));
            if pending == 0 {
                break;
            }
            pending -= 1;
            next = self.nodes.next();
        }
        Value::Remote(RemoteError::new(text))
    }
}

/// A decoded error of one of the types that travel.
pub(super) enum Value {
    DataFusion(DataFusionError),
    Arrow(ArrowError),
    #[cfg(feature = "parquet")]
    Parquet(::parquet::errors::ParquetError),
    ObjectStore(object_store::Error),
    Path(object_store::path::Error),
    Io(io::Error),
    Remote(RemoteError),
}

impl Value {
    /// The error held, or one that says that the peer sent none.
    pub(super) fn or_missing(held: Option<Self>) -> Self {
        held.unwrap_or_else(|| {
            Self::Remote(RemoteError::new("the peer's message lacks this error"))
        })
    }

    /// The error for a variant that has no meaning here, with the texts that came with it.
    pub(super) fn unknown(what: &str, text: &str, held: Option<Self>) -> Self {
        let mut all = format!("{what} of a kind that this side does not know");
        if !text.is_empty() {
            all.push_str(": ");
            all.push_str(text);
        }
        match held {
            Some(held) => held.into_text(&format!("{all}: "), ""),
            None => Self::Remote(RemoteError::new(all)),
        }
    }

    /// The text of this error between two others. Keeps no second copy: each level of a peer's message may come here.
    pub(super) fn into_text(self, prefix: &str, suffix: &str) -> Self {
        let text = super::flatten::text(self.into_boxed().as_ref());
        Self::Remote(RemoteError::new(format!("{prefix}{text}{suffix}")))
    }

    pub(super) fn into_boxed(self) -> Box<dyn Error + Send + Sync> {
        match self {
            Self::DataFusion(err) => Box::new(err),
            Self::Arrow(err) => Box::new(err),
            #[cfg(feature = "parquet")]
            Self::Parquet(err) => Box::new(err),
            Self::ObjectStore(err) => Box::new(err),
            Self::Path(err) => Box::new(err),
            Self::Io(err) => Box::new(err),
            Self::Remote(err) => Box::new(err),
        }
    }

    fn into_datafusion(self) -> DataFusionError {
        match self {
            Self::DataFusion(err) => err,
            other => DataFusionError::External(other.into_boxed()),
        }
    }
}

/// One error from its node and the errors it holds.
fn assemble(kind: Kind, held: Vec<Value>) -> Value {
    if let Kind::Collection(()) = kind {
        return collection(held);
    }
    let held = held.into_iter().next();
    match kind {
        Kind::RemoteValue(text) => {
            Value::Remote(RemoteError::with_source(text, held.map(Value::into_boxed)))
        }
        Kind::ArrowValue(msg) => arrow::decode(*msg, held),
        Kind::ParquetValue(msg) => parquet::decode(*msg, held),
        Kind::ObjectStoreValue(msg) => Value::ObjectStore(store::decode(*msg, held)),
        Kind::PathValue(msg) => path::decode(*msg, held),
        Kind::IoValue(msg) => Value::Io(super::io::decode(*msg, held)),
        Kind::NotImplemented(text) => Value::DataFusion(DataFusionError::NotImplemented(text)),
        Kind::Internal(text) => Value::DataFusion(DataFusionError::Internal(text)),
        Kind::Plan(text) => Value::DataFusion(DataFusionError::Plan(text)),
        Kind::Configuration(text) => Value::DataFusion(DataFusionError::Configuration(text)),
        Kind::Execution(text) => Value::DataFusion(DataFusionError::Execution(text)),
        Kind::ResourcesExhausted(text) => {
            Value::DataFusion(DataFusionError::ResourcesExhausted(text))
        }
        Kind::Substrait(text) => Value::DataFusion(DataFusionError::Substrait(text)),
        Kind::Ffi(text) => Value::DataFusion(DataFusionError::Ffi(text)),
        Kind::Sql(msg) => Value::DataFusion(sql::decode(*msg)),
        Kind::Schema(msg) => Value::DataFusion(schema::decode(*msg)),
        wrapper => wrap(wrapper, Value::or_missing(held)),
    }
}

/// A variant of `DataFusionError` around the error it holds. One that cannot hold an error of this type becomes text.
fn wrap(kind: Kind, held: Value) -> Value {
    Value::DataFusion(match (kind, held) {
        (Kind::Context(description), held) => {
            DataFusionError::Context(description, Box::new(held.into_datafusion()))
        }
        (Kind::Diagnostic(msg), held) => DataFusionError::Diagnostic(
            Box::new(diagnostic::decode(*msg)),
            Box::new(held.into_datafusion()),
        ),
        (Kind::Shared(()), held) => DataFusionError::Shared(Arc::new(held.into_datafusion())),
        (Kind::External(()), held) => DataFusionError::External(held.into_boxed()),
        (Kind::Arrow(backtrace), Value::Arrow(err)) => {
            DataFusionError::ArrowError(Box::new(err), backtrace.text)
        }
        (Kind::Arrow(backtrace), other) => {
            return other.into_text("Arrow error: ", backtrace.text.as_deref().unwrap_or(""));
        }
        #[cfg(feature = "parquet")]
        (Kind::Parquet(()), Value::Parquet(err)) => DataFusionError::ParquetError(Box::new(err)),
        (Kind::Parquet(()), other) => return other.into_text("Parquet error: ", ""),
        (Kind::ObjectStore(()), Value::ObjectStore(err)) => {
            DataFusionError::ObjectStore(Box::new(err))
        }
        (Kind::ObjectStore(()), other) => return other.into_text("Object Store error: ", ""),
        (Kind::Io(()), Value::Io(err)) => DataFusionError::IoError(err),
        (Kind::Io(()), other) => return other.into_text("IO error: ", ""),
        (_, other) => return other,
    })
}

fn collection(errors: Vec<Value>) -> Value {
    if errors.is_empty() {
        // The engine panics on displaying a collection of none.
        return Value::Remote(RemoteError::new("the peer sent a collection of no errors"));
    }
    let errors = errors.into_iter().map(Value::into_datafusion).collect();
    Value::DataFusion(DataFusionError::Collection(errors))
}
