//! The transport over named pipes keeps the contract.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use async_trait::async_trait;
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::{IoRuntime, TransportError};
use datafusion_transport_examples::fifo::{FifoConnector, FifoListener};
use datafusion_transport_tcp::TcpConfig;
use datafusion_transport_tests::{ConnectionHarness, Subject};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use url::Url;

struct Fifo {
    dir: TempDir,
    workers: AtomicU64,
}

impl Fifo {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            workers: AtomicU64::new(0),
        }
    }
}

/// A silent peer is lost after 4 s: cases wait for that.
fn config() -> TcpConfig {
    TcpConfig {
        keep_alive_interval: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(4),
        ..TcpConfig::default()
    }
}

impl Subject for Fifo {
    fn name(&self) -> &str {
        "fifo"
    }
}

#[async_trait]
impl ConnectionHarness for Fifo {
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError> {
        Ok(Arc::new(FifoConnector::new(
            config(),
            &IoRuntime::shared()?,
        )?))
    }

    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError> {
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        let fresh = || self.dir.path().join(number.to_string());
        let dir = at.map_or_else(fresh, |url| PathBuf::from(url.path()));
        let listener = FifoListener::bind(&dir, config(), io)?;
        let url = format!("fifo://{}", dir.display()).parse().unwrap();
        Ok((url, Box::new(listener)))
    }
}

datafusion_transport_tests::connection_contract!(connection, Fifo::new());
datafusion_transport_tests::channel_contract!(channel, Fifo::new());
datafusion_transport_tests::cluster_contract!(cluster, Fifo::new());
