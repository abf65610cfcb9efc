#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod hostile;
mod nesting;
mod random;
mod storage;
mod variants;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use prost::Message;

use super::{ErrorMessage, MAX_DEPTH, MAX_NODES, RemoteError, decode_error, encode_error};

/// Encodes, sends as bytes, decodes.
fn trip(err: &DataFusionError) -> DataFusionError {
    let msg = encode_error(err);
    let bytes = msg.encode_to_vec();
    let received = ErrorMessage::decode(bytes.as_slice()).unwrap();
    assert_eq!(received, msg);
    decode_error(received)
}

/// Checks that an error arrives with the same variants and text, and returns it.
fn same(err: DataFusionError) -> DataFusionError {
    let got = trip(&err);
    assert_eq!(shape(&got), shape(&err));
    assert_eq!(got.to_string(), err.to_string());
    got
}

/// The variants of an error and of all it holds, such as `Context(ArrowError(ExternalError(Plan)))`.
fn shape(err: &(dyn Error + 'static)) -> String {
    if let Some(DataFusionError::Collection(errors)) = err.downcast_ref() {
        let errors: Vec<_> = errors.iter().map(|err| shape(err)).collect();
        return format!("Collection({})", errors.join(", "));
    }
    if let Some(shared) = err.downcast_ref::<Arc<DataFusionError>>() {
        return format!("Shared({})", shape(shared.as_ref()));
    }
    if let Some(err) = err.downcast_ref::<io::Error>() {
        let inner = err.get_ref().map_or("text".to_owned(), |err| shape(err));
        return format!("{:?}({inner})", err.kind());
    }
    match (name(err), err.source()) {
        (name, Some(source)) => format!("{name}({})", shape(source)),
        (name, None) => name,
    }
}

fn name(err: &(dyn Error + 'static)) -> String {
    let known = err.is::<DataFusionError>()
        || err.is::<ArrowError>()
        || err.is::<SchemaError>()
        || err.is::<object_store::Error>()
        || err.is::<object_store::path::Error>();
    #[cfg(feature = "parquet")]
    let known = known || err.is::<::parquet::errors::ParquetError>();
    #[cfg(feature = "sql")]
    let known = known || err.is::<datafusion::sql::sqlparser::parser::ParserError>();
    if !known {
        return "text".to_owned();
    }
    let debug = format!("{err:?}");
    let end = debug.find(|c: char| !c.is_alphanumeric());
    debug[..end.unwrap_or(debug.len())].to_owned()
}

/// An error of a type that no other crate knows.
#[derive(Debug)]
struct Foreign {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Foreign {
    fn boxed(
        text: &str,
        source: Option<Box<dyn Error + Send + Sync>>,
    ) -> Box<dyn Error + Send + Sync> {
        Box::new(Self {
            text: text.to_owned(),
            source,
        })
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Foreign {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

fn plan() -> DataFusionError {
    DataFusionError::Plan("no such table".to_owned())
}

fn exhausted() -> DataFusionError {
    DataFusionError::ResourcesExhausted("no memory left".to_owned())
}

fn context(text: impl Into<String>, err: DataFusionError) -> DataFusionError {
    DataFusionError::Context(text.into(), Box::new(err))
}

async fn cancelled() -> tokio::task::JoinError {
    let task = tokio::spawn(std::future::pending::<()>());
    task.abort();
    task.await.unwrap_err()
}
