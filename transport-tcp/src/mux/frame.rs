//! Frames on the connection (`docs/tcp.md`, T-5 to T-8).
//!
//! ```text
//!  0      1     2          4              8                16
//!  +------+-----+----------+--------------+----------------+-----+-------------
//!  | kind | pad | 0 (u16)  | value (u32)  | id (u64)       | pad | payload ...
//!  +------+-----+----------+--------------+----------------+-----+-------------
//! ```

use bytes::{Buf, Bytes};
use datafusion_transport_core::connection::StreamCode;
use std::fmt;

/// Bytes of a frame header.
pub(crate) const HEADER_BYTES: usize = 16;
/// T-8: the longest reason.
pub(crate) const MAX_REASON_BYTES: usize = 1000;
/// T-7: payloads are placed for this alignment.
pub(crate) const ALIGNMENT_BYTES: u64 = 64;

/// A rule of `docs/tcp.md` that the peer broke. It ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    rule: &'static str,
    detail: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Self {
            rule,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.rule)
    }
}

/// T-6: what a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Open = 1,
    Data = 2,
    Window = 3,
    Finish = 4,
    Reset = 5,
    Stop = 6,
    Allow = 7,
    Ping = 8,
    Pong = 9,
    GoAway = 10,
    Early = 11,
}

impl Kind {
    fn from_wire(value: u8) -> Result<Self, Violation> {
        Ok(match value {
            1 => Self::Open,
            2 => Self::Data,
            3 => Self::Window,
            4 => Self::Finish,
            5 => Self::Reset,
            6 => Self::Stop,
            7 => Self::Allow,
            8 => Self::Ping,
            9 => Self::Pong,
            10 => Self::GoAway,
            11 => Self::Early,
            other => {
                let detail = format!("frame kind {other} is unknown");
                return Err(Violation::new("T-6", detail));
            }
        })
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes without meaning between header and payload.
    pub(crate) pad: u8,
    /// Length of the payload, a code, or a grant.
    pub(crate) value: u32,
    /// A stream, a nonce, or a count.
    pub(crate) id: u64,
}

impl Header {
    pub(crate) fn new(kind: Kind, value: u32, id: u64) -> Self {
        Self {
            kind,
            pad: 0,
            value,
            id,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let low =
            u64::from(self.kind as u8) | u64::from(self.pad) << 8 | u64::from(self.value) << 32;
        (u128::from(low) | u128::from(self.id) << 64).to_le_bytes()
    }

    /// Reads a header; checks every length before anything is allocated for it.
    pub(crate) fn decode(bytes: [u8; HEADER_BYTES], max_frame: u32) -> Result<Self, Violation> {
        let all = u128::from_le_bytes(bytes);
        let low = all as u64;
        let header = Self {
            kind: Kind::from_wire(low as u8)?,
            pad: (low >> 8) as u8,
            value: (low >> 32) as u32,
            id: (all >> 64) as u64,
        };
        header.check(max_frame)?;
        Ok(header)
    }

    fn check(&self, max_frame: u32) -> Result<(), Violation> {
        let Self { kind, value, .. } = *self;
        match kind {
            Kind::Data if value == 0 || value > max_frame => Err(Violation::new(
                "T-7",
                format!("a Data frame of {value} bytes is outside 1 to {max_frame}"),
            )),
            Kind::GoAway if value as usize > MAX_REASON_BYTES => Err(Violation::new(
                "T-8",
                format!("a reason of {value} bytes is longer than {MAX_REASON_BYTES}"),
            )),
            Kind::Window if value == 0 => Err(Violation::new("T-13", "a grant of 0 bytes")),
            _ if u64::from(self.pad) >= ALIGNMENT_BYTES || kind != Kind::Data && self.pad != 0 => {
                let detail = format!("padding of {} bytes on a {kind:?} frame", self.pad);
                Err(Violation::new("T-7", detail))
            }
            _ => Ok(()),
        }
    }

    /// Bytes that follow the header: padding and payload.
    pub(crate) fn body_bytes(&self) -> usize {
        match self.kind {
            Kind::Data | Kind::GoAway => usize::from(self.pad) + self.value as usize,
            _ => 0,
        }
    }
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The peer opened a stream.
    Open { stream: u64 },
    /// Bytes of a stream.
    Data { stream: u64, payload: Bytes },
    /// This side may send so many bytes more.
    Window { stream: u64, bytes: u32 },
    /// The clean end of what the peer sends.
    Finish { stream: u64 },
    /// What the peer sent is cut.
    Reset { stream: u64, code: StreamCode },
    /// The peer reads no further.
    Stop { stream: u64, code: StreamCode },
    /// This side may open so many streams in all.
    Allow { streams: u64 },
    /// This side may send so many early bytes in all.
    Early { bytes: u64 },
    /// To be answered.
    Ping { nonce: u64 },
    /// The answer.
    Pong { nonce: u64 },
    /// The connection ends.
    GoAway { reason: Bytes },
}

impl Frame {
    /// `body` is what follows the header, all of it.
    pub(crate) fn new(header: &Header, mut body: Bytes) -> Self {
        let id = header.id;
        let code = StreamCode(header.value);
        match header.kind {
            Kind::Open => Self::Open { stream: id },
            Kind::Data => {
                body.advance(usize::from(header.pad).min(body.len()));
                Self::Data {
                    stream: id,
                    payload: body,
                }
            }
            Kind::Window => Self::Window {
                stream: id,
                bytes: header.value,
            },
            Kind::Finish => Self::Finish { stream: id },
            Kind::Reset => Self::Reset { stream: id, code },
            Kind::Stop => Self::Stop { stream: id, code },
            Kind::Allow => Self::Allow { streams: id },
            Kind::Early => Self::Early { bytes: id },
            Kind::Ping => Self::Ping { nonce: id },
            Kind::Pong => Self::Pong { nonce: id },
            Kind::GoAway => Self::GoAway { reason: body },
        }
    }
}
