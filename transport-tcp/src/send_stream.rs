//! [`TcpSendStream`]: the sending half of a stream.

use crate::link::Link;
use crate::mux::WriteError;
use bytes::Bytes;
use datafusion_transport_core::connection::{SendStream, StreamClass, StreamCode, StreamError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Writes to one stream. Dropped before [`finish`](SendStream::finish) it resets the stream.
#[derive(Debug)]
pub(crate) struct TcpSendStream {
    link: Arc<Link>,
    stream: u64,
}

impl TcpSendStream {
    pub(crate) fn new(link: Arc<Link>, stream: u64) -> Self {
        Self { link, stream }
    }
}

impl SendStream for TcpSendStream {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), StreamError>> {
        let written = self
            .link
            .with(|state, wakes| state.poll_write(self.stream, cx, chunks, wakes));
        written.map_err(|err| match err {
            WriteError::Stopped(code) => StreamError::Stopped(code),
            WriteError::Closed => StreamError::Connection(self.link.error("write stream")),
        })
    }

    fn finish(&mut self) {
        self.link
            .with(|state, wakes| state.finish(self.stream, wakes));
    }

    fn reset(&mut self, code: StreamCode) {
        self.link
            .with(|state, wakes| state.reset(self.stream, code, wakes));
    }

    fn set_class(&mut self, class: StreamClass) {
        self.link
            .with(|state, wakes| state.set_class(self.stream, class, wakes));
    }
}

impl Drop for TcpSendStream {
    fn drop(&mut self) {
        self.link
            .with(|state, wakes| state.drop_send(self.stream, wakes));
    }
}
