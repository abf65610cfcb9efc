//! [`TcpRecvStream`]: the receiving half of a stream.

use crate::link::Link;
use crate::mux::{End, Read};
use bytes::Bytes;
use datafusion_transport_core::connection::{RecvStream, StreamCode, StreamError};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Reads from one stream. Dropped before its end it tells the peer to stop.
#[derive(Debug)]
pub(crate) struct TcpRecvStream {
    link: Arc<Link>,
    stream: u64,
}

impl TcpRecvStream {
    pub(crate) fn new(link: Arc<Link>, stream: u64) -> Self {
        Self { link, stream }
    }
}

impl RecvStream for TcpRecvStream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        let read = self
            .link
            .with(|state, wakes| state.poll_read(self.stream, cx, max_bytes, wakes));
        read.map(|read| match read {
            Read::Bytes(bytes) => Ok(Some(bytes)),
            Read::End(End::Finished) => Ok(None),
            Read::End(End::Reset(code)) => Err(StreamError::Reset(code)),
            Read::Closed => Err(StreamError::Connection(self.link.error("read stream"))),
        })
    }

    fn stop(&mut self, code: StreamCode) {
        self.link
            .with(|state, wakes| state.stop(self.stream, code, wakes));
    }
}

impl Drop for TcpRecvStream {
    fn drop(&mut self) {
        self.link
            .with(|state, wakes| state.drop_recv(self.stream, wakes));
    }
}
