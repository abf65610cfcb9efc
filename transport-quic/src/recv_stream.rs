//! [`QuicRecvStream`]: the receiving half of a QUIC stream.

use crate::connection::{StreamOwner, stream_code, varint};
use bytes::Bytes;
use datafusion_transport_core::connection::{RecvStream, StreamCode, StreamError};
use quinn::ReadError;
use std::pin::pin;
use std::task::{Context, Poll, ready};

/// Reads from one stream. Dropped before its end it tells the peer to stop.
#[derive(Debug)]
pub(crate) struct QuicRecvStream {
    quic: quinn::RecvStream,
    owner: StreamOwner,
    end: Option<End>,
}

/// How the stream ended. Kept, because quinn reports a clean end to whoever reads on after a cut.
#[derive(Clone, Copy, Debug)]
enum End {
    Clean,
    /// By the peer, or by this side's `stop`.
    Cut(StreamCode),
}

impl QuicRecvStream {
    pub(crate) fn new(quic: quinn::RecvStream, owner: StreamOwner) -> Self {
        Self {
            quic,
            owner,
            end: None,
        }
    }

    fn ended(&mut self, end: End) -> Result<Option<Bytes>, StreamError> {
        self.end = Some(end);
        match end {
            End::Clean => Ok(None),
            End::Cut(code) => Err(StreamError::Reset(code)),
        }
    }
}

impl RecvStream for QuicRecvStream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        if let Some(end) = self.end {
            return Poll::Ready(self.ended(end));
        }
        // Quinn's future keeps nothing between polls except the waker that it registers, so one that is polled once
        // and dropped is a poll function.
        let read = ready!(pin!(self.quic.read_chunk(max_bytes.max(1), true)).poll(cx));
        Poll::Ready(match read {
            Ok(Some(chunk)) => Ok(Some(chunk.bytes)),
            Ok(None) => self.ended(End::Clean),
            Err(ReadError::Reset(code)) => self.ended(End::Cut(stream_code(code))),
            Err(ReadError::ConnectionLost(err)) => Err(StreamError::Connection(
                self.owner.error(&err, "read stream"),
            )),
            // Not reachable: this side keeps its own record of the end, reads in order and without 0-RTT.
            Err(
                ReadError::ClosedStream
                | ReadError::IllegalOrderedRead
                | ReadError::ZeroRttRejected,
            ) => self.ended(End::Cut(StreamCode::CANCELLED)),
        })
    }

    fn stop(&mut self, code: StreamCode) {
        if self.end.is_none() {
            self.end = Some(End::Cut(code));
            // Fails only for a stream that is over already.
            let _ = self.quic.stop(varint(code));
        }
    }
}

impl Drop for QuicRecvStream {
    fn drop(&mut self) {
        self.stop(StreamCode::CANCELLED);
    }
}
