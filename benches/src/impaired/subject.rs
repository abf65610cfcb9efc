//! The transports that are measured, their workers beyond the link.

use super::link::{DISTANT, NEAR};
use crate::grpc::{Grpc, Security, Windows};
use crate::subject::{GRPC, GRPC_TLS, cubic};
use async_trait::async_trait;
use datafusion_transport_core::error::ErrorKind;
use datafusion_transport_core::{IoRuntime, TransportError, Transports};
use datafusion_transport_tests::harness::quic::Quic;
use datafusion_transport_tests::harness::tcp::Tcp;
use datafusion_transport_tests::{ChannelHarness, Served, Service, Subject};
use std::sync::Arc;
use url::Url;

/// All that are measured, as they come; QUIC also with its other congestion control, because the kernel's may be the like of it.
pub fn all() -> Vec<Arc<dyn ChannelHarness>> {
    let all: [Arc<dyn ChannelHarness>; 6] = [
        Arc::new(Grpc::new(GRPC, Windows::Default, Security::None)),
        Arc::new(Grpc::new(GRPC_TLS, Windows::Default, Security::Tls)),
        Arc::new(Tcp::new()),
        Arc::new(Tcp::with_tls()),
        Arc::new(Quic::new()),
        cubic(),
    ];
    let across = |inner| Arc::new(Across { inner }) as _;
    all.into_iter().map(across).collect()
}

/// Another harness, its worker at [`NEAR`] and reached as [`DISTANT`].
struct Across {
    inner: Arc<dyn ChannelHarness>,
}

impl Subject for Across {
    fn name(&self) -> &str {
        self.inner.name()
    }
}

#[async_trait]
impl ChannelHarness for Across {
    fn transports(&self) -> Transports {
        self.inner.transports()
    }

    async fn serve(
        &self,
        service: Service,
        _at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError> {
        let url = |text: String| {
            let failed = |err: url::ParseError| err.to_string();
            let parsed = text.parse::<Url>().map_err(failed);
            parsed.map_err(|err| TransportError::new(ErrorKind::Config, "serve", "local", err))
        };
        let near = url(format!("http://{NEAR}:0"))?;
        let inner = self.inner.serve(service, Some(&near), io).await?;
        let port = inner.url().port_or_known_default().unwrap_or_default();
        let url = url(format!("http://{DISTANT}:{port}"))?;
        Ok(Box::new(Beyond { inner, url }))
    }
}

struct Beyond {
    inner: Box<dyn Served>,
    url: Url,
}

#[async_trait]
impl Served for Beyond {
    fn url(&self) -> &Url {
        &self.url
    }

    async fn kill(self: Box<Self>) {
        self.inner.kill().await;
    }
}
