//! [`Outgoing`]: bytes ready for the socket, in order.

use crate::mux::frame::{ALIGNMENT_BYTES, Header};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;

/// Pieces below this are copied together: a slice of a vectored write costs about as much as copying so many bytes.
const COPY_BELOW_BYTES: usize = 1024;
/// Payloads below this are not worth their padding: a receiver copies them anyway.
const ALIGN_FROM_BYTES: usize = 4 * 1024;
/// T-7: padding is chosen so that the byte this far into a payload is aligned: the header of the frames that streams
/// carry (`docs/protocol.md`, F-1) goes before what must be aligned.
const ALIGN_AT_BYTES: u64 = datafusion_transport_core::wire::frame::HEADER_BYTES as u64;

/// A batch of encoded frames, large payloads uncopied.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) slices: VecDeque<Bytes>,
    small: BytesMut,
    /// Bytes in this batch.
    pub(crate) bytes: usize,
    /// Bytes of all batches: the place in the connection where the next byte goes.
    offset: u64,
}

impl Outgoing {
    pub(crate) fn header(&mut self, header: Header) {
        self.copy(&header.encode());
    }

    /// The header of a Data frame, padded.
    pub(crate) fn data_header(&mut self, mut header: Header, payload_bytes: usize) {
        if payload_bytes >= ALIGN_FROM_BYTES {
            let start = self.offset + crate::mux::frame::HEADER_BYTES as u64 + ALIGN_AT_BYTES;
            let pad = start.next_multiple_of(ALIGNMENT_BYTES) - start;
            header.pad = pad as u8;
        }
        self.header(header);
        let pad = usize::from(header.pad);
        self.small.put_bytes(0, pad);
        self.count(pad);
    }

    pub(crate) fn payload(&mut self, bytes: Bytes) {
        if bytes.len() < COPY_BELOW_BYTES {
            self.copy(&bytes);
        } else {
            self.seal();
            self.count(bytes.len());
            self.slices.push_back(bytes);
        }
    }

    /// Makes everything part of `slices`.
    pub(crate) fn seal(&mut self) {
        if !self.small.is_empty() {
            self.slices.push_back(self.small.split().freeze());
        }
    }

    /// Empties the batch; the place in the connection stays.
    pub(crate) fn clear(&mut self) {
        self.slices.clear();
        self.small.clear();
        self.bytes = 0;
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
        self.count(bytes.len());
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.offset += bytes as u64;
    }
}
