//! Frames over the streams of a connection, in both directions.

use crate::connection::{RecvStream, SendStream, StreamClass, StreamCode, StreamError};
use crate::error::{ErrorKind, TransportError};
use crate::wire::DecodeError;
use crate::wire::frame::{Frame, FrameAssembler, FrameHeader, FrameKind, put_frame};
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Chunks are taken as the transport has them: one that holds a whole message is not copied (F-3).
const READ_BYTES: usize = usize::MAX;

/// F-7: the longest control message. Plans of real queries stay far below; one plan may not exhaust a worker.
pub(crate) const MAX_CONTROL_BYTES: u64 = 256 * 1024 * 1024;

/// Reads frames. Dropping it before the end stops the peer.
pub(crate) struct FrameReader {
    recv: Box<dyn RecvStream>,
    assembler: FrameAssembler,
    chunk: Bytes,
    operation: &'static str,
    peer: Arc<str>,
}

impl FrameReader {
    /// `operation` and `peer` name this stream in errors. Refuses batches.
    pub(crate) fn new(
        recv: Box<dyn RecvStream>,
        operation: &'static str,
        peer: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            recv,
            assembler: FrameAssembler::new(MAX_CONTROL_BYTES),
            chunk: Bytes::new(),
            operation,
            peer: peer.into(),
        }
    }

    /// Accepts batches too.
    pub(crate) fn with_batches(mut self) -> Self {
        self.assembler = self.assembler.with_batches();
        self
    }

    /// Who sends.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// The next frame; `None` where the stream ends cleanly between frames. Cancel safe.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame>, TransportError>> {
        loop {
            let frame = self.assembler.push(&mut self.chunk);
            if let Some(frame) = frame.map_err(|err| self.violation(&err))? {
                return Poll::Ready(Ok(Some(frame)));
            }
            match ready!(self.recv.poll_read(cx, READ_BYTES)) {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) if self.assembler.is_at_boundary() => return Poll::Ready(Ok(None)),
                Ok(None) => {
                    let err = DecodeError::new("the stream ended inside a frame (F-8)");
                    return Poll::Ready(Err(self.violation(&err)));
                }
                Err(err) => return Poll::Ready(Err(self.stream_error(&err))),
            }
        }
    }

    /// Awaits [`poll_frame`](Self::poll_frame). Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, TransportError> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// Payload bytes of the frame that is still arriving.
    pub(crate) fn pending_payload_bytes(&self) -> u64 {
        self.assembler.pending_payload_bytes().unwrap_or(0)
    }

    /// The error for bytes that break the protocol; stops the peer.
    pub(crate) fn violation(&mut self, err: &DecodeError) -> TransportError {
        self.recv.stop(StreamCode::PROTOCOL);
        self.error(ErrorKind::Protocol, err.to_string())
    }

    /// The error for a frame that has no place here.
    pub(crate) fn unexpected(&mut self, header: &FrameHeader) -> TransportError {
        let err = DecodeError::new(format!("a {:?} frame has no place here", header.kind));
        self.violation(&err)
    }

    /// The error for an end without a terminal frame (F-8).
    pub(crate) fn ended_early(&self) -> TransportError {
        let detail =
            "the stream ended without its terminal message: the result is not complete (F-8)";
        self.error(ErrorKind::Protocol, detail.into())
    }

    fn stream_error(&self, err: &StreamError) -> TransportError {
        match err {
            StreamError::Connection(err) => err.during(self.operation, &*self.peer),
            StreamError::Reset(StreamCode::REFUSED) => self.error(
                ErrorKind::ShuttingDown,
                "it takes no new calls; send them elsewhere".into(),
            ),
            other => self.error(ErrorKind::Aborted, other.to_string()),
        }
    }

    fn error(&self, kind: ErrorKind, detail: String) -> TransportError {
        TransportError::new(kind, self.operation, &*self.peer, detail)
    }
}

/// Writes frames. Dropped before [`finish`](Self::finish), it resets the stream.
pub(crate) struct FrameWriter {
    send: Box<dyn SendStream>,
    queue: VecDeque<Bytes>,
}

impl FrameWriter {
    pub(crate) fn new(send: Box<dyn SendStream>) -> Self {
        Self {
            send,
            queue: VecDeque::new(),
        }
    }

    /// Queues a frame; sends nothing.
    pub(crate) fn put(&mut self, kind: FrameKind, word: u64, payload: impl Into<Bytes>) {
        put_frame(&mut self.queue, kind, word, payload.into());
    }

    /// Queues a header and the payload chunks it announces.
    pub(crate) fn put_chunks(&mut self, header: FrameHeader, payload: &mut VecDeque<Bytes>) {
        self.queue
            .push_back(Bytes::copy_from_slice(&header.encode()));
        self.queue.append(payload);
    }

    /// Bytes queued and not sent yet.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queue.iter().map(|chunk| chunk.len() as u64).sum()
    }

    /// Sends what is queued. Cancel safe: what was not sent stays queued.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        if self.queue.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.send.poll_write(cx, &mut self.queue)
    }

    /// Awaits [`poll_flush`](Self::poll_flush). Cancel safe.
    pub(crate) async fn flush(&mut self) -> Result<(), StreamError> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Queues and sends one frame.
    pub(crate) async fn send(
        &mut self,
        kind: FrameKind,
        word: u64,
        payload: impl Into<Bytes>,
    ) -> Result<(), StreamError> {
        self.put(kind, word, payload);
        self.flush().await
    }

    /// Ends this direction cleanly; whatever is still queued is not sent.
    pub(crate) fn finish(&mut self) {
        self.send.finish();
    }

    /// Cuts this direction with a code.
    pub(crate) fn reset(&mut self, code: StreamCode) {
        self.send.reset(code);
    }

    pub(crate) fn set_class(&mut self, class: StreamClass) {
        self.send.set_class(class);
    }
}
