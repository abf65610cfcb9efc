//! What an implementer writes: [`ConnectionHarness`] for the lower seam, or [`ChannelHarness`] for a complete transport.

pub mod auto;
pub mod grpc;
pub mod memory;
pub mod quic;
mod served;
pub mod tcp;

pub use served::{Served, ServedService};

use crate::case::Subject;
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::tls::DevelopmentIdentity;
use datafusion_transport_core::{
    IoRuntime, TransportError, Transports, WiredWorker, WorkerService,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tempfile::TempDir;
use url::{Host, Url};

/// A transport that implements the lower seam ([`datafusion_transport_core::connection`]). It is a [`ChannelHarness`] too.
#[async_trait]
pub trait ConnectionHarness: Subject {
    /// A connector that reaches this harness's listeners.
    fn connector(&self) -> Result<Arc<dyn Connector>, TransportError>;

    /// A listener and the URL it is reached by, anew or `at` the URL of one that was closed; see [`address`].
    /// Its sockets run on `io`.
    ///
    /// # Errors
    /// Where it can't listen; the kit tries again for some seconds at a URL that was in use.
    async fn listen(
        &self,
        at: Option<&Url>,
        io: &IoRuntime,
    ) -> Result<(Url, Box<dyn Listener>), TransportError>;
}

/// A transport that gives `WorkerChannel`s, whatever they are made of, and serves workers by them.
#[async_trait]
pub trait ChannelHarness: Subject {
    /// What one process uses: the transport is the default kind. Every call gives one with connections of its own.
    fn transports(&self) -> Transports;

    /// Serves a worker, anew or `at` the URL of one that was stopped. Plans run on the runtime of the caller. The server's I/O runs on `io`,
    /// or where it usually does.
    ///
    /// # Errors
    /// Where it can't listen.
    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError>;
}

/// What a harness is to serve.
pub enum Service {
    /// The engine's worker.
    Worker(WiredWorker),
    /// Another one, for harnesses with [`Capability::Service`](crate::Capability::Service).
    Other(Arc<dyn WorkerService>),
}

impl Service {
    /// The engine's worker.
    ///
    /// # Panics
    /// For another service: the harness lacks [`Capability::Service`](crate::Capability::Service) and must say so.
    pub fn into_worker(self) -> WiredWorker {
        match self {
            Self::Worker(worker) => worker,
            Self::Other(_) => panic!("this harness must say that it lacks Capability::Service"),
        }
    }
}

#[async_trait]
impl<H: ConnectionHarness> ChannelHarness for H {
    fn transports(&self) -> Transports {
        let connector = self.connector().expect("a connector");
        let builder = Transports::builder().connector(self.name(), connector);
        builder.build().expect("a registry of one kind")
    }

    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError> {
        let io = io.cloned().map_or_else(IoRuntime::shared, Ok)?;
        let (url, listener) = self.listen(at, &io).await?;
        served::start(service, [listener], url, io)
    }
}

/// Where to bind: a free port on loopback, or the address of a URL.
pub fn address(at: Option<&Url>) -> SocketAddr {
    let port = at.and_then(Url::port_or_known_default).unwrap_or(0);
    let ip = match at.and_then(Url::host) {
        Some(Host::Ipv4(ip)) => ip.into(),
        Some(Host::Ipv6(ip)) => ip.into(),
        Some(Host::Domain(_)) | None => Ipv4Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, port)
}

/// Where a worker may seem to be that is not on loopback: the certificates of [`identity`] are valid for it too.
pub const DISTANT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A certificate that both sides of a harness share, and the directory that holds it.
pub fn identity() -> (DevelopmentIdentity, TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let identity = DevelopmentIdentity::load_or_create(dir.path(), &[DISTANT.to_string()]);
    (identity.expect("an identity"), dir)
}

/// The transports whose contract is tested and reported. A new one is one line here, and nothing anywhere else.
///
/// Expands to `$callback! { connections { name: harness, .. } channels { name: harness, .. } }`.
#[macro_export]
macro_rules! our_transports {
    ($($callback:tt)+) => {
        $($callback)+! {
            connections {
                memory: $crate::harness::memory::Memory::new();
                quic: $crate::harness::quic::Quic::new();
                tcp: $crate::harness::tcp::Tcp::new();
                tls: $crate::harness::tcp::Tcp::with_tls();
                unix: $crate::harness::tcp::Unix::new();
            }
            channels {
                auto: $crate::harness::auto::Auto::new();
                grpc: $crate::harness::grpc::Grpc::new();
            }
        }
    };
}
