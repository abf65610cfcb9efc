//! The only file that knows which transports there are and how each is set up.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use clap::ValueEnum;
use datafusion::{
    execution::{SessionStateBuilder, runtime_env::RuntimeEnv},
    prelude::SessionContext,
};
use datafusion_distributed::DefaultSessionBuilder;
use datafusion_transport_core::{
    IoRuntime, PeerStats, Server, ServerHandle, TransportError, TransportExt, Transports,
    TransportsBuilder, connection::Listener,
};
use datafusion_transport_quic::{QuicConfig, QuicConnector, QuicListener};
use tokio::net::TcpListener;
use url::Url;

use crate::{
    grpc_client::GrpcChannels,
    grpc_server::GrpcServer,
    named_worker::NamedWorker,
    on_demand::OnDemand,
    program::usage,
    session,
    tls::{Identity, Tls},
    traffic::Peer,
    workers::display_url,
};

/// How often another free port is tried when one is free on TCP but taken on UDP.
const PORT_ATTEMPTS: usize = 16;

/// The transports that the programs can use, the preferred one first.
///
/// To add one: its variant here, its line in `traits`, how it is reached in `register` and how it is
/// served in `listen`. Command lines, checks, help and
/// comparisons follow.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One QUIC stream per partition
    Quic,
    /// The engine's own gRPC transport, as reference
    Grpc,
}

/// What the programs must know of a transport beside its name.
struct Traits {
    /// The value of `transport.kind`, and of the command lines' options.
    name: &'static str,
    /// What a worker listens on for it.
    socket: Socket,
    /// Whether peers show each other certificates.
    certificates: bool,
}

/// What a transport is served on. All share one port number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Socket {
    Tcp,
    Udp,
}

impl Kind {
    /// All transports.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// All names, for messages.
    pub fn names() -> String {
        let names: Vec<_> = Self::all().iter().map(|kind| kind.name()).collect();
        names.join(", ")
    }

    /// The value of `transport.kind`.
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    /// Whether peers show each other certificates.
    pub fn has_certificates(self) -> bool {
        self.traits().certificates
    }

    fn traits(self) -> Traits {
        let (name, socket, certificates) = match self {
            Self::Quic => ("quic", Socket::Udp, true),
            Self::Grpc => ("grpc", Socket::Tcp, false),
        };
        Traits {
            name,
            socket,
            certificates,
        }
    }

    /// Registers how peers are reached over it. Nothing is set up before its first use: a session
    /// that never uses QUIC needs no certificate.
    fn register(
        self,
        transports: TransportsBuilder,
        identity: &Arc<Identity>,
        io: &IoRuntime,
    ) -> TransportsBuilder {
        match self {
            Self::Quic => {
                let (identity, io) = (Arc::clone(identity), io.clone());
                let quic = OnDemand::new(move || {
                    QuicConnector::new(QuicConfig::default(), identity.client()?, &io)
                });
                transports.connector(self.name(), Arc::new(quic))
            }
            Self::Grpc => {
                transports.channel_resolver(self.name(), Arc::new(GrpcChannels::default()))
            }
        }
    }

    /// Listens on an address for it; none where what serves the TCP socket does so.
    fn listen(
        self,
        address: SocketAddr,
        identity: &Identity,
        mutual_tls: bool,
        io: &IoRuntime,
    ) -> Result<Option<(SocketAddr, Box<dyn Listener>)>> {
        match self {
            Self::Quic => {
                let tls = identity.server(mutual_tls)?;
                let quic = QuicListener::bind(address, QuicConfig::default(), tls, io)
                    .map_err(bad_option)?;
                Ok(Some((quic.local_addr(), Box::new(quic))))
            }
            Self::Grpc => Ok(None),
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
    identity: Arc<Identity>,
    io: IoRuntime,
}

impl Network {
    /// Sets up every transport; sessions that don't choose use `default`. `names` are put into a
    /// development certificate that has to be made, beside the loopback ones.
    ///
    /// # Errors
    /// When the certificates that `default` needs cannot be used; those of other transports are
    /// looked at when one is used first.
    pub fn new(default: Kind, tls: &Tls, names: &[String]) -> Result<Self> {
        let io = IoRuntime::shared()?;
        let identity = Arc::new(Identity::new(tls.clone(), names.to_vec()));
        if default.has_certificates() {
            identity.client().map_err(bad_option)?;
        }
        let transports = Kind::all()
            .iter()
            .fold(Transports::builder(), |transports, kind| {
                kind.register(transports, &identity, &io)
            });
        Ok(Self {
            transports: transports.default_kind(default.name()).build()?,
            identity,
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

    /// Serves a worker under one port number: QUIC on UDP, gRPC on TCP. To be called in the runtime
    /// that is to run queries.
    ///
    /// # Errors
    /// When the port cannot be had, or the certificates cannot be used.
    pub async fn serve(&self, listen: SocketAddr, options: WorkerOptions) -> Result<Serving> {
        let bound = self.bind(listen, &options).await?;
        let url = match options.advertise {
            Some(url) => url,
            None => Url::parse(&format!("http://{}", bound.address))?,
        };
        let worker = self
            .transports
            .worker(DefaultSessionBuilder)
            .with_runtime_env(options.runtime)
            .with_version(options.version);
        let grpc = bound.tcp.map(|tcp| GrpcServer::start(tcp, worker.worker()));
        let server = match bound.listeners.is_empty() {
            true => None,
            false => {
                let server = Server::builder(NamedWorker::new(worker, url.clone()));
                let listeners = bound.listeners.into_iter();
                let server = listeners.fold(server, |server, it| server.listener(it));
                Some(server.io_runtime(self.io.clone()).start()?)
            }
        };
        Ok(Serving { url, grpc, server })
    }

    /// Binds the same port number on TCP and UDP, as far as the kinds need them.
    async fn bind(&self, listen: SocketAddr, options: &WorkerOptions) -> Result<Bound> {
        let mut attempt = 1;
        loop {
            match self.bind_once(listen, options).await {
                // A free port on TCP need not be free on UDP: try the next one.
                Err(_) if listen.port() == 0 && attempt < PORT_ATTEMPTS => attempt += 1,
                bound => return bound,
            }
        }
    }

    async fn bind_once(&self, listen: SocketAddr, options: &WorkerOptions) -> Result<Bound> {
        let mut bound = Bound {
            address: listen,
            tcp: None,
            listeners: Vec::new(),
        };
        let is_tcp = |kind: &Kind| kind.traits().socket == Socket::Tcp;
        if options.kinds.iter().any(is_tcp) {
            let tcp = bind_tcp(listen).await?;
            bound.address = tcp.local_addr()?;
            bound.tcp = Some(tcp);
        }
        for kind in &options.kinds {
            let (mutual_tls, identity) = (options.mutual_tls, &self.identity);
            if let Some((address, listener)) =
                kind.listen(bound.address, identity, mutual_tls, &self.io)?
            {
                bound.address = address;
                bound.listeners.push(listener);
            }
        }
        Ok(bound)
    }
}

/// The sockets that a worker is served on.
struct Bound {
    address: SocketAddr,
    tcp: Option<TcpListener>,
    listeners: Vec<Box<dyn Listener>>,
}

/// What a worker is made with.
pub struct WorkerOptions {
    /// Memory pool, disk, object stores.
    pub runtime: Arc<RuntimeEnv>,
    /// What the worker answers when asked for its version.
    pub version: String,
    /// The transports to serve, none twice.
    pub kinds: Vec<Kind>,
    /// Its URL, where others reach it under another than the address it listens on.
    pub advertise: Option<Url>,
    /// Refuse peers without a certificate (a development identity always does).
    pub mutual_tls: bool,
}

/// A worker that is being served. Dropping it stops it at once.
pub struct Serving {
    url: Url,
    grpc: Option<GrpcServer>,
    server: Option<ServerHandle>,
}

impl Serving {
    /// The worker's URL, with the port that was found for port 0.
    pub fn url(&self) -> &Url {
        &self.url
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
        let server = async {
            match self.server {
                Some(server) => server.shutdown(deadline).await,
                None => 0,
            }
        };
        let (grpc, cut) = tokio::join!(grpc, server);
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

async fn bind_tcp(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| {
        usage(format!(
            "cannot listen on {listen}: {error}; choose another with --listen"
        ))
    })
}

/// What a transport refuses while it is set up was on the command line.
pub(crate) fn bad_option(error: TransportError) -> anyhow::Error {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name() {
        for kind in Kind::all() {
            let option = kind.to_possible_value();
            assert!(option.is_some_and(|option| option.get_name() == kind.name()));
        }
    }
}
