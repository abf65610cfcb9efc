//! The subjects: every transport of the project, and the reference in three shapes.

#![allow(clippy::expect_used)]

use crate::grpc::{Grpc, Security, Windows};
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::{IoRuntime, PoolOptions, TransportError, Transports};
use datafusion_transport_quic::{CongestionControl, QuicConfig};
use datafusion_transport_tests::harness::memory::Memory;
use datafusion_transport_tests::harness::quic::Quic;
use datafusion_transport_tests::harness::tcp::{Tcp, Unix};
use datafusion_transport_tests::{ChannelHarness, ConnectionHarness, Served, Service, Subject};
use std::sync::Arc;
use url::Url;

/// The engine's gRPC as it comes.
pub const GRPC: &str = "grpc";
/// The engine's gRPC with large HTTP/2 windows.
pub const GRPC_TUNED: &str = "grpc tuned";
/// The engine's gRPC over TLS.
pub const GRPC_TLS: &str = "grpc tls";
/// What a bare socket carries.
pub const SOCKET_COPY: &str = "socket copy";

/// All, the references first.
pub fn all() -> Vec<Arc<dyn ChannelHarness>> {
    let mut all = references();
    all.extend(ours());
    all
}

/// Whether a subject is measured: all are, or those that `BENCH_SUBJECTS` lists (`tcp,grpc`), as a profile wants it.
pub fn is_chosen(subject: &str) -> bool {
    let chosen = std::env::var("BENCH_SUBJECTS").unwrap_or_default();
    chosen.is_empty() || chosen.split(',').any(|name| name == subject)
}

/// This project's.
pub fn ours() -> Vec<Arc<dyn ChannelHarness>> {
    vec![
        Arc::new(Quic::new()),
        Arc::new(Tcp::new()),
        Arc::new(Tcp::with_tls()),
        Arc::new(Unix::new()),
        Arc::new(Memory::new()),
    ]
}

/// The reference: its defaults, tuned, and with TLS.
pub fn references() -> Vec<Arc<dyn ChannelHarness>> {
    vec![
        Arc::new(Grpc::new(GRPC, Windows::Default, Security::None)),
        Arc::new(Grpc::new(GRPC_TUNED, Windows::Large, Security::None)),
        Arc::new(Grpc::new(GRPC_TLS, Windows::Default, Security::Tls)),
    ]
}

/// TCP over several connections per worker: what the default number rests on.
pub struct Spread {
    name: String,
    tcp: Tcp,
    connections_per_peer: usize,
}

impl Spread {
    /// Over this many.
    pub fn over(connections_per_peer: usize) -> Arc<dyn ChannelHarness> {
        Arc::new(Self {
            name: format!("tcp x{connections_per_peer}"),
            tcp: Tcp::new(),
            connections_per_peer,
        })
    }
}

impl Subject for Spread {
    fn name(&self) -> &str {
        &self.name
    }
}

#[async_trait]
impl ChannelHarness for Spread {
    fn transports(&self) -> Transports {
        let options = PoolOptions {
            connections_per_peer: self.connections_per_peer,
            ..PoolOptions::default()
        };
        let connector = self.tcp.connector().expect("a connector");
        let builder = Transports::builder().connector("tcp", connector);
        builder.pool(options).build().expect("a registry")
    }

    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError> {
        ChannelHarness::serve(&self.tcp, service, at, io).await
    }
}

/// QUIC with the congestion control that is not the default.
pub fn cubic() -> Arc<dyn ChannelHarness> {
    let config = QuicConfig {
        congestion: CongestionControl::Cubic,
        ..QuicConfig::default()
    };
    Arc::new(Cubic(Quic::with(config)))
}

struct Cubic(Quic);

impl Subject for Cubic {
    fn name(&self) -> &str {
        "quic cubic"
    }
}

#[async_trait]
impl ConnectionHarness for Cubic {
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError> {
        self.0.connector()
    }

    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError> {
        self.0.listen(at, io).await
    }
}
