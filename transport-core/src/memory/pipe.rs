//! One direction of an in-memory stream: a queue of chunks with a window.

use crate::connection::{BiStream, RecvStream, SendStream, StreamClass, StreamCode, StreamError};
use crate::memory::connection::Link;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What a writer may have unread: as for a network, so that tests meet back-pressure soon.
const WINDOW_BYTES: usize = 256 * 1024;

/// The shared state of one direction.
#[derive(Debug)]
pub(super) struct Pipe {
    link: Arc<Link>,
    carried: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Bytes>,
    queued_bytes: usize,
    end: Option<End>,
    stopped: Option<StreamCode>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Finished,
    Reset(StreamCode),
}

/// A stream over two pipes: the one this side writes, the one it reads.
pub(super) fn stream(write: Arc<Pipe>, read: Arc<Pipe>) -> BiStream {
    BiStream {
        send: Box::new(Writer(write)),
        recv: Box::new(Reader(read)),
    }
}

impl Pipe {
    pub(super) fn new(link: Arc<Link>, carried: Arc<AtomicU64>) -> Self {
        Self {
            link,
            carried,
            state: Mutex::default(),
        }
    }

    /// Wakes both ends, to meet a closed connection.
    pub(super) fn wake(&self) {
        let mut state = self.lock();
        wake(&mut state.reader);
        wake(&mut state.writer);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: End) {
        let mut state = self.lock();
        if state.end.is_none() {
            state.end = Some(end);
            if matches!(end, End::Reset(_)) {
                state.chunks.clear();
                state.queued_bytes = 0;
            }
            wake(&mut state.reader);
        }
    }
}

struct Writer(Arc<Pipe>);

impl SendStream for Writer {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), StreamError>> {
        let mut state = self.0.lock();
        while !chunks.is_empty() {
            // A closed connection is why its streams were stopped, and tells more.
            if let Some(err) = self.0.link.error() {
                return Poll::Ready(Err(StreamError::Connection(err)));
            }
            if let Some(code) = state.stopped {
                return Poll::Ready(Err(StreamError::Stopped(code)));
            }
            if state.end.is_some() {
                return Poll::Ready(Err(StreamError::Stopped(StreamCode::ABANDONED)));
            }
            let room = WINDOW_BYTES.saturating_sub(state.queued_bytes);
            if room == 0 {
                state.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if let Some(chunk) = take(chunks, room) {
                state.queued_bytes += chunk.len();
                self.0
                    .carried
                    .fetch_add(chunk.len() as u64, Ordering::Relaxed);
                state.chunks.push_back(chunk);
                wake(&mut state.reader);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn finish(&mut self) {
        self.0.end(End::Finished);
    }

    fn reset(&mut self, code: StreamCode) {
        self.0.end(End::Reset(code));
    }

    fn set_class(&mut self, _class: StreamClass) {}
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.end(End::Reset(StreamCode::ABANDONED));
    }
}

struct Reader(Arc<Pipe>);

impl RecvStream for Reader {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        let mut state = self.0.lock();
        if let Some(chunk) = take(&mut state.chunks, max_bytes.max(1)) {
            state.queued_bytes -= chunk.len();
            wake(&mut state.writer);
            return Poll::Ready(Ok(Some(chunk)));
        }
        if matches!(state.end, Some(End::Finished)) {
            return Poll::Ready(Ok(None));
        }
        // A closed connection is why its streams were reset, and tells more.
        if let Some(err) = self.0.link.error() {
            return Poll::Ready(Err(StreamError::Connection(err)));
        }
        if let Some(End::Reset(code)) = state.end {
            return Poll::Ready(Err(StreamError::Reset(code)));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn stop(&mut self, code: StreamCode) {
        let mut state = self.0.lock();
        state.stopped.get_or_insert(code);
        state.chunks.clear();
        state.queued_bytes = 0;
        wake(&mut state.writer);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop(StreamCode::CANCELLED);
    }
}

/// The first chunk, or as much of it as fits; empty ones are dropped.
fn take(chunks: &mut VecDeque<Bytes>, max_bytes: usize) -> Option<Bytes> {
    let mut chunk = chunks.pop_front()?;
    if chunk.len() > max_bytes {
        let rest = chunk.split_off(max_bytes);
        chunks.push_front(rest);
    }
    (!chunk.is_empty()).then_some(chunk)
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
