//! The multiplexer over TCP on loopback, with TLS and without, and over a Unix socket.

use crate::case::Subject;
use crate::harness::{ConnectionHarness, address, identity};
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::{IoRuntime, TransportError};
use datafusion_transport_tcp::{
    ClientTls, DevelopmentIdentity, TcpConfig, TcpConnector, TcpListener,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use url::Url;

/// The usual configuration, but a silent peer is lost after 4 s: cases wait for that.
fn config() -> TcpConfig {
    TcpConfig {
        keep_alive_interval: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(4),
        ..TcpConfig::default()
    }
}

fn connector(
    config: TcpConfig,
    tls: Option<ClientTls>,
) -> Result<Arc<dyn Connector>, TransportError> {
    let connector = TcpConnector::new(config, tls, &IoRuntime::shared()?)?;
    Ok(Arc::new(connector))
}

/// TCP on loopback.
pub struct Tcp {
    config: TcpConfig,
    tls: Option<(DevelopmentIdentity, TempDir)>,
}

impl Tcp {
    /// Without TLS.
    pub fn new() -> Self {
        Self {
            config: config(),
            tls: None,
        }
    }

    /// With TLS, and a certificate that both sides share.
    pub fn with_tls() -> Self {
        Self {
            config: config(),
            tls: Some(identity()),
        }
    }

    /// With a configuration of the caller's.
    pub fn configured(mut self, config: TcpConfig) -> Self {
        self.config = config;
        self
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for Tcp {
    fn name(&self) -> &str {
        match self.tls {
            Some(_) => "tcp+tls",
            None => "tcp",
        }
    }
}

#[async_trait]
impl ConnectionHarness for Tcp {
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError> {
        let tls = self.tls.as_ref().map(|(identity, _)| identity.client_tls());
        connector(self.config.clone(), tls.transpose()?)
    }

    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError> {
        let tls = self.tls.as_ref().map(|(identity, _)| identity.server_tls());
        let listener = TcpListener::bind(address(at), self.config.clone(), tls.transpose()?, io)?;
        let address = listener
            .local_addr()
            .expect("a TCP listener has an address");
        let url = format!("http://{address}");
        Ok((url.parse().expect("a URL"), Box::new(listener)))
    }
}

/// Unix sockets in a directory of their own.
pub struct Unix {
    dir: TempDir,
    sockets: AtomicU64,
}

impl Unix {
    /// An empty directory.
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            sockets: AtomicU64::new(0),
        }
    }
}

impl Default for Unix {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for Unix {
    fn name(&self) -> &str {
        "unix"
    }
}

#[async_trait]
impl ConnectionHarness for Unix {
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError> {
        connector(config(), None)
    }

    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError> {
        let number = self.sockets.fetch_add(1, Ordering::Relaxed);
        let fresh = || self.dir.path().join(format!("{number}.sock"));
        let path = at.map_or_else(fresh, |url| url.path().into());
        let listener = TcpListener::bind_unix(&path, config(), io)?;
        let url = format!("unix://{}", path.display());
        Ok((url.parse().expect("a URL"), Box::new(listener)))
    }
}
