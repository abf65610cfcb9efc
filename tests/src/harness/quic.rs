//! QUIC on loopback, with a certificate of its own.

use crate::case::Subject;
use crate::harness::{ConnectionHarness, address, identity};
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::{IoRuntime, TransportError};
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use url::Url;

/// A configuration and an identity that both sides share.
pub struct Quic {
    config: QuicConfig,
    identity: DevelopmentIdentity,
    _dir: TempDir,
}

impl Quic {
    /// The usual configuration, but a silent peer is lost after 4 s: cases wait for that.
    pub fn new() -> Self {
        Self::with(QuicConfig {
            keep_alive_interval: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(4),
            ..QuicConfig::default()
        })
    }

    /// A configuration of the caller's.
    pub fn with(config: QuicConfig) -> Self {
        let (identity, dir) = identity();
        Self {
            config,
            identity,
            _dir: dir,
        }
    }
}

impl Default for Quic {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for Quic {
    fn name(&self) -> &str {
        "quic"
    }
}

#[async_trait]
impl ConnectionHarness for Quic {
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError> {
        let (tls, io) = (self.identity.client_tls()?, IoRuntime::shared()?);
        let connector = QuicConnector::new(self.config.clone(), tls, &io)?;
        Ok(Arc::new(connector))
    }

    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError> {
        let (config, tls) = (self.config.clone(), self.identity.server_tls()?);
        let listener = QuicListener::bind(address(at), config, tls, io)?;
        let url = format!("http://{}", listener.local_addr());
        Ok((url.parse().expect("a URL"), Box::new(listener)))
    }
}
