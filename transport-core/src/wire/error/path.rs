//! `object_store::path::Error`: every variant. Two of them hold what only its own crate can build: they are provoked
//! again, and arrive as text should that give another one.

use std::io;
use std::str;

use object_store::path::{Error, Path};

use super::decode::Value;
use super::encode::Encoder;
use super::message::Kind;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PathMessage {
    #[prost(enumeration = "Variant", tag = "1")]
    variant: i32,
    #[prost(string, tag = "2")]
    path: String,
    /// What the error displays as, where it may be impossible to build; for `PrefixMismatch`, the prefix.
    #[prost(string, tag = "3")]
    pub(super) text: String,
    /// `NonUnicode`: how many bytes are valid.
    #[prost(uint64, tag = "4")]
    valid_up_to: u64,
    /// `NonUnicode`: how many bytes after these are invalid; 0 if the text ended within a character.
    #[prost(uint32, tag = "5")]
    invalid_len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Variant {
    Unknown = 0,
    EmptySegment = 1,
    BadSegment = 2,
    Canonicalize = 3,
    InvalidPath = 4,
    NonUnicode = 5,
    PrefixMismatch = 6,
}

/// Longest valid text that is made to provoke a `Utf8Error`. Most stores allow 1 KiB of path.
const MAX_VALID_BYTES: usize = 64 * 1024;

pub(super) fn encode(encoder: &mut Encoder, err: &Error, depth: usize) {
    let mut msg = PathMessage::default();
    let mut held = None;
    let (variant, path) = match err {
        Error::EmptySegment { path } => (Variant::EmptySegment, path.clone()),
        Error::BadSegment { path, .. } => {
            msg.text = err.to_string();
            (Variant::BadSegment, path.clone())
        }
        Error::Canonicalize { path, source } => {
            held = Some(source);
            (Variant::Canonicalize, path.to_string_lossy().into_owned())
        }
        Error::InvalidPath { path } => (Variant::InvalidPath, path.to_string_lossy().into_owned()),
        Error::NonUnicode { path, source } => {
            msg.text = err.to_string();
            msg.valid_up_to = source.valid_up_to() as u64;
            msg.invalid_len = source.error_len().unwrap_or(0) as u32;
            (Variant::NonUnicode, path.clone())
        }
        Error::PrefixMismatch { path, prefix } => {
            msg.text.clone_from(prefix);
            (Variant::PrefixMismatch, path.clone())
        }
        other => {
            msg.text = other.to_string();
            (Variant::Unknown, String::new())
        }
    };
    msg.variant = variant.into();
    msg.path = path;
    encoder.push(Kind::PathValue(Box::new(msg)), usize::from(held.is_some()));
    if let Some(held) = held {
        super::io::encode(encoder, held, depth + 1);
    }
}

pub(super) fn decode(msg: PathMessage, held: Option<Value>) -> Value {
    let variant = msg.variant();
    let PathMessage { path, text, .. } = msg;
    let unknown = |held| Value::unknown("path error", &text, held);
    Value::Path(match variant {
        Variant::Unknown => return unknown(held),
        Variant::EmptySegment => Error::EmptySegment { path },
        Variant::BadSegment => match Path::parse(&path) {
            Err(err) if err.to_string() == text => err,
            _ => return unknown(held),
        },
        Variant::Canonicalize => Error::Canonicalize {
            path: path.into(),
            source: match Value::or_missing(held) {
                Value::Io(source) => source,
                other => io::Error::other(other.into_boxed()),
            },
        },
        Variant::InvalidPath => Error::InvalidPath { path: path.into() },
        Variant::NonUnicode => match utf8_error(msg.valid_up_to, msg.invalid_len) {
            Some(source) => Error::NonUnicode { path, source },
            None => return unknown(held),
        },
        Variant::PrefixMismatch => Error::PrefixMismatch { path, prefix: text },
    })
}

/// Decodes bytes that fail at the place and in the way wanted.
fn utf8_error(valid_up_to: u64, invalid_len: u32) -> Option<str::Utf8Error> {
    let valid = usize::try_from(valid_up_to)
        .ok()
        .filter(|valid| *valid <= MAX_VALID_BYTES)?;
    let invalid: &[u8] = match invalid_len {
        0 => b"\xf0\x9f",
        1 => b"\xff",
        2 => b"\xe2\x82 ",
        3 => b"\xf0\x9f\x98 ",
        _ => return None,
    };
    let mut bytes = vec![b'a'; valid];
    bytes.extend_from_slice(invalid);
    str::from_utf8(&bytes).err()
}
