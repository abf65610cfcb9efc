//! The only file that knows which transports there are and how each is set up.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use datafusion::{
    execution::{SessionStateBuilder, runtime_env::RuntimeEnv},
    prelude::SessionContext,
};
use datafusion_distributed::Worker;
use tokio::net::TcpListener;

use crate::{grpc_server::GrpcServer, program::usage, tls::Tls, traffic::Peer};

/// How often another free port is tried when a port is free on TCP but taken on UDP.
const PORT_ATTEMPTS: usize = 16;

/// The transports that the programs can use.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One QUIC stream per partition
    Quic,
    /// The engine's own gRPC transport, as reference
    Grpc,
}

impl Kind {
    /// All transports, the reference first.
    pub const ALL: [Self; 2] = [Self::Grpc, Self::Quic];

    /// The value of `transport.kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Grpc => "grpc",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// This process's transports: what it reaches peers with.
#[derive(Clone)]
pub struct Network {}

impl Network {
    /// Sets up every transport; sessions that don't choose use `default`.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(_default: Kind, _tls: &Tls) -> Result<Self> {
        Ok(Self {})
    }

    /// Gives a coordinator's session the transports.
    pub fn wire(&self, builder: SessionStateBuilder) -> SessionStateBuilder {
        builder
    }

    /// Makes `session` use `kind` from its next query on.
    ///
    /// # Errors
    /// When the session was not wired.
    pub fn select(&self, _session: &SessionContext, kind: Kind) -> Result<()> {
        match kind {
            Kind::Grpc => Ok(()),
            Kind::Quic => Err(usage("quic: not yet")),
        }
    }

    /// What was done so far, in the name of `from`.
    pub fn peers(&self, _from: &str) -> Vec<Peer> {
        Vec::new()
    }

    /// Closes all connections.
    pub async fn shutdown(&self) {}

    /// Serves a worker on `kinds` under one port number.
    ///
    /// # Errors
    /// When the port cannot be had, or the certificates cannot be used.
    pub async fn serve(
        &self,
        listen: SocketAddr,
        kinds: &[Kind],
        worker: WorkerOptions,
    ) -> Result<Serving> {
        let worker = Worker::default()
            .with_runtime_env(worker.runtime)
            .with_version(worker.version);
        let tcp = bind_tcp(listen).await?;
        let address = tcp.local_addr()?;
        let grpc = kinds
            .contains(&Kind::Grpc)
            .then(|| GrpcServer::start(tcp, worker));
        Ok(Serving { address, grpc })
    }
}

/// What a worker is made with.
pub struct WorkerOptions {
    /// Memory pool, disk, object stores.
    pub runtime: Arc<RuntimeEnv>,
    /// What the worker answers when asked for its version.
    pub version: String,
    /// Refuse peers without a certificate.
    pub mutual_tls: bool,
    /// Names to put into a development certificate beside the loopback ones.
    pub names: Vec<String>,
}

/// A worker that is being served. Dropping it stops it at once.
pub struct Serving {
    address: SocketAddr,
    grpc: Option<GrpcServer>,
}

impl Serving {
    /// The address, with the port that was found for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more calls, and lets running ones end until `deadline` has passed.
    ///
    /// # Errors
    /// When a server had failed.
    pub async fn shutdown(self, deadline: Duration) -> Result<()> {
        match self.grpc {
            Some(grpc) => grpc.shutdown(deadline).await,
            None => Ok(()),
        }
    }
}

async fn bind_tcp(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| {
        usage(format!(
            "cannot listen on {listen}: {error}; choose another with --listen"
        ))
    })
}
