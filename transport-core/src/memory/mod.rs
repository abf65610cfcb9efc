//! An in-memory network: the reference for what the lower seam means, and a fast one for tests.
//!
//! Peers meet by URL in a [`MemoryNetwork`]. Every stream is a pipe with a window of its own.

mod connection;
mod pipe;

use crate::connection::{Connection, Connector, Listener};
use crate::error::{ErrorKind, TransportError};
use async_trait::async_trait;
use connection::MemoryConnection;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use url::Url;

/// Connections that may wait to be accepted; more wait to connect.
const BACKLOG: usize = 128;

/// A network inside one process. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct MemoryNetwork {
    listeners: Arc<Mutex<HashMap<Url, mpsc::Sender<MemoryConnection>>>>,
}

/// Accepts connections to one URL of a [`MemoryNetwork`].
#[derive(Debug)]
pub struct MemoryListener {
    url: Url,
    incoming: mpsc::Receiver<MemoryConnection>,
    network: MemoryNetwork,
}

impl MemoryNetwork {
    /// An empty network.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens at a URL, of whatever scheme; replaces an earlier listener there.
    pub fn listen(&self, url: &Url) -> MemoryListener {
        let (sender, incoming) = mpsc::channel(BACKLOG);
        self.lock().insert(url.clone(), sender);
        MemoryListener {
            url: url.clone(),
            incoming,
            network: self.clone(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Url, mpsc::Sender<MemoryConnection>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Connector for MemoryNetwork {
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
        let refused = || {
            let detail = "nobody listens at this URL of the in-memory network";
            TransportError::new(ErrorKind::Connect, "connect", url.as_str(), detail)
        };
        let listener = self.lock().get(url).cloned().ok_or_else(refused)?;
        let (client, server) = MemoryConnection::pair(url);
        listener.send(server).await.map_err(|_| refused())?;
        Ok(Arc::new(client))
    }
}

#[async_trait]
impl Listener for MemoryListener {
    async fn accept(&mut self) -> Option<Arc<dyn Connection>> {
        let connection = self.incoming.recv().await?;
        Some(Arc::new(connection))
    }

    fn describe(&self) -> String {
        format!("memory {}", self.url)
    }

    async fn close(&mut self) {
        self.incoming.close();
        let mut listeners = self.network.lock();
        if listeners
            .get(&self.url)
            .is_some_and(mpsc::Sender::is_closed)
        {
            listeners.remove(&self.url);
        }
    }
}
