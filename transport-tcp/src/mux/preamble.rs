//! What both sides say before the first frame (`docs/tcp.md`, T-1 to T-4).

use crate::mux::state::Limits;
use std::fmt;

/// T-1: never a first byte of TLS or of HTTP.
pub(crate) const MAGIC: [u8; 8] = *b"\xdfDF-TCP\n";
/// T-2: the version of this multiplexer.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a preamble.
pub(crate) const PREAMBLE_BYTES: usize = 32;
/// T-2: bytes whose meaning is the same in all versions: magic and version.
pub(crate) const VERSIONED_BYTES: usize = 12;

/// T-3: settings outside of these can't work, or are no mistake.
const MIN_WINDOW_BYTES: u32 = 1024;
const MIN_FRAME_BYTES: u32 = 1024;
const MIN_EARLY_BYTES: u32 = 1024;

/// What a side announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) limits: Limits,
}

/// Why a peer's preamble is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PreambleError {
    /// Not this protocol; what it was, in words.
    Foreign(&'static str),
    /// This protocol, in another version.
    Version(u32),
    /// T-3.
    Settings(String),
}

impl Preamble {
    pub(crate) fn encode(&self) -> [u8; PREAMBLE_BYTES] {
        let mut out = [0; PREAMBLE_BYTES];
        let limits = &self.limits;
        let words = [
            VERSION,
            limits.stream_window_bytes,
            limits.max_frame_bytes,
            limits.unaccepted_streams(),
            limits.early_window_bytes,
            limits.early_limit_bytes,
        ];
        let bytes = MAGIC
            .into_iter()
            .chain(words.into_iter().flat_map(u32::to_le_bytes));
        for (target, byte) in out.iter_mut().zip(bytes) {
            *target = byte;
        }
        out
    }

    /// Reads the peer's preamble, of which `bytes` may be a beginning: `None` asks for more.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, PreambleError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes.get(..known) != MAGIC.get(..known) {
            return Err(PreambleError::Foreign(guess(bytes)));
        }
        let word = |at: usize| {
            let word = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(word))
        };
        match word(8) {
            None => return Ok(None),
            Some(VERSION) => {}
            Some(version) => return Err(PreambleError::Version(version)),
        }
        let settings = (word(12), word(16), word(20), word(24), word(28));
        let (Some(window), Some(frame), Some(streams), Some(early), Some(early_limit)) = settings
        else {
            return Ok(None);
        };
        if window < MIN_WINDOW_BYTES || frame < MIN_FRAME_BYTES {
            return Err(PreambleError::Settings(format!(
                "a stream window of {window} or frames of {frame} bytes are too small (T-3)"
            )));
        }
        if early.min(early_limit) < MIN_EARLY_BYTES {
            return Err(PreambleError::Settings(format!(
                "an early window of {early} bytes, {early_limit} in all, is too small (T-3)"
            )));
        }
        Ok(Some(Self {
            limits: Limits {
                stream_window_bytes: window,
                max_frame_bytes: frame,
                max_streams: streams,
                max_unaccepted_streams: streams,
                early_window_bytes: early,
                early_limit_bytes: early_limit,
                send_buffer_bytes: 0,
            },
        }))
    }
}

/// What the first bytes of something else look like.
fn guess(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x15 | 0x16, 3, ..] => "TLS",
        [0, 0, ..] | [b'P', b'R', b'I', b' ', ..] => "HTTP/2 (gRPC)",
        [b'H', b'T', b'T', b'P', ..]
        | [b'G', b'E', b'T', b' ', ..]
        | [b'P', b'O', b'S', b'T', ..] => "HTTP/1",
        _ => "an unknown protocol",
    }
}

impl fmt::Display for PreambleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(what) => write!(f, "the peer speaks {what}, not this protocol"),
            Self::Version(theirs) => write!(
                f,
                "the peer speaks version {theirs} of the TCP transport and this side version {VERSION} (T-2)"
            ),
            Self::Settings(detail) => f.write_str(detail),
        }
    }
}
