//! This process's transports, and a worker served on them.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use datafusion::{
    execution::{SessionStateBuilder, runtime_env::RuntimeEnv},
    prelude::SessionContext,
};
use datafusion_distributed::DefaultSessionBuilder;
use datafusion_transport_core::{
    IoRuntime, PeerStats, Server, ServerHandle, TransportExt, Transports,
};
use url::Url;

use crate::{
    grpc_server::GrpcServer,
    kind::Kind,
    listening::{Address, Binder},
    named_worker::NamedWorker,
    program::bad_option,
    session,
    tls::{Clients, Identity, Tls},
    traffic::Peer,
    workers::display_url,
};

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

    /// Serves a worker. To be called in the runtime that is to run queries.
    ///
    /// # Errors
    /// When the address cannot be had, or the certificates cannot be used.
    pub async fn serve(&self, address: &Address, options: WorkerOptions) -> Result<Serving> {
        let binder = Binder {
            kinds: &options.kinds,
            identity: &self.identity,
            clients: &options.clients,
            io: &self.io,
        };
        let bound = binder.bind(address).await?;
        let url = options.advertise.unwrap_or(bound.url);
        let worker = self
            .transports
            .worker(DefaultSessionBuilder)
            .with_runtime_env(options.runtime)
            .with_version(options.version);
        let grpc = bound
            .grpc
            .map(|connections| GrpcServer::start(connections, worker.worker()));
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
    /// Whom it lets in, where peers show certificates.
    pub clients: Clients,
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
