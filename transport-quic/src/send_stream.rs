//! [`QuicSendStream`]: the sending half of a QUIC stream.

use crate::connection::{StreamOwner, stream_code, stream_priority, varint};
use bytes::{Buf, Bytes};
use datafusion_transport_core::connection::{SendStream, StreamClass, StreamCode, StreamError};
use quinn::{WriteError, Written};
use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, ready};

/// Writes to one stream. Dropped before [`finish`](SendStream::finish) it resets the stream, where quinn's own would
/// end it cleanly.
#[derive(Debug)]
pub(crate) struct QuicSendStream {
    quic: quinn::SendStream,
    owner: StreamOwner,
    /// Finished or reset: nothing more can be written.
    ended: bool,
}

/// Quinn counts a buffer against the send window until its last byte is acknowledged. One buffer of the window's
/// size would so let nothing through until all of it has arrived; pieces of this size keep bytes flowing.
const MAX_PIECE_BYTES: usize = 128 << 10;

impl QuicSendStream {
    pub(crate) fn new(quic: quinn::SendStream, owner: StreamOwner) -> Self {
        Self {
            quic,
            owner,
            ended: false,
        }
    }

    /// One write of quinn. Its future keeps nothing between polls except the waker that it registers, so one that is
    /// polled once and dropped is a poll function.
    fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut [Bytes],
    ) -> Poll<Result<Written, WriteError>> {
        if let Poll::Ready(result) = pin!(self.quic.write_chunks(chunks)).poll(cx) {
            return Poll::Ready(result);
        }
        // Quinn looks at its send window before it looks whether the peer has stopped the stream, and does not wake
        // a writer for the window when the stream's own is used up as well: one that was stopped just before it had
        // to wait would wait for ever. A stop after this point wakes it. The price is a small entry in quinn's
        // tables for each stream that had to wait, until the stream is finished or stopped.
        match pin!(self.quic.stopped()).poll(cx) {
            Poll::Ready(Ok(Some(code))) => Poll::Ready(Err(WriteError::Stopped(code))),
            Poll::Ready(Err(err)) => Poll::Ready(Err(err.into())),
            Poll::Ready(Ok(None)) | Poll::Pending => Poll::Pending,
        }
    }

    /// Writes the first chunk in part. Returns how many bytes were taken.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        chunk: &Bytes,
    ) -> Poll<Result<usize, WriteError>> {
        let mut piece = [chunk.slice(..MAX_PIECE_BYTES.min(chunk.len()))];
        let written = ready!(self.poll_chunks(cx, &mut piece))?;
        Poll::Ready(Ok(written.bytes))
    }

    fn failed(&self, err: WriteError) -> StreamError {
        match err {
            WriteError::Stopped(code) => StreamError::Stopped(stream_code(code)),
            WriteError::ConnectionLost(err) => {
                StreamError::Connection(self.owner.error(&err, "write stream"))
            }
            // Written to after its end, or (never, here) 0-RTT: nobody will read it.
            WriteError::ClosedStream | WriteError::ZeroRttRejected => {
                StreamError::Stopped(StreamCode::CANCELLED)
            }
        }
    }
}

impl SendStream for QuicSendStream {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), StreamError>> {
        while let Some(first) = chunks.front_mut() {
            if first.len() > MAX_PIECE_BYTES {
                let taken = ready!(self.poll_piece(cx, first)).map_err(|err| self.failed(err))?;
                first.advance(taken);
                continue;
            }
            let whole = chunks
                .iter()
                .take_while(|chunk| chunk.len() <= MAX_PIECE_BYTES)
                .count();
            let batch = chunks
                .make_contiguous()
                .get_mut(..whole)
                .unwrap_or_default();
            let written = ready!(self.poll_chunks(cx, batch)).map_err(|err| self.failed(err))?;
            chunks.drain(..written.chunks);
        }
        Poll::Ready(Ok(()))
    }

    fn finish(&mut self) {
        if !self.ended {
            self.ended = true;
            // Fails only for a stream that is over already.
            let _ = self.quic.finish();
        }
    }

    fn reset(&mut self, code: StreamCode) {
        self.ended = true;
        // Fails only for a stream that is over already. After `finish` it still cuts what has not arrived.
        let _ = self.quic.reset(varint(code));
    }

    fn set_class(&mut self, class: StreamClass) {
        // Fails only for a stream that is over already.
        let _ = self.quic.set_priority(stream_priority(class));
    }
}

impl Drop for QuicSendStream {
    fn drop(&mut self) {
        if !self.ended {
            self.reset(StreamCode::ABANDONED);
        }
    }
}
