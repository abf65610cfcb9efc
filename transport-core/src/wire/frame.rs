//! Frames: every message on every stream is one (`docs/protocol.md`, F-1 to F-8).
//!
//! ```text
//!  0      1       2                8                16
//!  +------+-------+----------------+----------------+-----------------
//!  | kind | flags | length (u48)   | word (u64)     | payload ...
//!  +------+-------+----------------+----------------+-----------------
//! ```

use crate::landing::Landing;
use crate::wire::DecodeError;
use arrow_buffer::Buffer;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 16;

/// F-3: alignment of a received payload, in bytes: what Arrow recommends for its buffers.
pub const PAYLOAD_ALIGNMENT_BYTES: usize = 64;

/// F-6: a payload's allocation starts at most this large and then doubles with what has arrived, so that a length in a
/// header costs its sender nearly as many bytes as it costs the receiver. One MiB holds a usual batch without growing.
const EAGER_PAYLOAD_BYTES: u64 = 1024 * 1024;

/// F-6: likewise for what is not a batch, which a peer may send before anything is known about its call.
const EAGER_CONTROL_BYTES: u64 = 16 * 1024;

/// Payloads under this size are copied into an allocation of their own even if they could be shared: a small array must
/// not keep a large network buffer alive.
const SHARE_PAYLOAD_BYTES: u64 = 4 * 1024;

/// F-2: what a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// The request: first on every stream, from the opener.
    Call = 1,
    /// Bytes of partition data that the worker may send; `word` is the number.
    Credit = 2,
    /// A message from coordinator to worker.
    ToWorker = 3,
    /// The worker accepted the plan.
    Accepted = 4,
    /// A message from worker to coordinator.
    ToCoordinator = 5,
    /// A record batch; `word` is the time it was sent, in nanoseconds since the Unix epoch.
    Batch = 6,
    /// The answer to a call that has one.
    Reply = 7,
    /// Terminal: this direction is complete.
    End = 8,
    /// Terminal: the call failed.
    Error = 9,
}

impl FrameKind {
    fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Call,
            2 => Self::Credit,
            3 => Self::ToWorker,
            4 => Self::Accepted,
            5 => Self::ToCoordinator,
            6 => Self::Batch,
            7 => Self::Reply,
            8 => Self::End,
            9 => Self::Error,
            _ => return None,
        })
    }
}

/// F-5: the sender had to wait for credit before this frame.
pub const FLAG_WAITED_FOR_CREDIT: u8 = 1;

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is.
    pub kind: FrameKind,
    /// Flags; unknown ones are ignored.
    pub flags: u8,
    /// Bytes of payload that follow.
    pub payload_bytes: u64,
    /// A number whose meaning depends on the kind; zero where it has none.
    pub word: u64,
}

impl FrameHeader {
    /// The longest payload that the 48-bit length can state.
    pub const MAX_PAYLOAD_BYTES: u64 = (1 << 48) - 1;

    /// A header without flags and word.
    pub fn new(kind: FrameKind, payload_bytes: u64) -> Self {
        Self {
            kind,
            flags: 0,
            payload_bytes,
            word: 0,
        }
    }

    /// The header on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let low = u64::from(self.kind as u8)
            | u64::from(self.flags) << 8
            | (self.payload_bytes & Self::MAX_PAYLOAD_BYTES) << 16;
        (u128::from(low) | u128::from(self.word) << 64).to_le_bytes()
    }

    /// Reads a header.
    ///
    /// # Errors
    /// An unknown kind (F-2).
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let all = u128::from_le_bytes(bytes);
        let low = all as u64;
        let kind = low as u8;
        let kind = FrameKind::from_wire(kind)
            .ok_or_else(|| DecodeError::new(format!("frame kind {kind} is unknown (F-2)")))?;
        Ok(Self {
            kind,
            flags: (low >> 8) as u8,
            payload_bytes: low >> 16,
            word: (all >> 64) as u64,
        })
    }
}

/// Appends a frame whose payload is one piece, as at most two chunks.
pub fn put_frame(out: &mut VecDeque<Bytes>, kind: FrameKind, word: u64, payload: Bytes) {
    let header = FrameHeader {
        word,
        ..FrameHeader::new(kind, payload.len() as u64)
    };
    if payload.len() as u64 > SHARE_PAYLOAD_BYTES {
        out.push_back(Bytes::copy_from_slice(&header.encode()));
        out.push_back(payload);
        return;
    }
    let mut whole = Vec::with_capacity(HEADER_BYTES + payload.len());
    whole.extend_from_slice(&header.encode());
    whole.extend_from_slice(&payload);
    out.push_back(whole.into());
}

/// A received frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its header.
    pub header: FrameHeader,
    /// Its payload, 64-byte aligned.
    pub payload: Buffer,
}

/// Puts frames together from the chunks of a stream. Holds no more than the frame under way.
#[derive(Debug)]
pub struct FrameAssembler {
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    current: Option<(FrameHeader, Landing)>,
    max_control_bytes: u64,
    accepts_batches: bool,
}

impl FrameAssembler {
    /// For frames with at most `max_control_bytes` of payload, and no [`FrameKind::Batch`] (F-7).
    pub fn new(max_control_bytes: u64) -> Self {
        Self {
            header: [0; HEADER_BYTES],
            header_filled: 0,
            current: None,
            max_control_bytes,
            accepts_batches: false,
        }
    }

    /// Accepts batch frames too, of any length: the reader of a partition grants credit for them and reserves memory.
    pub fn with_batches(mut self) -> Self {
        self.accepts_batches = true;
        self
    }

    /// Whether the stream may end here: no frame is half received.
    pub fn is_at_boundary(&self) -> bool {
        self.header_filled == 0 && self.current.is_none()
    }

    /// Payload length of the frame under way, once its header has arrived.
    pub fn pending_payload_bytes(&self) -> Option<u64> {
        self.current
            .as_ref()
            .map(|(header, _)| header.payload_bytes)
    }

    /// Takes bytes from the front of `chunk`; a frame once one is complete, `None` when `chunk` is used up.
    ///
    /// # Errors
    /// An unknown kind, a control frame over the limit, or a batch frame where none is accepted: at its header, before its
    /// payload. The stream is unusable afterwards.
    pub fn push(&mut self, chunk: &mut Bytes) -> Result<Option<Frame>, DecodeError> {
        loop {
            let Some((header, payload)) = &mut self.current else {
                if !self.fill_header(chunk) {
                    return Ok(None);
                }
                let header = FrameHeader::decode(self.header)?;
                self.check_length(&header)?;
                self.header_filled = 0;
                if let Some(payload) = share_payload(&header, chunk) {
                    return Ok(Some(Frame { header, payload }));
                }
                let eager = match header.kind {
                    FrameKind::Batch => EAGER_PAYLOAD_BYTES,
                    _ => EAGER_CONTROL_BYTES,
                };
                let capacity = header.payload_bytes.min(eager) as usize;
                self.current = Some((header, Landing::new(capacity, 0)));
                continue;
            };
            let missing = header.payload_bytes.saturating_sub(payload.len() as u64);
            let taken = missing.min(chunk.len() as u64) as usize;
            payload.extend_from_slice(&chunk.split_to(taken));
            if (payload.len() as u64) < header.payload_bytes {
                return Ok(None);
            }
            let frame = self.current.take().map(|(header, payload)| Frame {
                header,
                payload: Buffer::from(payload.freeze()),
            });
            return Ok(frame);
        }
    }

    /// Copies header bytes; true once the header is complete.
    fn fill_header(&mut self, chunk: &mut Bytes) -> bool {
        let Some(open) = self.header.get_mut(self.header_filled..) else {
            return false;
        };
        let taken = open.len().min(chunk.len());
        if let Some(target) = open.get_mut(..taken) {
            chunk.copy_to_slice(target);
        }
        self.header_filled += taken;
        self.header_filled == HEADER_BYTES
    }

    fn check_length(&self, header: &FrameHeader) -> Result<(), DecodeError> {
        if header.kind == FrameKind::Batch {
            return match self.accepts_batches {
                true => Ok(()),
                false => Err(DecodeError::new("a Batch frame has no place here (F-7)")),
            };
        }
        if header.payload_bytes > self.max_control_bytes {
            return Err(DecodeError::new(format!(
                "a {:?} frame states {} bytes of payload, the limit is {} (F-7)",
                header.kind, header.payload_bytes, self.max_control_bytes
            )));
        }
        Ok(())
    }
}

/// The payload without a copy, where the chunk holds all of it at an aligned address.
fn share_payload(header: &FrameHeader, chunk: &mut Bytes) -> Option<Buffer> {
    let bytes = header.payload_bytes;
    let whole = bytes >= SHARE_PAYLOAD_BYTES && bytes <= chunk.len() as u64;
    let aligned = chunk.as_ptr().align_offset(PAYLOAD_ALIGNMENT_BYTES) == 0;
    (whole && aligned).then(|| Buffer::from(chunk.split_to(bytes as usize)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use arrow_buffer::MutableBuffer;
    use proptest::prelude::*;

    fn frames_of(mut bytes: Bytes, cut: usize) -> Result<Vec<Frame>, DecodeError> {
        let mut assembler = FrameAssembler::new(1 << 20).with_batches();
        let mut frames = vec![];
        while !bytes.is_empty() {
            let mut chunk = bytes.split_to(cut.clamp(1, bytes.len()));
            while let Some(frame) = assembler.push(&mut chunk)? {
                frames.push(frame);
            }
            assert!(chunk.is_empty());
        }
        Ok(frames)
    }

    fn kind() -> impl Strategy<Value = FrameKind> {
        (1u8..=9).prop_map(|k| FrameKind::from_wire(k).unwrap())
    }

    proptest! {
        #[test]
        fn header_round_trips(kind in kind(), flags: u8, payload_bytes in 0u64..1 << 48, word: u64) {
            let header = FrameHeader { kind, flags, payload_bytes, word };
            prop_assert_eq!(FrameHeader::decode(header.encode()).unwrap(), header);
        }

        #[test]
        fn frames_survive_any_cut(
            frames in prop::collection::vec((kind(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..9000)), 0..6),
            cut in 1usize..10_000,
        ) {
            let mut out = VecDeque::new();
            for (kind, word, payload) in &frames {
                put_frame(&mut out, *kind, *word, payload.clone().into());
            }
            let bytes: Vec<u8> = out.iter().flatten().copied().collect();
            let got = frames_of(bytes.into(), cut).unwrap();
            prop_assert_eq!(got.len(), frames.len());
            for (frame, (kind, word, payload)) in got.iter().zip(&frames) {
                prop_assert_eq!(frame.header.kind, *kind);
                prop_assert_eq!(frame.header.word, *word);
                prop_assert_eq!(frame.payload.as_slice(), payload.as_slice());
                prop_assert_eq!(frame.payload.as_ptr().align_offset(PAYLOAD_ALIGNMENT_BYTES), 0);
            }
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 1usize..50) {
            let _ = frames_of(bytes.into(), cut);
        }
    }

    #[test]
    fn a_length_alone_allocates_no_more_than_the_eager_limit() {
        let header = FrameHeader::new(FrameKind::Batch, FrameHeader::MAX_PAYLOAD_BYTES);
        let mut assembler = FrameAssembler::new(16).with_batches();
        let mut chunk = Bytes::copy_from_slice(&header.encode());
        assert!(assembler.push(&mut chunk).unwrap().is_none());
        let capacity = assembler.current.as_ref().unwrap().1.capacity();
        assert!(capacity as u64 <= EAGER_PAYLOAD_BYTES * 9 / 8 + 64);
        assert!(!assembler.is_at_boundary());
    }

    #[test]
    fn a_length_alone_of_a_control_frame_allocates_less() {
        let header = FrameHeader::new(FrameKind::Call, 1 << 28);
        let mut assembler = FrameAssembler::new(1 << 28);
        let mut chunk = Bytes::copy_from_slice(&header.encode());
        assert!(assembler.push(&mut chunk).unwrap().is_none());
        let capacity = assembler.current.as_ref().unwrap().1.capacity();
        assert!(capacity as u64 <= EAGER_CONTROL_BYTES * 9 / 8 + 64);
    }

    #[test]
    fn a_control_frame_over_the_limit_is_refused_before_its_payload() {
        let header = FrameHeader::new(FrameKind::Call, 17);
        let mut assembler = FrameAssembler::new(16);
        let err = assembler.push(&mut Bytes::copy_from_slice(&header.encode()));
        assert!(err.unwrap_err().to_string().contains("F-7"));
    }

    #[test]
    fn a_batch_is_refused_at_its_header_where_it_has_no_place() {
        let header = FrameHeader::new(FrameKind::Batch, FrameHeader::MAX_PAYLOAD_BYTES);
        let mut assembler = FrameAssembler::new(16);
        let err = assembler.push(&mut Bytes::copy_from_slice(&header.encode()));
        assert!(err.unwrap_err().to_string().contains("F-7"));
    }

    #[test]
    fn an_aligned_whole_payload_is_not_copied() {
        let mut bytes = MutableBuffer::with_capacity(8192);
        bytes.resize(HEADER_BYTES + 48 + 4096 + 4096, 7);
        let all = Bytes::from_owner(AsBytes(bytes.into()));
        let mut chunk = all.slice(48..);
        let header = FrameHeader::new(FrameKind::Batch, 4096).encode();
        let mut assembler = FrameAssembler::new(16).with_batches();
        assert!(
            assembler
                .push(&mut Bytes::copy_from_slice(&header))
                .unwrap()
                .is_none()
        );
        // The header came in a chunk of its own; the payload then is copied, whatever its address.
        let frame = assembler.push(&mut chunk).unwrap().unwrap();
        assert_ne!(frame.payload.as_ptr(), all[48..].as_ptr());

        let mut bytes = MutableBuffer::with_capacity(8192);
        bytes.extend_from_slice(&[0u8; 48]);
        bytes.extend_from_slice(&header);
        bytes.resize(64 + 4096, 7);
        let all = Bytes::from_owner(AsBytes(bytes.into()));
        let frame = assembler.push(&mut all.slice(48..)).unwrap().unwrap();
        assert_eq!(frame.payload.as_ptr(), all[64..].as_ptr());
    }

    struct AsBytes(Buffer);

    impl AsRef<[u8]> for AsBytes {
        fn as_ref(&self) -> &[u8] {
            self.0.as_slice()
        }
    }
}
