//! [`Server`]: serves a worker over any listeners.
//!
//! Connections, and the first message of every call, are handled on the I/O runtime; plans run on the runtime that
//! [`ServerBuilder::start`] was called in. So a worker whose query threads all compute still answers its peers.

mod batches;
pub(crate) mod call;
mod compress;
mod connection;
mod coordinator;
mod link;
mod partition;
mod tasks;

use crate::connection::Listener;
use crate::error::{ErrorKind, TransportError};
use crate::runtime::IoRuntime;
use crate::server::connection::serve_connection;
use crate::server::tasks::TaskTable;
use crate::service::WorkerService;
use crate::throttle::Throttle;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Entry point: [`Server::builder`].
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts to configure a server for a worker: a [`WiredWorker`](crate::WiredWorker), or an engine's own service.
    pub fn builder(service: impl WorkerService) -> ServerBuilder {
        ServerBuilder {
            service: Arc::new(service),
            listeners: vec![],
            io: None,
            request_timeout: Duration::from_secs(10),
        }
    }
}

/// Configuration of a server.
pub struct ServerBuilder {
    service: Arc<dyn WorkerService>,
    listeners: Vec<Box<dyn Listener>>,
    io: Option<IoRuntime>,
    request_timeout: Duration,
}

impl ServerBuilder {
    /// Adds a listener, bound already.
    pub fn listener(mut self, listener: Box<dyn Listener>) -> Self {
        self.listeners.push(listener);
        self
    }

    /// The runtime for connections. Default: [`IoRuntime::shared`].
    pub fn io_runtime(mut self, io: IoRuntime) -> Self {
        self.io = Some(io);
        self
    }

    /// How long a peer may take from opening a stream to the end of its request. Default 10 s.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// Starts to serve. To be called inside the tokio runtime that is to run queries.
    ///
    /// # Errors
    /// `Config` outside a tokio runtime, without a listener, or where the I/O runtime can't start.
    pub fn start(self) -> Result<ServerHandle, TransportError> {
        let error =
            |detail: &str| TransportError::new(ErrorKind::Config, "start server", "local", detail);
        let query = Handle::try_current()
            .map_err(|_| error("call start() inside the tokio runtime that is to run queries"))?;
        if self.listeners.is_empty() {
            return Err(error("no listener was added"));
        }
        let io = self.io.map_or_else(IoRuntime::shared, Ok)?;
        let state = Arc::new(ServerState {
            service: self.service,
            query,
            _io: io.clone(),
            request_timeout: self.request_timeout,
            tasks: TaskTable::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            calls: TaskTracker::new(),
            connections: AtomicUsize::new(0),
            refused: Throttle::default(),
            late: Throttle::default(),
        });
        let mut listeners = JoinSet::new();
        for listener in self.listeners {
            tracing::info!(listener = listener.describe(), "serving");
            listeners.spawn_on(serve_listener(listener, Arc::clone(&state)), &io.handle());
        }
        Ok(ServerHandle { state, listeners })
    }
}

/// What all connections of a server share.
struct ServerState {
    service: Arc<dyn WorkerService>,
    query: Handle,
    /// Keeps the runtime that all of it runs on.
    _io: IoRuntime,
    request_timeout: Duration,
    tasks: TaskTable,
    /// No new calls.
    draining: CancellationToken,
    /// No connections any more.
    closing: CancellationToken,
    calls: TaskTracker,
    connections: AtomicUsize,
    /// Calls refused for what they say, and given up for what they don't.
    refused: Throttle,
    late: Throttle,
}

/// A running server. Dropping it closes all connections at once.
#[must_use = "dropping the handle stops the server"]
pub struct ServerHandle {
    state: Arc<ServerState>,
    listeners: JoinSet<()>,
}

/// What a server has open now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections.
    pub connections: usize,
    /// Calls: coordinator channels and partitions.
    pub calls: usize,
    /// Tasks whose coordinator channel is open.
    pub tasks: usize,
}

impl ServerHandle {
    /// What is open now.
    pub fn stats(&self) -> ServerStats {
        ServerStats {
            connections: self.state.connections.load(Ordering::Relaxed),
            calls: self.state.calls.len(),
            tasks: self.state.tasks.len(),
        }
    }

    /// Stops gracefully: refuses new queries with an error that says so, serves those in flight, their later partitions
    /// included, until `deadline` has passed, then closes the connections with a reason. Returns the number of calls that
    /// were cut. Dropping the future stops at once.
    pub async fn shutdown(mut self, deadline: Duration) -> usize {
        self.state.draining.cancel();
        self.state.calls.close();
        let _ = tokio::time::timeout(deadline, self.state.calls.wait()).await;
        let cut = self.state.calls.len();
        self.state.closing.cancel();
        while self.listeners.join_next().await.is_some() {}
        cut
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.state.draining.cancel();
        self.state.closing.cancel();
        // The listener tasks close their connections and sockets by themselves; aborting them would not.
        self.listeners.detach_all();
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerHandle").field(&self.stats()).finish()
    }
}

/// Accepts connections until the server closes, then waits for them and closes the listener.
async fn serve_listener(mut listener: Box<dyn Listener>, state: Arc<ServerState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = state.closing.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Some(connection) => {
                    connections.spawn(serve_connection(connection, Arc::clone(&state)));
                }
                None => {
                    let listener = listener.describe();
                    tracing::error!(listener, "accepts no more connections: restart the worker");
                    break;
                }
            }
        }
    }
    while connections.join_next().await.is_some() {}
    listener.close().await;
}

#[cfg(test)]
mod tests;
