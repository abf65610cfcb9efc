//! The only file that knows which transports there are and how each is set up.

use std::{fmt, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use datafusion::{
    execution::{SessionStateBuilder, runtime_env::RuntimeEnv},
    prelude::SessionContext,
};
use datafusion_distributed::DefaultSessionBuilder;
use datafusion_transport_core::{
    IoRuntime, PeerStats, Server, ServerHandle, TransportError, TransportExt, Transports,
};
use datafusion_transport_quic::{
    ClientTls, DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener, ServerTls,
};
use tokio::net::TcpListener;

use crate::{
    grpc_server::GrpcServer, program::usage, session, tls::Tls, traffic::Peer, workers::display_url,
};

/// How often another free port is tried when one is free on TCP but taken on UDP.
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

/// This process's transports: what it reaches peers with, and what a worker is served on.
#[derive(Clone)]
pub struct Network {
    transports: Transports,
    tls: Tls,
    io: IoRuntime,
}

impl Network {
    /// Sets up every transport; sessions that don't choose use `default`. `names` are put into a
    /// development certificate that has to be made, beside the loopback ones.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(default: Kind, tls: &Tls, names: &[String]) -> Result<Self> {
        let io = IoRuntime::shared()?;
        let client_tls = match tls {
            Tls::Files {
                identity,
                authority,
            } => {
                let identity = identity.as_ref();
                let identity = identity.map(|(cert, key)| (cert.as_path(), key.as_path()));
                ClientTls::from_pem_files(authority, identity)
            }
            Tls::Development { dir } => development(dir, names).and_then(|made| made.client_tls()),
        };
        let client_tls = client_tls.map_err(bad_option)?;
        let quic = QuicConnector::new(QuicConfig::default(), client_tls, &io)?;
        let transports = Transports::builder()
            .connector(Kind::Quic.name(), Arc::new(quic))
            .grpc()
            .default_kind(default.name())
            .build()?;
        Ok(Self {
            transports,
            tls: tls.clone(),
            io,
        })
    }

    /// Gives a coordinator's session the transports.
    pub fn wire(&self, builder: SessionStateBuilder) -> SessionStateBuilder {
        builder.with_distributed_transports(&self.transports)
    }

    /// Makes `session` use `kind` from its next query on, as `SET transport.kind` does.
    ///
    /// # Errors
    /// When the session was not wired.
    pub fn select(&self, session: &SessionContext, kind: Kind) -> Result<()> {
        session::set(session, "transport.kind", kind.name())
    }

    /// What this process did to its peers so far, in the name of `from`.
    pub fn peers(&self, from: &str) -> Vec<Peer> {
        let mut peers: Vec<_> = self
            .transports
            .stats()
            .into_iter()
            .map(|stats| peer(from, &stats))
            .collect();
        peers.sort_by(|a, b| a.to.cmp(&b.to));
        peers
    }

    /// Closes all connections to peers.
    pub async fn shutdown(&self) {
        self.transports.shutdown().await;
    }

    /// Serves a worker on `kinds`, under one port number: QUIC on UDP, gRPC on TCP. To be called in
    /// the runtime that is to run queries.
    ///
    /// # Errors
    /// When the port cannot be had, or the certificates cannot be used.
    pub async fn serve(
        &self,
        listen: SocketAddr,
        kinds: &[Kind],
        options: WorkerOptions,
    ) -> Result<Serving> {
        let worker = self
            .transports
            .worker(DefaultSessionBuilder)
            .with_runtime_env(options.runtime)
            .with_version(options.version);
        let server_tls = match (&self.tls, options.mutual_tls) {
            (Tls::Files { identity: None, .. }, _) => {
                return Err(usage(
                    "a worker needs a certificate: --tls-cert and --tls-key",
                ));
            }
            (
                Tls::Files {
                    identity: Some((cert, key)),
                    authority,
                },
                mutual,
            ) => ServerTls::from_pem_files(cert, key, mutual.then_some(authority.as_path())),
            (Tls::Development { dir }, _) => development(dir, &[]).and_then(|it| it.server_tls()),
        };
        let server_tls = server_tls.map_err(bad_option)?;
        let (tcp, quic) = self.bind(listen, kinds, &server_tls).await?;
        let address = match (&tcp, &quic) {
            (Some(tcp), _) => tcp.local_addr()?,
            (None, Some(quic)) => quic.local_addr(),
            (None, None) => return Err(usage("no transport to serve: see --transports")),
        };
        let grpc = tcp.map(|tcp| GrpcServer::start(tcp, worker.worker()));
        let quic = quic.map(|listener| {
            Server::builder(worker)
                .listener(Box::new(listener))
                .io_runtime(self.io.clone())
                .start()
        });
        Ok(Serving {
            address,
            grpc,
            quic: quic.transpose()?,
        })
    }

    /// Binds the same port number on TCP and UDP, as far as `kinds` need them.
    async fn bind(
        &self,
        listen: SocketAddr,
        kinds: &[Kind],
        tls: &ServerTls,
    ) -> Result<(Option<TcpListener>, Option<QuicListener>)> {
        let bind_quic =
            |address| QuicListener::bind(address, QuicConfig::default(), tls.clone(), &self.io);
        let mut attempt = 1;
        loop {
            let (tcp, address) = match kinds.contains(&Kind::Grpc) {
                true => {
                    let tcp = bind_tcp(listen).await?;
                    let address = tcp.local_addr()?;
                    (Some(tcp), address)
                }
                false => (None, listen),
            };
            if !kinds.contains(&Kind::Quic) {
                return Ok((tcp, None));
            }
            match bind_quic(address) {
                Ok(quic) => return Ok((tcp, Some(quic))),
                // A free port on TCP need not be free on UDP: try the next one.
                Err(_) if listen.port() == 0 && attempt < PORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(bad_option(error)),
            }
        }
    }
}

/// What a worker is made with.
pub struct WorkerOptions {
    /// Memory pool, disk, object stores.
    pub runtime: Arc<RuntimeEnv>,
    /// What the worker answers when asked for its version.
    pub version: String,
    /// Refuse peers without a certificate (a development identity always does).
    pub mutual_tls: bool,
}

/// A worker that is being served. Dropping it stops it at once.
pub struct Serving {
    address: SocketAddr,
    grpc: Option<GrpcServer>,
    quic: Option<ServerHandle>,
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
        let grpc = async {
            match self.grpc {
                Some(grpc) => grpc.shutdown(deadline).await,
                None => Ok(()),
            }
        };
        let quic = async {
            match self.quic {
                Some(quic) => quic.shutdown(deadline).await,
                None => 0,
            }
        };
        let (grpc, cut) = tokio::join!(grpc, quic);
        if cut > 0 {
            tracing::warn!(
                cut,
                ?deadline,
                "calls still running at the deadline were cut"
            );
        }
        grpc
    }
}

fn development(dir: &Path, names: &[String]) -> Result<DevelopmentIdentity, TransportError> {
    DevelopmentIdentity::load_or_create(dir, names)
}

async fn bind_tcp(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| {
        usage(format!(
            "cannot listen on {listen}: {error}; choose another with --listen"
        ))
    })
}

/// What a transport refuses while it is set up was on the command line.
fn bad_option(error: TransportError) -> anyhow::Error {
    usage(error.to_string())
}

fn peer(from: &str, stats: &PeerStats) -> Peer {
    let PeerStats {
        kind,
        url,
        connections,
        dials,
        streams_opened,
        connection,
        ..
    } = stats;
    Peer {
        from: from.to_owned(),
        to: display_url(url).to_owned(),
        kind: kind.clone(),
        connections: *connections as u64,
        dials: *dials,
        streams: *streams_opened,
        sent_bytes: connection.bytes_sent,
        received_bytes: connection.bytes_received,
        round_trip: connection.round_trip,
        lost_packets: connection.packets_lost,
        mtu_bytes: connection.path_mtu_bytes.map(u64::from),
    }
}
