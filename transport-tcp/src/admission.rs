//! [`Admission`]: accepts sockets and completes their handshakes, many at a time.

use crate::arrival::{Arrival, Offer, receive};
use crate::config::TcpConfig;
use crate::connection::{Established, TcpConnection};
use crate::handshake::Fresh;
use crate::http2::{Http2Start, Http2Stream};
use crate::listener::Made;
use crate::mux::{Limits, Role};
use crate::socket::{Duplex, prepare_buffers, prepare_tcp};
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::ServerTls;
use socket2::SockRef;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

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
}

/// Handshakes at the same time; 256 are a large cluster starting up. One more ends the oldest, which dawdles: peers that
/// say nothing keep nobody out.
const MAX_HANDSHAKES: usize = 256;
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
        Arc::new(Self {
            config,
            tls,
            accepted,
            http2,
            made,
            io,
        })
    }

    /// Accepts until dropped. Owns the handshakes, which end with it.
    pub(crate) async fn run(self: Arc<Self>, port: Port) {
        let mut handshakes = JoinSet::new();
        let mut oldest_first = VecDeque::<AbortHandle>::new();
        loop {
            tokio::select! {
                socket = port.accept() => match socket {
                    Ok((socket, peer)) => {
                        while oldest_first.len() >= MAX_HANDSHAKES {
                            self.make_room(&mut oldest_first);
                        }
                        let handshake = Arc::clone(&self).handshake(socket, peer);
                        oldest_first.push_back(handshakes.spawn(handshake));
                    }
                    Err(err) => {
                        tracing::warn!(%err, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                },
                Some(_) = handshakes.join_next() => {}
            }
            while oldest_first.front().is_some_and(AbortHandle::is_finished) {
                oldest_first.pop_front();
            }
        }
    }

    fn make_room(&self, oldest_first: &mut VecDeque<AbortHandle>) {
        let before = oldest_first.len();
        oldest_first.retain(|handshake| !handshake.is_finished());
        if oldest_first.len() == before
            && let Some(oldest) = oldest_first.pop_front()
        {
            tracing::warn!("{MAX_HANDSHAKES} handshakes are in progress: the oldest is given up");
            oldest.abort();
        }
    }

    async fn handshake(self: Arc<Self>, socket: Fresh, peer: String) {
        let limit = self.config.handshake_timeout;
        let completed = tokio::time::timeout(limit, self.complete(socket, &peer)).await;
        match completed {
            Ok(Ok(Arrival::Ours(socket, theirs))) => self.establish(socket, theirs, peer).await,
            Ok(Ok(Arrival::Http2(start))) => self.hand_over(start).await,
            Ok(Err(err)) => tracing::warn!(%err, "TCP handshake failed"),
            Err(_) => tracing::warn!(peer, "TCP handshake not complete within {limit:?}"),
        }
    }

    async fn establish(&self, socket: Duplex, theirs: Limits, peer: String) {
        let established = Established {
            socket,
            role: Role::Listener,
            theirs,
            peer,
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
        match tokio::time::timeout(limit, http2.send(stream)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::warn!(%peer, "HTTP/2 connection closed: its server is gone"),
            Err(_) => {
                tracing::warn!(%peer, "HTTP/2 connection closed: its server did not take it within {limit:?}")
            }
        }
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

impl Port {
    async fn accept(&self) -> io::Result<(Fresh, String)> {
        match self {
            Self::Tcp(port) => {
                let (socket, peer) = port.accept().await?;
                Ok((Fresh::Tcp(socket), peer.to_string()))
            }
            Self::Unix(port) => {
                let (socket, _) = port.accept().await?;
                Ok((Fresh::Unix(socket), "a process on this host".to_owned()))
            }
        }
    }
}
