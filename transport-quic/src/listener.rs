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
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{Connection, Listener};
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::ServerTls;
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
    /// One task per endpoint, aborted with this.
    _admission: JoinSet<()>,
}

/// What one endpoint needs to turn a first packet into a connection.
struct Admission {
    config: QuicConfig,
    tls: ServerTls,
    paths: Paths,
    accepted: mpsc::Sender<QuicConnection>,
}

/// Handshakes at the same time, per endpoint. A handshake costs some 100 KiB and a signature, and lives for the
/// handshake timeout at most; 256 are a large cluster starting up. A peer beyond that is told so and may try again.
const MAX_HANDSHAKES: usize = 256;
/// From this many on a peer must first show that it receives at its address, so that forged ones fill no places.
const VALIDATE_ADDRESS_FROM: usize = 64;
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
        let admission = Arc::new(Admission {
            config,
            tls,
            paths,
            accepted: sender,
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
            _admission: tasks,
        })
    }

    /// The bound address, with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
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
        if handshakes.len() >= MAX_HANDSHAKES {
            tracing::warn!(%peer, "QUIC connection refused: {MAX_HANDSHAKES} handshakes are in progress");
            incoming.refuse();
        } else if handshakes.len() >= VALIDATE_ADDRESS_FROM && !incoming.remote_address_validated()
        {
            // Can't fail: an address that is not validated may be asked to validate itself.
            let _ = incoming.retry();
        } else {
            handshakes.spawn(Arc::clone(self).handshake(incoming, peer));
        }
    }

    async fn handshake(self: Arc<Self>, incoming: Incoming, peer: SocketAddr) {
        let limit = self.config.handshake_timeout;
        let connection = match tokio::time::timeout(limit, self.complete(incoming, peer)).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(err)) => return tracing::warn!(%err, "QUIC handshake failed"),
            Err(_) => return tracing::warn!(%peer, "QUIC handshake not complete within {limit:?}"),
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
