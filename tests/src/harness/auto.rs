//! `auto` over a worker that serves QUIC and TCP under one port number: it ends on QUIC.

use crate::case::Subject;
use crate::harness::quic::Quic;
use crate::harness::tcp::Tcp;
use crate::harness::{ChannelHarness, ConnectionHarness, Served, Service, served};
use async_trait::async_trait;
use datafusion_transport_core::connection::Listener;
use datafusion_transport_core::{AutoOptions, IoRuntime, TransportError, Transports};
use std::time::Duration;
use url::Url;

/// Ports that are free on TCP and taken on UDP, until this gives up.
const ATTEMPTS: usize = 100;

/// QUIC, and TCP behind it.
#[derive(Default)]
pub struct Auto {
    quic: Quic,
    tcp: Tcp,
}

impl Auto {
    /// With the kit's usual configurations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Both listeners under one port number.
    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, [Box<dyn Listener>; 2]), TransportError> {
        let mut attempts = if at.is_some() { 1 } else { ATTEMPTS };
        loop {
            let (url, tcp) = self.tcp.listen(at, io).await?;
            attempts -= 1;
            match self.quic.listen(Some(&url), io).await {
                Ok((_, quic)) => return Ok((url, [quic, tcp])),
                Err(err) if attempts == 0 => return Err(err),
                Err(_) => {}
            }
        }
    }
}

impl Subject for Auto {
    fn name(&self) -> &str {
        "auto"
    }
}

#[async_trait]
impl ChannelHarness for Auto {
    fn transports(&self) -> Transports {
        // QUIC alone is tried for so long that a busy machine does not bring TCP into a case.
        let options = AutoOptions {
            head_start: Duration::from_secs(5),
            ..AutoOptions::default()
        };
        Transports::builder()
            .connector("quic", self.quic.connector().expect("a connector"))
            .connector("tcp", self.tcp.connector().expect("a connector"))
            .auto_options(options)
            .default_kind("auto")
            .build()
            .expect("a registry")
    }

    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError> {
        let io = io.cloned().map_or_else(IoRuntime::shared, Ok)?;
        let (url, listeners) = self.listen(at, &io).await?;
        served::start(service, listeners, url, io)
    }
}
