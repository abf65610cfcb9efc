//! A connection of the in-memory network.

use crate::connection::{BiStream, Connection, ConnectionStats, StreamClass};
use crate::error::{Delivery, ErrorKind, TransportError};
use crate::memory::pipe::{self, Pipe};
use async_trait::async_trait;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use url::Url;

/// Streams that may wait to be accepted; more wait to be opened.
const STREAM_BACKLOG: usize = 1024;

/// One side of a connection. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct MemoryConnection {
    peer: String,
    link: Arc<Link>,
    open: mpsc::Sender<BiStream>,
    incoming: AsyncMutex<mpsc::Receiver<BiStream>>,
    traffic: Arc<Traffic>,
}

/// What both sides share.
#[derive(Debug)]
pub(super) struct Link {
    closed: watch::Sender<Option<TransportError>>,
    pipes: Mutex<Vec<Weak<Pipe>>>,
}

/// Bytes by direction, seen from one side.
#[derive(Debug, Default)]
struct Traffic {
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

impl MemoryConnection {
    /// Both sides of a new connection: the client's, the server's.
    pub(super) fn pair(url: &Url) -> (Self, Self) {
        let link = Arc::new(Link {
            closed: watch::Sender::new(None),
            pipes: Mutex::default(),
        });
        let (to_server, at_server) = mpsc::channel(STREAM_BACKLOG);
        let (to_client, at_client) = mpsc::channel(STREAM_BACKLOG);
        let up = Traffic::default();
        let down = Traffic {
            sent: Arc::clone(&up.received),
            received: Arc::clone(&up.sent),
        };
        let side = |peer: String, open, incoming, traffic| Self {
            peer,
            link: Arc::clone(&link),
            open,
            incoming: AsyncMutex::new(incoming),
            traffic: Arc::new(traffic),
        };
        (
            side(url.to_string(), to_server, at_client, up),
            side(format!("client of {url}"), to_client, at_server, down),
        )
    }

    fn closed_error(&self) -> TransportError {
        self.link.error().unwrap_or_else(|| {
            TransportError::new(ErrorKind::Closed, "use connection to", &self.peer, "closed")
        })
    }
}

/// A stream that was not opened has sent nothing.
fn unsent(err: &TransportError) -> TransportError {
    err.with_delivery(Delivery::NotDelivered)
}

impl Link {
    pub(super) fn error(&self) -> Option<TransportError> {
        self.closed.borrow().clone()
    }

    fn close(&self, err: TransportError) {
        let first = self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert(err);
            first
        });
        if first {
            for pipe in self.pipes().drain(..).filter_map(|pipe| pipe.upgrade()) {
                pipe.wake();
            }
        }
    }

    /// Makes a pipe that fails when the connection closes.
    fn pipe(self: &Arc<Self>, bytes: &Arc<AtomicU64>) -> Arc<Pipe> {
        let pipe = Arc::new(Pipe::new(Arc::clone(self), Arc::clone(bytes)));
        let mut pipes = self.pipes();
        if pipes.len() == pipes.capacity() {
            pipes.retain(|pipe| pipe.strong_count() > 0);
        }
        pipes.push(Arc::downgrade(&pipe));
        pipe
    }

    fn pipes(&self) -> MutexGuard<'_, Vec<Weak<Pipe>>> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Connection for MemoryConnection {
    async fn open(&self, _class: StreamClass) -> Result<BiStream, TransportError> {
        let slot = tokio::select! {
            biased;
            err = self.closed() => return Err(unsent(&err)),
            slot = self.open.reserve() => slot.map_err(|_| unsent(&self.closed_error()))?,
        };
        let up = self.link.pipe(&self.traffic.sent);
        let down = self.link.pipe(&self.traffic.received);
        slot.send(pipe::stream(Arc::clone(&down), Arc::clone(&up)));
        Ok(pipe::stream(up, down))
    }

    async fn accept(&self) -> Result<BiStream, TransportError> {
        tokio::select! {
            biased;
            err = self.closed() => Err(err),
            stream = async { self.incoming.lock().await.recv().await } => {
                stream.ok_or_else(|| self.closed_error())
            }
        }
    }

    fn close(&self, reason: &str) {
        let err = TransportError::new(ErrorKind::Closed, "use connection to", &self.peer, reason);
        self.link.close(err);
    }

    fn close_reason(&self) -> Option<TransportError> {
        self.link.error()
    }

    async fn closed(&self) -> TransportError {
        let mut closed = self.link.closed.subscribe();
        match closed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(err)) => err.clone(),
            _ => self.closed_error(),
        }
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn stats(&self) -> ConnectionStats {
        ConnectionStats {
            bytes_sent: self.traffic.sent.load(Ordering::Relaxed),
            bytes_received: self.traffic.received.load(Ordering::Relaxed),
            ..ConnectionStats::default()
        }
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.close("the peer dropped the connection");
    }
}
