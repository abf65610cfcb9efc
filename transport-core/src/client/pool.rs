//! [`Pool`]: the connections of one transport kind, by worker URL.
//!
//! Callers that arrive while a worker is being dialled share that dial. A failed dial is not remembered, a dead connection
//! is replaced at the next call, an idle one is closed, and one that carries a stream is never evicted.

use crate::client::queries::QueryTable;
use crate::connection::{BiStream, Connection, ConnectionStats, Connector, StreamClass};
use crate::error::{Delivery, ErrorKind, TransportError};
use crate::runtime::IoRuntime;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

/// How long a stream may wait for the peer's allowance. A consumer that needs all its partitions at once, as a merge does,
/// would wait for ever once they are more than the allowance.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// How connections are kept.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// A connection without streams is closed after this long. Default one minute.
    pub idle_timeout: Duration,
    /// Connections per worker, used in turn, one per call. Default 1; more can help where one core can't drive a link.
    pub connections_per_peer: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(60),
            connections_per_peer: 1,
        }
    }
}

/// What one worker's connections did so far, seen from this process.
#[derive(Clone, Debug)]
pub struct PeerStats {
    /// The transport kind.
    pub kind: String,
    /// The worker.
    pub url: Url,
    /// Connections open now.
    pub connections: usize,
    /// Connections dialled, successful or not.
    pub dials: u64,
    /// Streams opened.
    pub streams_opened: u64,
    /// Streams open now.
    pub streams_active: usize,
    /// Counters over all connections, past and present; round trip and MTU are those of the last one.
    pub connection: ConnectionStats,
}

type Dial = Shared<BoxFuture<'static, Result<Arc<Pooled>, TransportError>>>;

/// Dials that one caller waits for, its own and others', within its limit.
const MAX_DIALS: usize = 3;

/// A worker that was not called for this many idle timeouts is forgotten, its counters too: long enough for whoever reads
/// them, and in a cluster whose workers come and go under new URLs the table stays as small as what is in use.
const FORGET_AFTER_IDLE_TIMEOUTS: u32 = 10;

/// The connections of one transport kind. Dropping it closes them all.
#[derive(Debug)]
pub(crate) struct Pool {
    kind: String,
    connector: Arc<dyn Connector>,
    io: IoRuntime,
    options: PoolOptions,
    peers: Mutex<HashMap<Url, Arc<Peer>>>,
    /// One table for all kinds of a registry: a query's streams to several workers may go over several kinds.
    pub(super) queries: Arc<QueryTable>,
    tasks: TaskTracker,
    closed: CancellationToken,
}

#[derive(Debug)]
struct Peer {
    url: Url,
    slots: Vec<Mutex<Slot>>,
    next: AtomicUsize,
    dials: AtomicU64,
    streams_opened: AtomicU64,
    streams_active: AtomicUsize,
    past: Mutex<ConnectionStats>,
    last_used: Mutex<Instant>,
}

#[derive(Debug)]
enum Slot {
    Empty,
    Dialling(Dial),
    Ready(Arc<Pooled>),
}

#[derive(Debug)]
struct Pooled {
    connection: Arc<dyn Connection>,
    leases: AtomicUsize,
    idle_since: Mutex<Instant>,
}

/// The right to a connection; it is not evicted while one exists.
#[derive(Debug)]
pub(crate) struct Lease {
    pooled: Arc<Pooled>,
    peer: Arc<Peer>,
}

impl Pool {
    /// Whether its handshakes show who the peer is.
    pub(crate) fn authenticates(&self) -> bool {
        self.connector.authenticates()
    }

    pub(crate) fn new(
        kind: String,
        connector: Arc<dyn Connector>,
        io: IoRuntime,
        options: PoolOptions,
        queries: Arc<QueryTable>,
    ) -> Arc<Self> {
        let pool = Arc::new(Self {
            kind,
            connector,
            io,
            options,
            peers: Mutex::default(),
            queries,
            tasks: TaskTracker::new(),
            closed: CancellationToken::new(),
        });
        let reaper = reap(Arc::downgrade(&pool), pool.options.idle_timeout / 2);
        pool.spawn(reaper);
        pool
    }

    /// Runs a task on the I/O runtime until it ends or the pool closes.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks
            .spawn_on(self.until_closed(task), &self.io.handle());
    }

    /// As [`spawn`](Self::spawn), but begins on the calling thread and goes on there until the task first waits: what need not
    /// wait costs no hand-over between threads.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) {
        let io = self.io.handle();
        let mut task = Box::pin(self.until_closed(task));
        let begun = {
            let _on = io.enter();
            task.as_mut().now_or_never()
        };
        if begun.is_none() {
            self.tasks.spawn_on(task, &io);
        }
    }

    fn until_closed(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let closed = self.closed.clone();
        async move {
            tokio::select! {
                () = closed.cancelled() => {}
                () = task => {}
            }
        }
    }

    /// A live connection to the worker, dialled if need be.
    ///
    /// # Errors
    /// What the dial reports, or `Timeout` after `limit`; nothing was sent.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        url: &Url,
        limit: Duration,
    ) -> Result<Lease, TransportError> {
        let peer = self.peer(url);
        let wait = self.acquire_from(&peer, limit);
        let lease = tokio::time::timeout(limit, wait).await;
        lease.unwrap_or_else(|_| Err(dial_timeout(url, limit)))
    }

    /// Opens a stream on a live connection. A pooled connection that turns out dead is replaced once: opening sends nothing.
    pub(crate) async fn open(
        self: &Arc<Self>,
        url: &Url,
        class: StreamClass,
        limit: Duration,
    ) -> Result<(BiStream, Lease), TransportError> {
        let lease = self.acquire(url, limit).await?;
        match lease.open(class).await {
            Ok(stream) => return Ok((stream, lease)),
            Err(err) if lease.is_alive() => return Err(err),
            Err(_) => {}
        }
        let lease = self.acquire(url, limit).await?;
        let stream = lease.open(class).await?;
        Ok((stream, lease))
    }

    /// Whether a connection to the worker lives now. Dials nobody.
    pub(crate) fn is_connected(&self, url: &Url) -> bool {
        let peers = lock(&self.peers);
        peers.get(url).is_some_and(|peer| peer.has_connection())
    }

    /// Counters by worker, in the order of their URLs.
    pub(crate) fn stats(&self) -> Vec<PeerStats> {
        let peers: Vec<_> = lock(&self.peers).values().cloned().collect();
        let mut stats: Vec<_> = peers.iter().map(|peer| peer.stats(&self.kind)).collect();
        stats.sort_by(|a, b| a.url.cmp(&b.url));
        stats
    }

    /// Closes every connection with a reason and ends the pool's tasks; later calls fail.
    pub(crate) async fn close(&self, reason: &str) {
        self.close_now(reason);
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn close_now(&self, reason: &str) {
        self.closed.cancel();
        for peer in lock(&self.peers).values() {
            for slot in &peer.slots {
                if let Slot::Ready(pooled) = std::mem::replace(&mut *lock(slot), Slot::Empty) {
                    peer.retire(&pooled, reason);
                }
            }
        }
    }

    fn peer(&self, url: &Url) -> Arc<Peer> {
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.get(url) {
            *lock(&peer.last_used) = Instant::now();
            return Arc::clone(peer);
        }
        let peer = Arc::new(Peer::new(url.clone(), self.options.connections_per_peer));
        peers.insert(url.clone(), Arc::clone(&peer));
        peer
    }

    async fn acquire_from(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        limit: Duration,
    ) -> Result<Lease, TransportError> {
        let turn = peer.next.fetch_add(1, Ordering::Relaxed) % peer.slots.len().max(1);
        let mut last = None;
        for _ in 0..MAX_DIALS {
            let dial = match self.lease_or_dial(peer, turn, limit)? {
                Ok(lease) => return Ok(lease),
                Err(dial) => dial,
            };
            match dial.await {
                Ok(pooled) => match pooled.connection.close_reason() {
                    // Made, and refused at once: a peer may look at a certificate only then (RFC 8446, 4.6.2).
                    Some(err) => return Err(err.during("connect", peer.url.as_str())),
                    None => last = None,
                },
                // The dial of a caller with less patience.
                Err(err) if err.kind() == ErrorKind::Timeout => last = Some(err),
                Err(err) => return Err(err),
            }
        }
        Err(last.unwrap_or_else(|| dial_timeout(&peer.url, limit)))
    }

    /// A lease where the slot has a live connection, else the dial to wait for.
    fn lease_or_dial(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        turn: usize,
        limit: Duration,
    ) -> Result<Result<Lease, Dial>, TransportError> {
        let error = |detail: &str| {
            TransportError::new(ErrorKind::Config, "connect", peer.url.as_str(), detail)
        };
        if self.closed.is_cancelled() {
            return Err(error("the transports of this process were shut down"));
        }
        let slot = peer
            .slots
            .get(turn)
            .ok_or_else(|| error("no connections configured"))?;
        let mut slot = lock(slot);
        match &*slot {
            Slot::Ready(pooled) if pooled.connection.close_reason().is_none() => {
                return Ok(Ok(Lease::new(pooled, peer)));
            }
            // A dial that is over and left the slot as it was has panicked; the next one may not.
            Slot::Dialling(dial) if dial.peek().is_none() => return Ok(Err(dial.clone())),
            Slot::Dialling(_) => {}
            Slot::Ready(dead) => peer.retire(dead, "replaced"),
            Slot::Empty => {}
        }
        let dial = self.dial(peer, turn, limit);
        *slot = Slot::Dialling(dial.clone());
        Ok(Err(dial))
    }

    /// Dials on the I/O runtime, so that no caller's end cuts it short for the others.
    fn dial(self: &Arc<Self>, peer: &Arc<Peer>, turn: usize, limit: Duration) -> Dial {
        peer.dials.fetch_add(1, Ordering::Relaxed);
        let (pool, peer) = (Arc::downgrade(self), Arc::clone(peer));
        let connector = Arc::clone(&self.connector);
        let url = peer.url.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.spawn(async move {
            let outcome = tokio::time::timeout(limit, connector.connect(&peer.url)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(dial_timeout(&peer.url, limit)));
            if pool.upgrade().is_some() {
                let _ = sender.send(peer.dialled(turn, outcome));
            }
        });
        let ended = move || {
            let detail = "the transports of this process were shut down";
            TransportError::new(ErrorKind::Config, "connect", url.as_str(), detail)
        };
        async move { receiver.await.unwrap_or_else(|_| Err(ended())) }
            .boxed()
            .shared()
    }

    /// Closes connections without streams and forgets workers that nobody called for long.
    fn close_idle(&self) {
        let idle = self.options.idle_timeout;
        let forget_after = idle.saturating_mul(FORGET_AFTER_IDLE_TIMEOUTS);
        let mut peers = lock(&self.peers);
        for peer in peers.values() {
            for slot in &peer.slots {
                let mut slot = lock(slot);
                if let Slot::Ready(pooled) = &*slot
                    && pooled.leases.load(Ordering::Acquire) == 0
                    && lock(&pooled.idle_since).elapsed() >= self.options.idle_timeout
                {
                    peer.retire(pooled, "idle");
                    *slot = Slot::Empty;
                }
            }
        }
        // A call or a dial under way holds its peer, and takes it under this lock.
        peers.retain(|_, peer| {
            Arc::strong_count(peer) > 1
                || peer.has_connection()
                || lock(&peer.last_used).elapsed() < forget_after
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close_now("the client is gone");
    }
}

impl Peer {
    fn new(url: Url, connections: usize) -> Self {
        Self {
            url,
            slots: (0..connections.max(1))
                .map(|_| Mutex::new(Slot::Empty))
                .collect(),
            next: AtomicUsize::new(0),
            dials: AtomicU64::new(0),
            streams_opened: AtomicU64::new(0),
            streams_active: AtomicUsize::new(0),
            past: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
        }
    }

    /// Stores a dial's outcome: a failure leaves the slot empty, for the next caller to try again.
    fn dialled(
        &self,
        turn: usize,
        outcome: Result<Arc<dyn Connection>, TransportError>,
    ) -> Result<Arc<Pooled>, TransportError> {
        let result = outcome.map(|connection| Arc::new(Pooled::new(connection)));
        if let Some(slot) = self.slots.get(turn) {
            *lock(slot) = match &result {
                Ok(pooled) => Slot::Ready(Arc::clone(pooled)),
                Err(_) => Slot::Empty,
            };
        }
        result
    }

    fn has_connection(&self) -> bool {
        self.slots.iter().any(|slot| match &*lock(slot) {
            Slot::Ready(pooled) => pooled.connection.close_reason().is_none(),
            Slot::Empty | Slot::Dialling(_) => false,
        })
    }

    /// Closes a connection and keeps its counters.
    fn retire(&self, pooled: &Pooled, reason: &str) {
        pooled.connection.close(reason);
        add(&mut lock(&self.past), &pooled.connection.stats());
    }

    fn stats(&self, kind: &str) -> PeerStats {
        let mut total = *lock(&self.past);
        let mut connections = 0;
        for slot in &self.slots {
            if let Slot::Ready(pooled) = &*lock(slot) {
                add(&mut total, &pooled.connection.stats());
                connections += usize::from(pooled.connection.close_reason().is_none());
            }
        }
        PeerStats {
            kind: kind.to_owned(),
            url: self.url.clone(),
            connections,
            dials: self.dials.load(Ordering::Relaxed),
            streams_opened: self.streams_opened.load(Ordering::Relaxed),
            streams_active: self.streams_active.load(Ordering::Relaxed),
            connection: total,
        }
    }
}

impl Pooled {
    fn new(connection: Arc<dyn Connection>) -> Self {
        Self {
            connection,
            leases: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
        }
    }
}

impl Lease {
    /// Counted under the slot's lock, or from another lease: the reaper can't come between.
    fn new(pooled: &Arc<Pooled>, peer: &Arc<Peer>) -> Self {
        pooled.leases.fetch_add(1, Ordering::AcqRel);
        peer.streams_active.fetch_add(1, Ordering::Relaxed);
        Self {
            pooled: Arc::clone(pooled),
            peer: Arc::clone(peer),
        }
    }

    /// Opens a stream; the lease, or a clone, is to be kept as long as the stream.
    pub(crate) async fn open(&self, class: StreamClass) -> Result<BiStream, TransportError> {
        let url = self.peer.url.as_str();
        let open = tokio::time::timeout(OPEN_LIMIT, self.pooled.connection.open(class));
        let stream = open.await.unwrap_or_else(|_| {
            let detail = format!(
                "the worker allowed no further stream within {OPEN_LIMIT:?}; raise the number of streams that it allows"
            );
            let err = TransportError::new(ErrorKind::Timeout, "open stream", url, detail);
            Err(err.with_delivery(Delivery::NotDelivered))
        });
        let stream = stream.map_err(|err| err.during("open stream", self.peer.url.as_str()))?;
        self.peer.streams_opened.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }

    fn is_alive(&self) -> bool {
        self.pooled.connection.close_reason().is_none()
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        Self::new(&self.pooled, &self.peer)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.peer.streams_active.fetch_sub(1, Ordering::Relaxed);
        *lock(&self.pooled.idle_since) = Instant::now();
        self.pooled.leases.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Closes idle connections now and then, as long as the pool exists.
async fn reap(pool: Weak<Pool>, every: Duration) {
    loop {
        tokio::time::sleep(every.max(Duration::from_millis(10))).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.close_idle();
    }
}

fn dial_timeout(url: &Url, limit: Duration) -> TransportError {
    let detail = format!("no connection within {limit:?} (transport.connect_timeout_ms)");
    TransportError::new(ErrorKind::Timeout, "connect", url.as_str(), detail)
        .with_delivery(Delivery::NotDelivered)
}

fn add(total: &mut ConnectionStats, more: &ConnectionStats) {
    total.bytes_sent += more.bytes_sent;
    total.bytes_received += more.bytes_received;
    total.packets_lost += more.packets_lost;
    total.round_trip = more.round_trip.or(total.round_trip);
    total.path_mtu_bytes = more.path_mtu_bytes.or(total.path_mtu_bytes);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
