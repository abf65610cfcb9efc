//! A good connection, and around it something that does one thing wrong.

use async_trait::async_trait;
use bytes::Bytes;
use datafusion_transport_core::connection::{
    BiStream, Connection, ConnectionStats, Connector, Listener, RecvStream, SendStream,
    StreamClass, StreamCode, StreamError,
};
use datafusion_transport_core::error::ErrorKind;
use datafusion_transport_core::{IoRuntime, TransportError};
use datafusion_transport_tests::harness::memory::Memory;
use datafusion_transport_tests::{Capability, ConnectionHarness, Subject};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use url::Url;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing: shows that the rest of this file is not what is noticed.
    None,
    FinishesWhenDropped,
    LosesCodes,
    NeverStopsAWriter,
    SharesAWindow,
    HoldsWithoutBound,
    Reorders,
    LosesTheLastBytes,
    ReadsMoreThanAsked,
    HidesTheReason,
    HangsWhereNobodyListens,
}

/// What all streams share that shares a window.
const SHARED_WINDOW_BYTES: i64 = 2 << 20;

/// The in-memory network, spoiled.
pub struct Broken {
    good: Memory,
    defect: Defect,
    unread: Arc<AtomicI64>,
}

impl Broken {
    pub fn new(defect: Defect) -> Self {
        Self {
            good: Memory::new(),
            defect,
            unread: Arc::default(),
        }
    }
}

impl Subject for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn lacks(&self) -> Vec<(Capability, &'static str)> {
        self.good.lacks()
    }
}

#[async_trait]
impl ConnectionHarness for Broken {
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError> {
        Ok(Arc::new(BrokenConnector {
            good: self.good.connector()?,
            defect: self.defect,
            unread: Arc::clone(&self.unread),
        }))
    }

    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError> {
        let (url, good) = self.good.listen(at, io).await?;
        let (defect, unread) = (self.defect, Arc::clone(&self.unread));
        Ok((
            url,
            Box::new(BrokenListener {
                good,
                defect,
                unread,
            }),
        ))
    }
}

#[derive(Debug)]
struct BrokenConnector {
    good: Arc<dyn Connector>,
    defect: Defect,
    unread: Arc<AtomicI64>,
}

#[async_trait]
impl Connector for BrokenConnector {
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
        let good = match self.good.connect(url).await {
            Err(_) if self.defect == Defect::HangsWhereNobodyListens => {
                std::future::pending().await
            }
            connected => connected?,
        };
        let (defect, unread) = (self.defect, Arc::clone(&self.unread));
        Ok(Arc::new(BrokenConnection {
            good,
            defect,
            unread,
        }))
    }
}

#[derive(Debug)]
struct BrokenListener {
    good: Box<dyn Listener>,
    defect: Defect,
    unread: Arc<AtomicI64>,
}

#[async_trait]
impl Listener for BrokenListener {
    async fn accept(&mut self) -> Option<Arc<dyn Connection>> {
        let good = self.good.accept().await?;
        let (defect, unread) = (self.defect, Arc::clone(&self.unread));
        Some(Arc::new(BrokenConnection {
            good,
            defect,
            unread,
        }))
    }

    fn describe(&self) -> String {
        self.good.describe()
    }

    async fn close(&mut self) {
        self.good.close().await;
    }
}

#[derive(Debug)]
struct BrokenConnection {
    good: Arc<dyn Connection>,
    defect: Defect,
    unread: Arc<AtomicI64>,
}

impl BrokenConnection {
    fn spoil(&self, stream: BiStream) -> BiStream {
        let (defect, unread) = (self.defect, &self.unread);
        BiStream {
            send: Box::new(BrokenSend {
                good: Some(stream.send),
                defect,
                unread: Arc::clone(unread),
                held: VecDeque::new(),
            }),
            recv: Box::new(BrokenRecv {
                good: Some(stream.recv),
                defect,
                unread: Arc::clone(unread),
            }),
        }
    }

    fn error(&self, err: TransportError) -> TransportError {
        match self.defect {
            Defect::HidesTheReason => {
                TransportError::new(ErrorKind::ConnectionLost, "use", self.good.peer(), "gone")
            }
            _ => err,
        }
    }
}

#[async_trait]
impl Connection for BrokenConnection {
    async fn open(&self, class: StreamClass) -> Result<BiStream, TransportError> {
        Ok(self.spoil(self.good.open(class).await?))
    }

    async fn accept(&self) -> Result<BiStream, TransportError> {
        Ok(self.spoil(self.good.accept().await?))
    }

    fn close(&self, reason: &str) {
        self.good.close(reason);
    }

    fn close_reason(&self) -> Option<TransportError> {
        self.good.close_reason().map(|err| self.error(err))
    }

    async fn closed(&self) -> TransportError {
        self.error(self.good.closed().await)
    }

    fn peer(&self) -> String {
        self.good.peer()
    }

    fn stats(&self) -> ConnectionStats {
        self.good.stats()
    }
}

struct BrokenSend {
    good: Option<Box<dyn SendStream>>,
    defect: Defect,
    unread: Arc<AtomicI64>,
    /// What it took, and has not passed on.
    held: VecDeque<Bytes>,
}

impl BrokenSend {
    fn good(&mut self) -> &mut dyn SendStream {
        self.good.as_mut().unwrap().as_mut()
    }
}

impl SendStream for BrokenSend {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), StreamError>> {
        match self.defect {
            Defect::SharesAWindow if self.unread.load(Ordering::SeqCst) > SHARED_WINDOW_BYTES => {
                let waker = cx.waker().clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    waker.wake();
                });
                return Poll::Pending;
            }
            Defect::HoldsWithoutBound => {
                self.held.append(chunks);
                let mut held = std::mem::take(&mut self.held);
                let written = self.good().poll_write(cx, &mut held);
                self.held = held;
                return match written {
                    Poll::Ready(Err(err)) => Poll::Ready(Err(err)),
                    _ => Poll::Ready(Ok(())),
                };
            }
            Defect::Reorders => chunks.make_contiguous().reverse(),
            Defect::LosesTheLastBytes => {
                if let Some(last) = chunks.back_mut() {
                    last.truncate(last.len().saturating_sub(1).max(1));
                }
            }
            _ => {}
        }
        let bytes = |chunks: &VecDeque<Bytes>| chunks.iter().map(Bytes::len).sum::<usize>();
        let before = bytes(chunks);
        let written = self.good().poll_write(cx, chunks);
        let taken = before - bytes(chunks);
        self.unread.fetch_add(taken as i64, Ordering::SeqCst);
        written
    }

    fn finish(&mut self) {
        self.good().finish();
    }

    fn reset(&mut self, code: StreamCode) {
        let code = match self.defect {
            Defect::LosesCodes => StreamCode(0),
            _ => code,
        };
        self.good().reset(code);
    }

    fn set_class(&mut self, class: StreamClass) {
        self.good().set_class(class);
    }
}

impl Drop for BrokenSend {
    fn drop(&mut self) {
        if self.defect == Defect::FinishesWhenDropped {
            self.good().finish();
        }
    }
}

struct BrokenRecv {
    good: Option<Box<dyn RecvStream>>,
    defect: Defect,
    unread: Arc<AtomicI64>,
}

impl RecvStream for BrokenRecv {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>> {
        let max_bytes = match self.defect {
            Defect::ReadsMoreThanAsked => usize::MAX,
            _ => max_bytes,
        };
        let read = self.good.as_mut().unwrap().poll_read(cx, max_bytes);
        if let Poll::Ready(Ok(Some(chunk))) = &read {
            self.unread.fetch_sub(chunk.len() as i64, Ordering::SeqCst);
        }
        read
    }

    fn stop(&mut self, code: StreamCode) {
        if self.defect != Defect::NeverStopsAWriter {
            self.good.as_mut().unwrap().stop(code);
        }
    }
}

impl Drop for BrokenRecv {
    fn drop(&mut self) {
        if self.defect == Defect::NeverStopsAWriter {
            std::mem::forget(self.good.take());
        }
    }
}
