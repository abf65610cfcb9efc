//! [`Assembler`]: from what the socket gives to whole frames.

use crate::mux::frame::{Frame, HEADER_BYTES, Header, Kind, Violation};
use crate::mux::stream::COPY_BELOW_BYTES;
use bytes::buf::Limit;
use bytes::{Buf, BufMut, BytesMut};
use datafusion_transport_core::Landing;

/// Small frames are read so many bytes at a time, and cut out of that.
const STAGING_BYTES: usize = 64 * 1024;
/// Less room than this is not worth a system call. Holds any small frame.
const MIN_READ_BYTES: usize = 8 * 1024;
/// Behind a body this large probably comes another: so little is read with its header that hardly a byte has to be moved.
const BULK_BODY_BYTES: usize = 32 * 1024;

/// Cuts the bytes of a connection into frames. The body of a large frame is read into an allocation of its own, so that
/// what a stream keeps is what it was sent and not the buffer around it. Byte `n` of the connection lies there at an
/// address that is `n` modulo 64, so that a sender can align a payload (T-7).
#[derive(Debug)]
pub(crate) struct Assembler {
    staging: BytesMut,
    /// The place in the connection of the next byte behind the frame under way.
    offset: u64,
    header: Option<Header>,
    /// Of the frame under way, if it is large.
    body: Option<Landing>,
    read_ahead_bytes: usize,
    max_frame_bytes: u32,
}

impl Assembler {
    /// Begins behind the preamble.
    pub(crate) fn new(max_frame_bytes: u32) -> Self {
        Self {
            staging: BytesMut::new(),
            offset: 0,
            header: None,
            body: None,
            read_ahead_bytes: STAGING_BYTES,
            max_frame_bytes,
        }
    }

    /// Where to put the next bytes from the socket.
    pub(crate) fn space(&mut self) -> Limit<&mut (dyn BufMut + Send)> {
        let body_bytes = self.header.map_or(0, |header| header.body_bytes());
        if let Some(body) = &mut self.body {
            let missing = body_bytes.saturating_sub(body.len());
            let unfilled: &mut (dyn BufMut + Send) = body.unfilled();
            return unfilled.limit(missing);
        }
        let held = self.staging.len();
        if self.staging.capacity() - held < MIN_READ_BYTES
            && !self.staging.try_reclaim(STAGING_BYTES.saturating_sub(held))
        {
            let mut staging = BytesMut::with_capacity(STAGING_BYTES.max(held + MIN_READ_BYTES));
            staging.extend_from_slice(&self.staging);
            self.staging = staging;
        }
        let room = self.staging.capacity() - held;
        let staging: &mut (dyn BufMut + Send) = &mut self.staging;
        staging.limit(room.min(self.read_ahead_bytes))
    }

    /// Whether nothing that was read keeps the staging buffer alive.
    #[cfg(test)]
    pub(crate) fn is_staging_free(&mut self) -> bool {
        self.staging.try_reclaim(STAGING_BYTES)
    }

    /// The next frame, once all of it is there.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, Violation> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(bytes) = self.staging.first_chunk::<HEADER_BYTES>() else {
                    return Ok(None);
                };
                let header = Header::decode(*bytes, self.max_frame_bytes)?;
                self.begin(header);
                header
            }
        };
        let needed = header.body_bytes();
        let arrived = self.body.as_ref().map_or(self.staging.len(), Landing::len);
        if arrived < needed {
            return Ok(None);
        }
        let body = match self.body.take() {
            Some(body) => body.freeze(),
            None => self.staging.split_to(needed).freeze(),
        };
        self.header = None;
        Ok(Some(Frame::new(&header, body)))
    }

    /// A header was read: makes room for what follows it.
    fn begin(&mut self, header: Header) {
        self.header = Some(header);
        self.staging.advance(HEADER_BYTES);
        let body_bytes = header.body_bytes();
        let place = self.offset + HEADER_BYTES as u64;
        self.offset = place + body_bytes as u64;
        self.read_ahead_bytes = match body_bytes {
            BULK_BODY_BYTES.. => MIN_READ_BYTES,
            _ => STAGING_BYTES,
        };
        if header.kind == Kind::Data && header.value as usize >= COPY_BELOW_BYTES {
            let mut body = Landing::new(body_bytes, place);
            let arrived = body_bytes.min(self.staging.len());
            body.extend_from_slice(&self.staging.split_to(arrived));
            self.body = Some(body);
        }
    }
}
