//! [`Admission`]: accepts sockets and completes their handshakes, many at a time.

use crate::arrival::{Arrival, Offer, receive};
use crate::config::TcpConfig;
use crate::connection::{Established, TcpConnection};
use crate::handshake::Fresh;
use crate::http2::{Http2Start, Http2Stream};
use crate::listener::Made;
use crate::mux::{Limits, Role};
use crate::socket::{Duplex, prepare_buffers, prepare_tcp};
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::ServerTls;
use datafusion_transport_core::{IoRuntime, Origin, Place, Places, Throttle};
use socket2::SockRef;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Where sockets come from.
#[derive(Debug)]
pub(crate) enum Port {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What a socket needs to become a connection.
#[derive(Debug)]
pub(crate) struct Admission {
    config: TcpConfig,
    tls: Option<ServerTls>,
    accepted: mpsc::Sender<TcpConnection>,
    /// For HTTP/2 connections, where the port is shared.
    http2: Option<mpsc::Sender<Http2Stream>>,
    made: Arc<Made>,
    io: IoRuntime,
    places: Places,
    warnings: Warnings,
}

/// By kind.
#[derive(Debug, Default)]
struct Warnings {
    no_socket: Throttle,
    failed: Throttle,
    late: Throttle,
    given_up: Throttle,
    not_taken: Throttle,
}

/// A process out of file descriptors asks again after this long; the kernel keeps the peers waiting.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

impl Admission {
    pub(crate) fn new(
        config: TcpConfig,
        tls: Option<ServerTls>,
        accepted: mpsc::Sender<TcpConnection>,
        http2: Option<mpsc::Sender<Http2Stream>>,
        made: Arc<Made>,
        io: IoRuntime,
    ) -> Arc<Self> {
        let places = Places::new(config.max_handshakes, config.max_handshakes_per_address);
        Arc::new(Self {
            config,
            tls,
            accepted,
            http2,
            made,
            io,
            places,
            warnings: Warnings::default(),
        })
    }

    /// Those of the handshakes in progress.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Accepts until dropped. Owns the handshakes, which end with it.
    pub(crate) async fn run(self: Arc<Self>, port: Port) {
        let mut handshakes = JoinSet::new();
        loop {
            tokio::select! {
                socket = port.accept() => match socket {
                    Ok((socket, peer)) => {
                        let place = self.places.take(peer.origin);
                        handshakes.spawn(Arc::clone(&self).admit(socket, peer.name, place));
                    }
                    Err(err) => {
                        self.warnings.no_socket.warn(format_args!("cannot accept a connection: {err}"));
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                },
                Some(_) = handshakes.join_next() => {}
            }
        }
    }

    async fn admit(self: Arc<Self>, socket: Fresh, peer: String, place: Place) {
        tokio::select! {
            () = self.handshake(socket, &peer) => {}
            () = place.lost() => {
                let origin = place.origin();
                self.warnings.given_up.warn(format_args!(
                    "TCP handshake with {peer} given up for a newer one: too many are in progress, and of {origin} most (max_handshakes, max_handshakes_per_address)"
                ));
            }
        }
    }

    async fn handshake(&self, socket: Fresh, peer: &str) {
        let limit = self.config.handshake_timeout;
        let completed = tokio::time::timeout(limit, self.complete(socket, peer)).await;
        match completed {
            Ok(Ok(Arrival::Ours(socket, theirs))) => self.establish(socket, theirs, peer).await,
            Ok(Ok(Arrival::Http2(start))) => self.hand_over(start).await,
            Ok(Err(err)) => {
                let failed = format_args!("TCP handshake failed: {err}");
                self.warnings.failed.warn(failed);
            }
            Err(_) => {
                let late = format_args!("TCP handshake with {peer} not complete within {limit:?}");
                self.warnings.late.warn(late);
            }
        }
    }

    async fn establish(&self, socket: Duplex, theirs: Limits, peer: &str) {
        let established = Established {
            socket,
            role: Role::Listener,
            theirs,
            peer: peer.to_owned(),
        };
        let drivers = &self.made.drivers;
        let io = Handle::current();
        let connection = TcpConnection::start(established, &self.config, drivers, &io);
        self.made.add(&connection);
        // Fails when the listener is gone, and so does the connection then.
        let _ = self.accepted.send(connection).await;
    }

    async fn hand_over(&self, start: Http2Start) {
        let (peer, limit) = (start.peer, self.config.handshake_timeout);
        let Some(http2) = &self.http2 else { return };
        let stream = Http2Stream::new(start, self.io.clone());
        let why = match tokio::time::timeout(limit, http2.send(stream)).await {
            Ok(Ok(())) => return,
            Ok(Err(_)) => "its server is gone".to_owned(),
            Err(_) => format!("its server did not take it within {limit:?}"),
        };
        let not_taken = format_args!("HTTP/2 connection of {peer} closed: {why}");
        self.warnings.not_taken.warn(not_taken);
    }

    /// Whether somebody takes them, now.
    fn serves_http2(&self) -> bool {
        self.http2.as_ref().is_some_and(|http2| !http2.is_closed())
    }

    async fn complete(&self, socket: Fresh, peer: &str) -> Result<Arrival, TransportError> {
        let prepared = match &socket {
            Fresh::Tcp(stream) => prepare_tcp(stream, &self.config),
            Fresh::Unix(stream) => prepare_buffers(&SockRef::from(stream), &self.config),
        };
        prepared.map_err(|err| {
            let detail = format!("cannot set the options of the socket: {err}");
            TransportError::new(ErrorKind::Config, "accept", peer, detail)
        })?;
        let offer = Offer {
            tls: self.tls.as_ref(),
            limits: self.config.limits(),
            http2: self.serves_http2(),
        };
        let arrival = receive(socket, &offer).await;
        arrival.map_err(|failure| failure.error("accept", peer))
    }
}

/// Who connected.
struct Peer {
    name: String,
    origin: Origin,
}

impl Port {
    async fn accept(&self) -> io::Result<(Fresh, Peer)> {
        match self {
            Self::Tcp(port) => {
                let (socket, address) = port.accept().await?;
                let peer = Peer {
                    name: address.to_string(),
                    origin: address.ip().into(),
                };
                Ok((Fresh::Tcp(socket), peer))
            }
            Self::Unix(port) => {
                let (socket, _) = port.accept().await?;
                let peer = Peer {
                    name: "a process on this host".to_owned(),
                    origin: Origin::Local,
                };
                Ok((Fresh::Unix(socket), peer))
            }
        }
    }
}
