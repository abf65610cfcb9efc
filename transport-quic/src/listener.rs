//! [`QuicListener`]: the server half. From a UDP port to connections.

use crate::config::QuicConfig;
use crate::connection::QuicConnection;
use crate::endpoint;
use crate::error::handshake_error;
use crate::paths::Paths;
use crate::runtime::QuinnRuntime;
use crate::stream_allowance::StreamAllowance;
use crate::tls;
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connection, Listener};
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::ServerTls;
use datafusion_transport_core::{IoRuntime, Origin, Place, Places, Throttle};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig, TransportConfig, VarInt};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Accepts QUIC connections on a UDP port. Dropped without [`close`](Listener::close) it accepts no more, and the
/// connections it made go on.
///
/// Everything runs on the I/O runtime given to [`bind`](Self::bind), which the listener keeps.
pub struct QuicListener {
    local: SocketAddr,
    endpoints: Vec<Endpoint>,
    io: IoRuntime,
    accepted: mpsc::Receiver<QuicConnection>,
    places: Places,
    /// One task per endpoint, aborted with this.
    _admission: JoinSet<()>,
}

/// What turns a first packet into a connection, for all endpoints.
struct Admission {
    config: QuicConfig,
    tls: ServerTls,
    paths: Paths,
    accepted: mpsc::Sender<QuicConnection>,
    places: Places,
    warnings: Warnings,
}

/// By kind.
#[derive(Debug, Default)]
struct Warnings {
    refused: Throttle,
    failed: Throttle,
    late: Throttle,
    given_up: Throttle,
}

/// What becomes of a first packet.
enum Verdict {
    /// A handshake begins.
    Admit(Origin),
    /// Its sender is to show first that it receives at its address, so that forged ones fill no places. Nothing is kept.
    Retry,
    /// Its sender is told that it has enough handshakes in progress.
    Refuse,
}

/// The part of all places from which on addresses are validated: the rest is for those that were.
const VALIDATE_FROM_ONE_IN: usize = 4;
/// Connections that wait for `accept`. More wait in their handshake's place.
const ACCEPT_BACKLOG: usize = 64;
/// First packets that wait for the admission task, which only ever lags by moments, and the bytes they may hold.
const MAX_INCOMING: usize = 1024;
const INCOMING_BUFFER_BYTES: u64 = 64 << 10;
const INCOMING_BUFFER_TOTAL_BYTES: u64 = 16 << 20;
/// How long closing waits for peers to have been told.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const CLOSE_CODE: VarInt = VarInt::from_u32(0);

impl QuicListener {
    /// Binds `addr` (UDP; port 0 takes a free one) and accepts from now on. `io` is the runtime for the drivers, with
    /// I/O and time enabled.
    ///
    /// # Errors
    /// Kind `Config`: an invalid field of `config`, or an address that can't be bound.
    pub fn bind(
        addr: SocketAddr,
        config: QuicConfig,
        tls: ServerTls,
        io: &IoRuntime,
    ) -> Result<Self, TransportError> {
        let paths = Paths::new(&config)?;
        let (local, endpoints) = bind_endpoints(addr, &config, &tls, &paths, io)?;
        let (sender, accepted) = mpsc::channel(ACCEPT_BACKLOG);
        let places = Places::new(config.max_handshakes, config.max_handshakes_per_address);
        let admission = Arc::new(Admission {
            config,
            tls,
            paths,
            accepted: sender,
            places: places.clone(),
            warnings: Warnings::default(),
        });
        let mut tasks = JoinSet::new();
        for endpoint in &endpoints {
            tasks.spawn_on(Arc::clone(&admission).run(endpoint.clone()), &io.handle());
        }
        Ok(Self {
            local,
            endpoints,
            io: io.clone(),
            accepted,
            places,
            _admission: tasks,
        })
    }

    /// The bound address, with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Handshakes in progress now: at most [`QuicConfig::max_handshakes`].
    pub fn handshakes(&self) -> usize {
        self.places.taken()
    }
}

#[async_trait]
impl Listener for QuicListener {
    async fn accept(&mut self) -> Option<Arc<dyn Connection>> {
        let connection = self.accepted.recv().await?;
        Some(Arc::new(connection))
    }

    fn describe(&self) -> String {
        format!("quic {}", self.local)
    }

    async fn close(&mut self) {
        for endpoint in &self.endpoints {
            endpoint.close(CLOSE_CODE, b"the worker is shutting down");
        }
        self.accepted.close();
        while self.accepted.try_recv().is_ok() {}
        let endpoints = std::mem::take(&mut self.endpoints);
        // On the I/O runtime, because a timeout needs one. A worker whose runtime is gone has told nobody anyway.
        let told = self.io.handle().spawn(async move {
            let all = async {
                for endpoint in &endpoints {
                    endpoint.wait_idle().await;
                }
            };
            if tokio::time::timeout(CLOSE_TIMEOUT, all).await.is_err() {
                tracing::debug!("some peers did not confirm that their connection is closed");
            }
        });
        let _ = AbortOnDropHandle::new(told).await;
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        for endpoint in &self.endpoints {
            // The endpoint lives on with its connections; this makes it refuse new ones.
            endpoint.set_server_config(None);
        }
    }
}

impl fmt::Debug for QuicListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicListener")
            .field("local", &self.local)
            .field("endpoints", &self.endpoints.len())
            .finish_non_exhaustive()
    }
}

fn bind_endpoints(
    addr: SocketAddr,
    config: &QuicConfig,
    tls: &ServerTls,
    paths: &Paths,
    io: &IoRuntime,
) -> Result<(SocketAddr, Vec<Endpoint>), TransportError> {
    let runtime = Arc::new(QuinnRuntime::new(io.handle()));
    let share_port = config.endpoints > 1;
    let mut local = addr;
    let mut endpoints = Vec::with_capacity(config.endpoints);
    for _ in 0..config.endpoints {
        let crypto = tls::server_as_last_read(tls)?;
        let server = server_config(config, crypto, paths.to(addr));
        let endpoint = endpoint::bind(local, config, Some(server), share_port, &runtime)
            .and_then(|endpoint| {
                // The first one decides a port that was left open.
                local = endpoint.local_addr()?;
                Ok(endpoint)
            })
            .map_err(|err| {
                let detail = format!("cannot listen there: {err}");
                TransportError::new(ErrorKind::Config, "listen", format!("quic {local}"), detail)
            })?;
        endpoints.push(endpoint);
    }
    Ok((local, endpoints))
}

fn server_config(
    config: &QuicConfig,
    crypto: Arc<QuicServerConfig>,
    transport: Arc<TransportConfig>,
) -> ServerConfig {
    let mut server = ServerConfig::with_crypto(crypto);
    server
        .transport_config(transport)
        .max_incoming(MAX_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER_BYTES)
        .incoming_buffer_size_total(INCOMING_BUFFER_TOTAL_BYTES)
        // With several sockets on the port the kernel chooses by the peer's address: a peer that moves would reach a
        // socket that does not know it.
        .migration(config.endpoints == 1);
    server
}

impl Admission {
    /// Takes the first packets of peers until the endpoint is closed. Owns the handshakes, which end with it.
    async fn run(self: Arc<Self>, endpoint: Endpoint) {
        let mut handshakes = JoinSet::new();
        loop {
            tokio::select! {
                incoming = endpoint.accept() => match incoming {
                    Some(incoming) => self.admit(incoming, &mut handshakes),
                    None => return,
                },
                Some(_) = handshakes.join_next() => {}
            }
        }
    }

    fn admit(self: &Arc<Self>, incoming: Incoming, handshakes: &mut JoinSet<()>) {
        let peer = incoming.remote_address();
        match self.verdict(peer, incoming.remote_address_validated()) {
            Verdict::Admit(origin) => {
                let place = self.places.take(origin);
                handshakes.spawn(Arc::clone(self).handshake(incoming, peer, place));
            }
            Verdict::Retry => {
                // Can't fail: an address that is not validated may be asked to validate itself.
                let _ = incoming.retry();
            }
            Verdict::Refuse => {
                let share = self.config.max_handshakes_per_address;
                self.warnings.refused.warn(format_args!(
                    "QUIC connection of {peer} refused: its address has {share} handshakes in progress"
                ));
                incoming.refuse();
            }
        }
    }

    fn verdict(&self, peer: SocketAddr, validated: bool) -> Verdict {
        let address = Origin::from(peer.ip());
        let has_share_left = self.places.has_share_left(address);
        if validated {
            return match has_share_left {
                true => Verdict::Admit(address),
                false => Verdict::Refuse,
            };
        }
        let threshold = self.config.max_handshakes / VALIDATE_FROM_ONE_IN;
        let is_quiet = self.places.taken() < threshold;
        // Not counted as its address, which may be forged: it must not use up another's share.
        match is_quiet && has_share_left && self.places.has_share_left(Origin::Unproven) {
            true => Verdict::Admit(Origin::Unproven),
            false => Verdict::Retry,
        }
    }

    async fn handshake(self: Arc<Self>, incoming: Incoming, peer: SocketAddr, place: Place) {
        tokio::select! {
            () = self.establish(incoming, peer) => {}
            () = place.lost() => {
                let origin = place.origin();
                self.warnings.given_up.warn(format_args!(
                    "QUIC handshake with {peer} given up for a newer one: too many are in progress, and of {origin} most (max_handshakes, max_handshakes_per_address)"
                ));
            }
        }
    }

    async fn establish(&self, incoming: Incoming, peer: SocketAddr) {
        let limit = self.config.handshake_timeout;
        let connection = match tokio::time::timeout(limit, self.complete(incoming, peer)).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(err)) => {
                let failed = format_args!("QUIC handshake failed: {err}");
                return self.warnings.failed.warn(failed);
            }
            Err(_) => {
                let late = format_args!("QUIC handshake with {peer} not complete within {limit:?}");
                return self.warnings.late.warn(late);
            }
        };
        let allowance = StreamAllowance::new(self.config.initial_streams, self.config.max_streams);
        let idle = self.config.idle_timeout;
        let connection = QuicConnection::new(connection, peer.to_string(), idle, allowance);
        // Fails when the listener is gone, and so does the connection then.
        let _ = self.accepted.send(connection).await;
    }

    async fn complete(
        &self,
        incoming: Incoming,
        peer: SocketAddr,
    ) -> Result<quinn::Connection, TransportError> {
        // Certificates of now.
        let crypto = tls::server(&self.tls).await?;
        let server = server_config(&self.config, crypto, self.paths.to(peer));
        let failed = |err| {
            let limit = self.config.handshake_timeout;
            handshake_error(&err, "accept", &peer.to_string(), limit)
        };
        incoming
            .accept_with(Arc::new(server))
            .map_err(failed)?
            .await
            .map_err(failed)
    }
}
