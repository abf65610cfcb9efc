//! A listener whose connections send at a given rate, or take whatever they are given.

use crate::connection::{
    BiStream, Connection, ConnectionStats, Listener, SendStream, StreamClass, StreamCode,
    StreamError, write,
};
use crate::error::TransportError;
use crate::memory::MemoryListener;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Sleep;

/// Sent at once, and paid for by a pause: some milliseconds at the rates of the tests.
const PIECE_BYTES: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct ShapedListener {
    inner: MemoryListener,
    bytes_per_second: Option<u64>,
}

impl ShapedListener {
    pub(super) fn new(inner: MemoryListener, bytes_per_second: Option<u64>) -> Self {
        Self {
            inner,
            bytes_per_second,
        }
    }
}

#[async_trait]
impl Listener for ShapedListener {
    async fn accept(&mut self) -> Option<Arc<dyn Connection>> {
        Some(Arc::new(Shaped {
            inner: self.inner.accept().await?,
            bytes_per_second: self.bytes_per_second,
        }))
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn close(&mut self) {
        self.inner.close().await;
    }
}

#[derive(Debug)]
struct Shaped {
    inner: Arc<dyn Connection>,
    bytes_per_second: Option<u64>,
}

#[async_trait]
impl Connection for Shaped {
    async fn open(&self, class: StreamClass) -> Result<BiStream, TransportError> {
        self.inner.open(class).await
    }

    async fn accept(&self) -> Result<BiStream, TransportError> {
        let BiStream { send, recv } = self.inner.accept().await?;
        let (queue, queued) = mpsc::unbounded_channel();
        tokio::spawn(forward(queued, send));
        let send = Box::new(ShapedSend {
            queue,
            bytes_per_second: self.bytes_per_second,
            pause: None,
        });
        Ok(BiStream { send, recv })
    }

    fn close(&self, reason: &str) {
        self.inner.close(reason);
    }

    fn close_reason(&self) -> Option<TransportError> {
        self.inner.close_reason()
    }

    async fn closed(&self) -> TransportError {
        self.inner.closed().await
    }

    fn peer(&self) -> String {
        self.inner.peer()
    }

    fn stats(&self) -> ConnectionStats {
        self.inner.stats()
    }
}

/// What is to be sent; `None` is the clean end.
type Piece = Option<Bytes>;

struct ShapedSend {
    queue: UnboundedSender<Piece>,
    bytes_per_second: Option<u64>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl SendStream for ShapedSend {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), StreamError>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let Some(mut chunk) = chunks.pop_front() else {
                return Poll::Ready(Ok(()));
            };
            if let Some(rate) = self.bytes_per_second {
                if chunk.len() > PIECE_BYTES {
                    chunks.push_front(chunk.split_off(PIECE_BYTES));
                }
                let takes = Duration::from_secs_f64(chunk.len() as f64 / rate as f64);
                self.pause = Some(Box::pin(tokio::time::sleep(takes)));
            }
            if self.queue.send(Some(chunk)).is_err() {
                return Poll::Ready(Err(StreamError::Stopped(StreamCode::CANCELLED)));
            }
        }
    }

    fn finish(&mut self) {
        let _ = self.queue.send(None);
    }

    fn reset(&mut self, _code: StreamCode) {}

    fn set_class(&mut self, _class: StreamClass) {}
}

async fn forward(mut queued: UnboundedReceiver<Piece>, mut send: Box<dyn SendStream>) {
    while let Some(piece) = queued.recv().await {
        let Some(chunk) = piece else {
            return send.finish();
        };
        if write(&mut *send, &mut [chunk].into()).await.is_err() {
            return;
        }
    }
}
