//! `io::Error`: kind and text.

use std::io::{Error, ErrorKind};

use super::decode::Value;
use super::encode::Encoder;
use super::message::Kind;
use super::remote::RemoteError;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct IoMessage {
    /// A number of [`KINDS`]; anything else reads as `ErrorKind::Other`.
    #[prost(uint32, tag = "1")]
    kind: u32,
    /// Empty where the error holds another one, which then is the text.
    #[prost(string, tag = "2")]
    pub(super) text: String,
}

/// The numbers of kinds on the wire. Append only.
const KINDS: &[(u32, ErrorKind)] = &[
    (1, ErrorKind::NotFound),
    (2, ErrorKind::PermissionDenied),
    (3, ErrorKind::ConnectionRefused),
    (4, ErrorKind::ConnectionReset),
    (5, ErrorKind::HostUnreachable),
    (6, ErrorKind::NetworkUnreachable),
    (7, ErrorKind::ConnectionAborted),
    (8, ErrorKind::NotConnected),
    (9, ErrorKind::AddrInUse),
    (10, ErrorKind::AddrNotAvailable),
    (11, ErrorKind::NetworkDown),
    (12, ErrorKind::BrokenPipe),
    (13, ErrorKind::AlreadyExists),
    (14, ErrorKind::WouldBlock),
    (15, ErrorKind::NotADirectory),
    (16, ErrorKind::IsADirectory),
    (17, ErrorKind::DirectoryNotEmpty),
    (18, ErrorKind::ReadOnlyFilesystem),
    (19, ErrorKind::StaleNetworkFileHandle),
    (20, ErrorKind::InvalidInput),
    (21, ErrorKind::InvalidData),
    (22, ErrorKind::TimedOut),
    (23, ErrorKind::WriteZero),
    (24, ErrorKind::StorageFull),
    (25, ErrorKind::NotSeekable),
    (26, ErrorKind::QuotaExceeded),
    (27, ErrorKind::FileTooLarge),
    (28, ErrorKind::ResourceBusy),
    (29, ErrorKind::ExecutableFileBusy),
    (30, ErrorKind::Deadlock),
    (31, ErrorKind::CrossesDevices),
    (32, ErrorKind::TooManyLinks),
    (33, ErrorKind::InvalidFilename),
    (34, ErrorKind::ArgumentListTooLong),
    (35, ErrorKind::Interrupted),
    (36, ErrorKind::Unsupported),
    (37, ErrorKind::UnexpectedEof),
    (38, ErrorKind::OutOfMemory),
    (39, ErrorKind::Other),
];

pub(super) fn encode(encoder: &mut Encoder, err: &Error, depth: usize) {
    let kind = KINDS
        .iter()
        .find(|(_, kind)| *kind == err.kind())
        .map_or(0, |(number, _)| *number);
    let inner = err.get_ref();
    let text = match inner {
        Some(_) => String::new(),
        None => err.to_string(),
    };
    let msg = IoMessage { kind, text };
    encoder.push(Kind::IoValue(Box::new(msg)), usize::from(inner.is_some()));
    if let Some(inner) = inner {
        encoder.source(inner, depth + 1);
    }
}

pub(super) fn decode(msg: IoMessage, held: Option<Value>) -> Error {
    let kind = KINDS
        .iter()
        .find(|(number, _)| *number == msg.kind)
        .map_or(ErrorKind::Other, |(_, kind)| *kind);
    match held {
        Some(value) => Error::new(kind, value.into_boxed()),
        None => Error::new(kind, RemoteError::new(msg.text)),
    }
}

#[cfg(test)]
pub(super) fn kinds() -> impl Iterator<Item = ErrorKind> {
    KINDS.iter().map(|(_, kind)| *kind)
}
