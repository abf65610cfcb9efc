//! What the user of a stream's receiving half asks of [`State`].

use crate::mux::state::{State, Wakes};
use crate::mux::stream::End;
use bytes::Bytes;
use datafusion_transport_core::connection::StreamCode;
use std::task::{Context, Poll};

/// What there is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(Bytes),
    End(End),
    /// The connection closed before the stream's end.
    Closed,
}

impl State {
    /// The next bytes of a stream, or its end.
    pub(crate) fn poll_read(
        &mut self,
        id: u64,
        cx: &mut Context<'_>,
        max_bytes: usize,
        wakes: &mut Wakes,
    ) -> Poll<Read> {
        let closed = self.closed;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Read::Closed);
        };
        let recv = &mut stream.recv;
        if let Some(code) = recv.stopped {
            return Poll::Ready(Read::End(End::Reset(code)));
        }
        if let Some(bytes) = recv.pop(max_bytes.max(1)) {
            if recv.wants_grant() && !recv.grant_due && !closed {
                recv.grant_due = true;
                self.enter_urgent(id, wakes);
            }
            return Poll::Ready(Read::Bytes(bytes));
        }
        // A closed connection is why its streams were cut, and tells more.
        match recv.end {
            Some(End::Reset(_)) if closed => Poll::Ready(Read::Closed),
            Some(end) => Poll::Ready(Read::End(end)),
            None if closed => Poll::Ready(Read::Closed),
            None => {
                recv.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Tells the peer to stop, and forgets what arrived.
    pub(crate) fn stop(&mut self, id: u64, code: StreamCode, wakes: &mut Wakes) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let recv = &mut stream.recv;
        if recv.stopped.is_some() {
            return;
        }
        recv.stopped = Some(code);
        recv.discard();
        recv.grant_due = false;
        if recv.end.is_none() && !self.closed {
            recv.stop_due = true;
            self.enter_urgent(id, wakes);
        }
        self.release_early(id, wakes);
    }

    /// The handle is gone.
    pub(crate) fn drop_recv(&mut self, id: u64, wakes: &mut Wakes) {
        self.stop(id, StreamCode::CANCELLED, wakes);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.recv.dropped = true;
        stream.recv.waker = None;
        self.settle(id, wakes);
    }
}
