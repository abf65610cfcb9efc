//! [`Assembler`]: from what the socket gives to whole frames.

use crate::mux::frame::{ALIGNMENT_BYTES, Frame, HEADER_BYTES, Header, Violation};
use bytes::buf::Limit;
use bytes::{Buf, BufMut, BytesMut};

/// Frames are cut out of allocations of this size, uncopied. Larger ones hold more memory when one payload of many is
/// kept; smaller ones cost an allocation for each frame.
const BUFFER_BYTES: usize = 1024 * 1024;
/// Read beyond the frame under way: what follows it may have to be copied once, to the next allocation.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Less room than this is not worth a system call.
const MIN_READ_BYTES: usize = 4 * 1024;

/// Cuts the bytes of a connection into frames. Holds one allocation; each frame is in one piece, and byte `n` of the
/// connection lies at an address that is `n` modulo 64, so that a sender can align a payload (T-7).
#[derive(Debug)]
pub(crate) struct Assembler {
    buffer: BytesMut,
    /// The place in the connection of the buffer's first byte.
    offset: u64,
    header: Option<Header>,
    max_frame_bytes: u32,
}

impl Assembler {
    /// Begins behind the preamble.
    pub(crate) fn new(max_frame_bytes: u32) -> Self {
        Self {
            buffer: BytesMut::new(),
            offset: 0,
            header: None,
            max_frame_bytes,
        }
    }

    /// Where to put the next bytes from the socket.
    pub(crate) fn space(&mut self) -> Limit<&mut BytesMut> {
        let needed = self.needed_bytes();
        let room = self.buffer.capacity() - self.buffer.len();
        let idle = self.header.is_none() && room < MIN_READ_BYTES;
        if self.buffer.capacity() < needed || idle {
            self.renew(needed);
        }
        let missing = needed.saturating_sub(self.buffer.len());
        (&mut self.buffer).limit(missing + READ_AHEAD_BYTES)
    }

    /// The next frame, once all of it is there.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, Violation> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(bytes) = self.buffer.first_chunk::<HEADER_BYTES>() else {
                    return Ok(None);
                };
                let header = Header::decode(*bytes, self.max_frame_bytes)?;
                *self.header.insert(header)
            }
        };
        let needed = self.needed_bytes();
        if self.buffer.len() < needed {
            return Ok(None);
        }
        let mut body = self.buffer.split_to(needed);
        body.advance(HEADER_BYTES);
        self.offset += needed as u64;
        self.header = None;
        Ok(Some(Frame::new(&header, body.freeze())))
    }

    /// Length of the frame under way, as far as it is known.
    fn needed_bytes(&self) -> usize {
        HEADER_BYTES + self.header.map_or(0, |header| header.body_bytes())
    }

    /// Moves what is left of the buffer to a new one.
    fn renew(&mut self, needed: usize) {
        let spare = ALIGNMENT_BYTES as usize;
        let mut buffer = BytesMut::with_capacity(needed.max(BUFFER_BYTES) + spare);
        let address = buffer.as_ptr().addr() as u64;
        let skipped = self.offset.wrapping_sub(address) % ALIGNMENT_BYTES;
        buffer.put_bytes(0, skipped as usize);
        buffer.advance(skipped as usize);
        buffer.extend_from_slice(&self.buffer);
        self.buffer = buffer;
    }
}
