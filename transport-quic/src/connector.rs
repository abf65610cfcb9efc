//! [`QuicConnector`]: the client half. From a URL to a connection.

use crate::config::QuicConfig;
use crate::connection::QuicConnection;
use crate::endpoint;
use crate::error::{alpn_name, handshake_error, is_alpn_mismatch};
use crate::paths::Paths;
use crate::runtime::QuinnRuntime;
use crate::stream_allowance::StreamAllowance;
use crate::tls::{self, ALPN};
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connection, Connector};
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::ClientTls;
use datafusion_transport_core::{IoRuntime, Target};
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig};
use quinn::{ConnectError, Endpoint, NoneTokenStore, VarInt};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::UdpSocket;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// Makes QUIC connections to workers. Cheap to clone; clones share their sockets.
///
/// `http://host:port`, `https://host:port` and `quic://host:port` all mean UDP port `port` of `host`, whose certificate
/// must be valid for `host`, or for the name given to [`ClientTls::with_server_name`].
///
/// Everything runs on the I/O runtime given to [`new`](Self::new), so `connect` and the connections it makes work from
/// any thread: of another runtime, or of none. The connector keeps that runtime, and must outlive its connections.
#[derive(Clone)]
pub struct QuicConnector(Arc<Dialer>);

struct Dialer {
    config: QuicConfig,
    tls: ClientTls,
    paths: Paths,
    io: IoRuntime,
    runtime: Arc<QuinnRuntime>,
    sockets: Mutex<Sockets>,
}

/// Bound when first needed: a host may have only one of IPv4 and IPv6.
#[derive(Default)]
struct Sockets {
    v4: Vec<Endpoint>,
    v6: Vec<Endpoint>,
    /// Connections made so far, to take the sockets in turn.
    dials: usize,
}

impl QuicConnector {
    /// Prepares to connect. Opens no socket yet. The drivers run on `io`.
    ///
    /// # Errors
    /// Kind `Config` for an invalid `config`; names the field.
    pub fn new(config: QuicConfig, tls: ClientTls, io: &IoRuntime) -> Result<Self, TransportError> {
        Ok(Self(Arc::new(Dialer {
            paths: Paths::new(&config)?,
            config,
            tls,
            runtime: Arc::new(QuinnRuntime::new(io.handle())),
            io: io.clone(),
            sockets: Mutex::default(),
        })))
    }
}

#[async_trait]
impl Connector for QuicConnector {
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
        let target = Target::parse(url, SCHEMES)?;
        let name = target.url().to_owned();
        let dialer = Arc::clone(&self.0);
        let task = self
            .0
            .io
            .handle()
            .spawn(async move { dialer.dial(target).await });
        match AbortOnDropHandle::new(task).await {
            Ok(result) => result.map(|connection| Arc::new(connection) as _),
            Err(err) => Err(TransportError::new(
                ErrorKind::Connect,
                CONNECT,
                name,
                format!("the I/O runtime of this side is gone: {err}"),
            )),
        }
    }

    fn authenticates(&self) -> bool {
        self.0.tls.verifies()
    }
}

impl fmt::Debug for QuicConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicConnector")
            .field("config", &self.0.config)
            .field("tls", &self.0.tls)
            .finish_non_exhaustive()
    }
}

const CONNECT: &str = "connect";
const SCHEMES: &[&str] = &["http", "https", "quic"];

impl Dialer {
    async fn dial(self: Arc<Self>, target: Target) -> Result<QuicConnection, TransportError> {
        let limit = self.config.handshake_timeout;
        let target = Arc::new(target);
        let attempt = |address| {
            let (dialer, target) = (Arc::clone(&self), Arc::clone(&target));
            async move { dialer.attempt(&target, address).await }
        };
        let dialed = tokio::time::timeout(limit, target.reach(attempt)).await;
        let connection = dialed.unwrap_or_else(|_| {
            let detail = format!(
                "no QUIC answer on UDP {} within {limit:?}: is the worker serving QUIC there, and is UDP open?",
                target.authority()
            );
            Err(target.error(ErrorKind::Timeout, detail))
        })?;
        let allowance = StreamAllowance::new(self.config.initial_streams, self.config.max_streams);
        let idle = self.config.idle_timeout;
        Ok(QuicConnection::new(
            connection,
            target.url().to_owned(),
            idle,
            allowance,
        ))
    }

    async fn attempt(
        &self,
        target: &Target,
        address: SocketAddr,
    ) -> Result<quinn::Connection, TransportError> {
        let connecting = self.start(tls::client(&self.tls).await?, target, address)?;
        let result = tokio::select! {
            result = connecting => result,
            err = refused(address) => {
                let detail = format!("UDP {address}: {err}; is the worker serving QUIC there?");
                return Err(target.error(ErrorKind::Connect, detail));
            }
        };
        match result {
            Ok(connection) => Ok(connection),
            Err(err) if is_alpn_mismatch(&err) => {
                let theirs = self.spoken_version(target, address).await;
                Err(target.error(ErrorKind::Handshake, version_mismatch(theirs)))
            }
            Err(err) => {
                let waited = self.config.handshake_timeout;
                Err(handshake_error(&err, CONNECT, target.url(), waited))
            }
        }
    }

    /// Asks a worker that refused this protocol version which one it speaks, for the error message.
    async fn spoken_version(&self, target: &Target, address: SocketAddr) -> Option<String> {
        let crypto = tls::client_of_any_version(&self.tls).await.ok()?;
        let connection = self.start(crypto, target, address).ok()?.await.ok()?;
        let handshake = connection
            .handshake_data()?
            .downcast::<HandshakeData>()
            .ok()?;
        connection.close(VarInt::from_u32(0), b"asked for the protocol version");
        handshake.protocol.as_deref().map(alpn_name)
    }

    fn start(
        &self,
        crypto: Arc<QuicClientConfig>,
        target: &Target,
        address: SocketAddr,
    ) -> Result<quinn::Connecting, TransportError> {
        let mut client = quinn::ClientConfig::new(crypto);
        client.transport_config(self.paths.to(address));
        client.token_store(Arc::new(NoneTokenStore));
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoint = self.endpoint(&mut sockets, address).map_err(|err| {
            let detail = format!("cannot open a UDP socket: {err}");
            target.error(ErrorKind::Connect, detail)
        })?;
        let name = self.tls.server_name(target.host());
        let started = endpoint.connect_with(client, address, name);
        if let Err(ConnectError::EndpointStopping) = started {
            // Its socket failed. The next call binds new ones; connections on the others go on.
            sockets.of(address).clear();
        }
        started.map_err(|err| target.error(ErrorKind::Connect, err.to_string()))
    }

    fn endpoint(&self, sockets: &mut Sockets, address: SocketAddr) -> io::Result<Endpoint> {
        sockets.dials = sockets.dials.wrapping_add(1);
        let turn = sockets.dials % self.config.endpoints.max(1);
        let bound = sockets.of(address);
        if let Some(endpoint) = bound.get(turn) {
            return Ok(endpoint.clone());
        }
        let local: SocketAddr = if address.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let endpoint = endpoint::bind(local, &self.config, None, false, &self.runtime)?;
        bound.push(endpoint.clone());
        Ok(endpoint)
    }
}

impl Sockets {
    fn of(&mut self, address: SocketAddr) -> &mut Vec<Endpoint> {
        if address.is_ipv4() {
            &mut self.v4
        } else {
            &mut self.v6
        }
    }
}

/// Ends when the network says that nobody is there: a port without a socket, a host without a route.
///
/// Quinn's own socket serves many peers and hears no such message. A socket connected to one peer does, after it sent
/// something: an empty datagram, which QUIC ignores. Where the message is filtered out this waits for ever.
async fn refused(address: SocketAddr) -> io::Error {
    match listen_for_refusal(address).await {
        Err(err) => err,
        Ok(never) => match never {},
    }
}

async fn listen_for_refusal(address: SocketAddr) -> io::Result<std::convert::Infallible> {
    let local: SocketAddr = if address.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let Ok(socket) = UdpSocket::bind(local).await else {
        // Out of sockets, for example; says nothing about the peer.
        return std::future::pending().await;
    };
    socket.connect(address).await?;
    socket.send(&[]).await?;
    loop {
        socket.recv(&mut [0]).await?;
    }
}

fn version_mismatch(theirs: Option<String>) -> String {
    let ours = alpn_name(ALPN);
    match theirs {
        Some(theirs) => format!(
            "this client speaks {ours}, the worker speaks {theirs}; upgrade the older of the two"
        ),
        None => format!("this client speaks {ours}, which the worker does not speak"),
    }
}
