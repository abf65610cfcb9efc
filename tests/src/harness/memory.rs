//! The in-memory network: proves the kit itself.

use crate::case::{Capability, Subject};
use crate::harness::ConnectionHarness;
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::memory::MemoryNetwork;
use datafusion_transport_core::{IoRuntime, TransportError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use url::Url;

/// A network of its own.
#[derive(Default)]
pub struct Memory {
    network: MemoryNetwork,
    workers: AtomicU64,
}

impl Memory {
    /// An empty network.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Subject for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn lacks(&self) -> Vec<(Capability, &'static str)> {
        vec![(
            Capability::Silence,
            "it has no driver that could stop while the connection is open",
        )]
    }
}

#[async_trait]
impl ConnectionHarness for Memory {
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError> {
        Ok(Arc::new(self.network.clone()))
    }

    async fn listen(
        &self,
        at: Option<&Url>,
        _io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError> {
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        let fresh = || format!("memory://worker-{number}").parse().expect("a URL");
        let url = at.cloned().unwrap_or_else(fresh);
        let listener = self.network.listen(&url);
        Ok((url, Box::new(listener)))
    }
}
