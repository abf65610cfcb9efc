//! `object_store::Error`: every variant that can be built, with path and source.

use std::error::Error as StdError;

use object_store::Error;

use super::decode::Value;
use super::encode::Encoder;
use super::message::Kind;
use super::{path, store_name};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ObjectStoreMessage {
    #[prost(enumeration = "Variant", tag = "1")]
    variant: i32,
    /// The path, the operation or the configuration key; where the variant is unknown, the whole text.
    #[prost(string, tag = "2")]
    pub(super) text: String,
    /// The store or the implementer.
    #[prost(string, tag = "3")]
    store: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Variant {
    /// Also `JoinError`, which cannot be built.
    Unknown = 0,
    Generic = 1,
    NotFound = 2,
    InvalidPath = 3,
    NotSupported = 4,
    AlreadyExists = 5,
    Precondition = 6,
    NotModified = 7,
    NotImplemented = 8,
    PermissionDenied = 9,
    Unauthenticated = 10,
    UnknownConfigurationKey = 11,
}

pub(super) fn encode(encoder: &mut Encoder, err: &Error, depth: usize) {
    let Parts {
        variant,
        text,
        store,
        held,
    } = parts(err);
    let msg = ObjectStoreMessage {
        variant: variant.into(),
        text,
        store: store.to_owned(),
    };
    let kind = Kind::ObjectStoreValue(Box::new(msg));
    match (err, held) {
        (Error::InvalidPath { source }, _) => {
            encoder.push(kind, 1);
            path::encode(encoder, source, depth + 1);
        }
        (_, Some(held)) => {
            encoder.push(kind, 1);
            encoder.source(held, depth + 1);
        }
        (_, None) => encoder.push(kind, 0),
    }
}

struct Parts<'a> {
    variant: Variant,
    text: String,
    store: &'a str,
    held: Option<&'a (dyn StdError + 'static)>,
}

fn parts(err: &Error) -> Parts<'_> {
    match err {
        Error::Generic { store, source } => Parts {
            store,
            ..at(Variant::Generic, "", source.as_ref())
        },
        Error::NotFound { path, source } => at(Variant::NotFound, path, source.as_ref()),
        Error::InvalidPath { .. } => by(Variant::InvalidPath, "", ""),
        Error::NotSupported { source } => at(Variant::NotSupported, "", source.as_ref()),
        Error::AlreadyExists { path, source } => at(Variant::AlreadyExists, path, source.as_ref()),
        Error::Precondition { path, source } => at(Variant::Precondition, path, source.as_ref()),
        Error::NotModified { path, source } => at(Variant::NotModified, path, source.as_ref()),
        Error::NotImplemented {
            operation,
            implementer,
        } => by(Variant::NotImplemented, operation, implementer),
        Error::PermissionDenied { path, source } => {
            at(Variant::PermissionDenied, path, source.as_ref())
        }
        Error::Unauthenticated { path, source } => {
            at(Variant::Unauthenticated, path, source.as_ref())
        }
        Error::UnknownConfigurationKey { store, key } => {
            by(Variant::UnknownConfigurationKey, key, store)
        }
        other => by(Variant::Unknown, &other.to_string(), ""),
    }
}

fn at<'a>(variant: Variant, path: &str, source: &'a (dyn StdError + 'static)) -> Parts<'a> {
    Parts {
        variant,
        text: path.to_owned(),
        store: "",
        held: Some(source),
    }
}

fn by<'a>(variant: Variant, text: &str, store: &'a str) -> Parts<'a> {
    Parts {
        variant,
        text: text.to_owned(),
        store,
        held: None,
    }
}

pub(super) fn decode(msg: ObjectStoreMessage, held: Option<Value>) -> Error {
    let variant = msg.variant();
    let path = msg.text;
    let source = |held| Value::or_missing(held).into_boxed();
    match variant {
        Variant::Unknown => generic(Value::unknown("object store error", &path, held)),
        Variant::Generic => decode_generic(&msg.store, Value::or_missing(held)),
        Variant::NotFound => Error::NotFound {
            path,
            source: source(held),
        },
        Variant::InvalidPath => match Value::or_missing(held) {
            Value::Path(source) => Error::InvalidPath { source },
            other => generic(other.into_text("Encountered object with invalid path: ", "")),
        },
        Variant::NotSupported => Error::NotSupported {
            source: source(held),
        },
        Variant::AlreadyExists => Error::AlreadyExists {
            path,
            source: source(held),
        },
        Variant::Precondition => Error::Precondition {
            path,
            source: source(held),
        },
        Variant::NotModified => Error::NotModified {
            path,
            source: source(held),
        },
        Variant::NotImplemented => Error::NotImplemented {
            operation: path,
            implementer: msg.store,
        },
        Variant::PermissionDenied => Error::PermissionDenied {
            path,
            source: source(held),
        },
        Variant::Unauthenticated => Error::Unauthenticated {
            path,
            source: source(held),
        },
        Variant::UnknownConfigurationKey => decode_key(path, &msg.store),
    }
}

fn decode_generic(store: &str, source: Value) -> Error {
    match store_name::intern(store) {
        Some(store) => Error::Generic {
            store,
            source: source.into_boxed(),
        },
        None => generic(source.into_text(&format!("Generic {store} error: "), "")),
    }
}

fn decode_key(key: String, store: &str) -> Error {
    match store_name::intern(store) {
        Some(store) => Error::UnknownConfigurationKey { store, key },
        None => Error::UnknownConfigurationKey {
            store: "remote",
            key: format!("{key}' of store '{store}"),
        },
    }
}

/// The error for what has no variant of its own on this side.
fn generic(source: Value) -> Error {
    Error::Generic {
        store: "remote",
        source: source.into_boxed(),
    }
}
