//! From an error to nodes in pre-order.

use std::error::Error;
use std::io;
use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use super::message::{Backtrace, ErrorMessage, Kind, Node};
use super::{MAX_DEPTH, MAX_NODES, arrow, diagnostic, flatten, schema};

/// From this level on, an error is merged into a last few levels: at most a context, `ObjectStore`, `InvalidPath`,
/// `Canonicalize`, an I/O error and a text.
const FLATTEN_DEPTH: usize = MAX_DEPTH - 6;

pub(super) fn encode(err: &DataFusionError) -> ErrorMessage {
    let mut encoder = Encoder { nodes: Vec::new() };
    encoder.error(err, 0);
    ErrorMessage {
        nodes: encoder.nodes,
    }
}

/// The nodes so far. A method that takes `depth` appends an error with all that it holds; `depth` is how many errors
/// hold it.
pub(super) struct Encoder {
    nodes: Vec<Node>,
}

impl Encoder {
    /// Appends one node. The caller appends its children next.
    pub(super) fn push(&mut self, kind: Kind, children: usize) {
        self.nodes.push(Node {
            children: u32::try_from(children).unwrap_or(u32::MAX),
            kind: Some(kind),
        });
    }

    /// Appends an error of any type: as itself where its type is known and there are levels left, else as text.
    pub(super) fn source(&mut self, err: &(dyn Error + 'static), depth: usize) {
        if depth >= FLATTEN_DEPTH {
            self.push(Kind::RemoteValue(flatten::text(err)), 0);
        } else if let Some(err) = err.downcast_ref::<DataFusionError>() {
            self.error(err, depth);
        } else if let Some(err) = err.downcast_ref::<Arc<DataFusionError>>() {
            self.push(Kind::Shared(()), 1);
            self.error(err, depth + 1);
        } else if let Some(err) = err.downcast_ref::<ArrowError>() {
            arrow::encode(self, err, depth);
        } else if let Some(err) = err.downcast_ref::<object_store::Error>() {
            super::object_store::encode(self, err, depth);
        } else if let Some(err) = err.downcast_ref::<object_store::path::Error>() {
            super::path::encode(self, err, depth);
        } else if let Some(err) = err.downcast_ref::<io::Error>() {
            super::io::encode(self, err, depth);
        } else {
            self.other(err, depth);
        }
    }

    fn other(&mut self, err: &(dyn Error + 'static), depth: usize) {
        #[cfg(feature = "parquet")]
        if let Some(err) = err.downcast_ref::<::parquet::errors::ParquetError>() {
            return super::parquet::encode(self, err, depth);
        }
        let source = err.source();
        self.push(
            Kind::RemoteValue(err.to_string()),
            usize::from(source.is_some()),
        );
        if let Some(source) = source {
            self.source(source, depth + 1);
        }
    }

    fn error(&mut self, err: &DataFusionError, depth: usize) {
        if depth < FLATTEN_DEPTH {
            return self.variant(err, depth);
        }
        match flatten::merge_contexts(err) {
            (Some(context), err) => {
                self.push(Kind::Context(context), 1);
                self.variant(err, depth + 1);
            }
            (None, err) => self.variant(err, depth),
        }
    }

    fn variant(&mut self, err: &DataFusionError, depth: usize) {
        match err {
            DataFusionError::ArrowError(err, backtrace) => {
                let text = backtrace.clone();
                self.push(Kind::Arrow(Backtrace { text }), 1);
                arrow::encode(self, err, depth + 1);
            }
            DataFusionError::ObjectStore(err) => {
                self.push(Kind::ObjectStore(()), 1);
                super::object_store::encode(self, err, depth + 1);
            }
            DataFusionError::IoError(err) => {
                self.push(Kind::Io(()), 1);
                super::io::encode(self, err, depth + 1);
            }
            DataFusionError::External(err) => {
                self.push(Kind::External(()), 1);
                self.source(err.as_ref(), depth + 1);
            }
            DataFusionError::Context(description, err) => {
                self.push(Kind::Context(description.clone()), 1);
                self.error(err, depth + 1);
            }
            DataFusionError::Diagnostic(diagnostic, err) => {
                let msg = diagnostic::encode(diagnostic);
                self.push(Kind::Diagnostic(Box::new(msg)), 1);
                self.error(err, depth + 1);
            }
            DataFusionError::Shared(err) => {
                self.push(Kind::Shared(()), 1);
                self.error(err, depth + 1);
            }
            DataFusionError::Collection(errors) => self.collection(errors, depth),
            #[cfg(feature = "parquet")]
            DataFusionError::ParquetError(err) => {
                self.push(Kind::Parquet(()), 1);
                super::parquet::encode(self, err, depth + 1);
            }
            leaf => self.leaf(leaf),
        }
    }

    /// Appends a variant that holds no error which travels.
    fn leaf(&mut self, err: &DataFusionError) {
        let kind = match err {
            DataFusionError::NotImplemented(text) => Kind::NotImplemented(text.clone()),
            DataFusionError::Internal(text) => Kind::Internal(text.clone()),
            DataFusionError::Plan(text) => Kind::Plan(text.clone()),
            DataFusionError::Configuration(text) => Kind::Configuration(text.clone()),
            DataFusionError::Execution(text) => Kind::Execution(text.clone()),
            DataFusionError::ResourcesExhausted(text) => Kind::ResourcesExhausted(text.clone()),
            DataFusionError::Substrait(text) => Kind::Substrait(text.clone()),
            DataFusionError::Ffi(text) => Kind::Ffi(text.clone()),
            DataFusionError::SchemaError(err, backtrace) => {
                let msg = schema::encode(err, backtrace.as_ref().as_ref());
                Kind::Schema(Box::new(msg))
            }
            #[cfg(feature = "sql")]
            DataFusionError::SQL(err, backtrace) => {
                Kind::Sql(Box::new(super::sql::encode(err, backtrace.as_ref())))
            }
            // `ExecutionJoin`, and what this crate knows only with its features.
            other => {
                self.push(Kind::External(()), 1);
                Kind::RemoteValue(other.to_string())
            }
        };
        self.push(kind, 0);
    }

    fn collection(&mut self, errors: &[DataFusionError], depth: usize) {
        let own = self.nodes.len();
        self.push(Kind::Collection(()), errors.len());
        for (sent, err) in errors.iter().enumerate() {
            // The first one always goes: it is what the collection displays.
            if sent > 0 && self.nodes.len() >= MAX_NODES {
                let rest = errors.len() - sent;
                let text = format!("{rest} further errors of this collection were not sent");
                self.push(Kind::RemoteValue(text), 0);
                if let Some(node) = self.nodes.get_mut(own) {
                    node.children = u32::try_from(sent + 1).unwrap_or(u32::MAX);
                }
                return;
            }
            self.error(err, depth + 1);
        }
    }
}
