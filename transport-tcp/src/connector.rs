//! [`TcpConnector`]: the client half. From a URL to a connection.

use crate::config::TcpConfig;
use crate::connection::{Established, TcpConnection};
use crate::handshake::{self, Fresh};
use crate::mux::Role;
use crate::socket::{prepare_buffers, prepare_tcp};
use crate::target::{Place, Target};
use crate::tls::ClientTls;
use async_trait::async_trait;
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{Connection, Connector};
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use rustls::pki_types::ServerName;
use socket2::SockRef;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use url::Url;

/// Makes TCP connections to workers, with TLS or without. Cheap to clone. Each connection is one socket.
///
/// `http://host:port`, `https://host:port` and `tcp://host:port` all mean TCP port `port` of `host`, whose certificate must
/// be valid for `host` if this connector has TLS; one without refuses `https`. `unix:///path` is a Unix socket, which
/// carries no TLS: who may open the file may connect.
///
/// Everything runs on the I/O runtime given to [`new`](Self::new), which the connector keeps and which must outlive
/// its connections. `connect` and the connections it makes work from any thread.
#[derive(Clone, Debug)]
pub struct TcpConnector(Arc<Dialer>);

#[derive(Debug)]
struct Dialer {
    config: TcpConfig,
    tls: Option<ClientTls>,
    io: IoRuntime,
    drivers: TaskTracker,
}

impl TcpConnector {
    /// Prepares to connect. Opens no socket yet. `tls` is for all TCP connections or, `None`, for none.
    ///
    /// # Errors
    /// Kind `Config` for an invalid `config`; names the field.
    pub fn new(
        config: TcpConfig,
        tls: Option<ClientTls>,
        io: &IoRuntime,
    ) -> Result<Self, TransportError> {
        config.validate()?;
        Ok(Self(Arc::new(Dialer {
            config,
            tls,
            io: io.clone(),
            drivers: TaskTracker::new(),
        })))
    }
}

#[async_trait]
impl Connector for TcpConnector {
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
        let target = Target::parse(url)?;
        if url.scheme() == "https" && self.0.tls.is_none() {
            let detail = "the URL asks for TLS and this connector has none configured";
            return Err(target.error(ErrorKind::Config, detail));
        }
        let name = target.url.clone();
        let dialer = Arc::clone(&self.0);
        let dial = async move { dialer.dial(target).await };
        match AbortOnDropHandle::new(self.0.io.handle().spawn(dial)).await {
            Ok(result) => result.map(|connection| Arc::new(connection) as _),
            Err(err) => {
                let detail = format!("the I/O runtime of this side is gone: {err}");
                Err(TransportError::new(
                    ErrorKind::Connect,
                    CONNECT,
                    name,
                    detail,
                ))
            }
        }
    }
}

const CONNECT: &str = "connect";
/// How long an address may be silent before the next one is tried as well (RFC 8305, 5).
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// All of them are tried within one handshake timeout.
const MAX_ADDRESSES: usize = 16;

impl Dialer {
    async fn dial(self: Arc<Self>, target: Target) -> Result<TcpConnection, TransportError> {
        let limit = self.config.handshake_timeout;
        let target = Arc::new(target);
        let dialed = match &target.place {
            Place::Unix(path) => {
                tokio::time::timeout(limit, self.attempt_unix(&target, path)).await
            }
            Place::Tcp(host, port) => {
                tokio::time::timeout(limit, self.dial_addresses(&target, host, *port)).await
            }
        };
        let established = dialed.unwrap_or_else(|_| {
            let detail =
                format!("no answer within {limit:?}: is the worker serving this protocol there?");
            Err(target.error(ErrorKind::Timeout, detail))
        })?;
        let io = self.io.handle();
        Ok(TcpConnection::start(
            established,
            &self.config,
            &self.drivers,
            &io,
        ))
    }

    /// One address after the other, each as soon as the one before failed or has been silent for a while. The first
    /// that completes its handshake wins, the others are dropped.
    async fn dial_addresses(
        self: &Arc<Self>,
        target: &Arc<Target>,
        host: &str,
        port: u16,
    ) -> Result<Established, TransportError> {
        let found = target.resolve(host, port).await?;
        let mut addresses = found.into_iter().take(MAX_ADDRESSES);
        let mut attempts = JoinSet::new();
        let mut failure: Option<TransportError> = None;
        loop {
            if let Some(address) = addresses.next() {
                let (dialer, target) = (Arc::clone(self), Arc::clone(target));
                attempts.spawn(async move { dialer.attempt(&target, address).await });
            }
            let ended = if addresses.len() == 0 {
                attempts.join_next().await
            } else {
                let next = tokio::time::timeout(NEXT_ADDRESS_DELAY, attempts.join_next()).await;
                let Ok(ended) = next else { continue };
                ended
            };
            match ended {
                Some(Ok(Ok(established))) => return Ok(established),
                Some(Ok(Err(err))) => failure = Some(more_telling(failure, err)),
                // An attempt never panics and is aborted only with this future.
                Some(Err(err)) => return Err(target.error(ErrorKind::Connect, err.to_string())),
                None if addresses.len() == 0 => break,
                None => {}
            }
        }
        let unknown = || target.error(ErrorKind::Connect, "the host name has no address");
        Err(failure.unwrap_or_else(unknown))
    }

    async fn attempt(
        &self,
        target: &Target,
        address: SocketAddr,
    ) -> Result<Established, TransportError> {
        let refused = |err| {
            let detail =
                format!("TCP {address}: {err}; is the worker serving this protocol there?");
            target.error(ErrorKind::Connect, detail)
        };
        let stream = TcpStream::connect(address).await.map_err(refused)?;
        prepare_tcp(&stream, &self.config).map_err(|err| {
            let detail = format!("cannot set the options of the socket: {err}");
            target.error(ErrorKind::Config, detail)
        })?;
        let tls = match (&self.tls, &target.place) {
            (Some(tls), Place::Tcp(host, _)) => Some((tls, server_name(target, host)?)),
            _ => None,
        };
        let done = handshake::connect(Fresh::Tcp(stream), tls, self.config.limits()).await;
        established(target, done)
    }

    async fn attempt_unix(
        &self,
        target: &Target,
        path: &Path,
    ) -> Result<Established, TransportError> {
        let refused = |err| {
            let detail = format!("{}: {err}; is the worker serving there?", path.display());
            target.error(ErrorKind::Connect, detail)
        };
        let stream = UnixStream::connect(path).await.map_err(refused)?;
        prepare_buffers(&SockRef::from(&stream), &self.config).map_err(refused)?;
        let done = handshake::connect(Fresh::Unix(stream), None, self.config.limits()).await;
        established(target, done)
    }
}

fn established(
    target: &Target,
    done: Result<(crate::socket::Duplex, crate::mux::Limits), handshake::Failure>,
) -> Result<Established, TransportError> {
    let (socket, theirs) = done.map_err(|failure| {
        let err = failure.error(CONNECT, &target.url);
        err.with_delivery(Delivery::NotDelivered)
    })?;
    Ok(Established {
        socket,
        role: Role::Connector,
        theirs,
        peer: target.url.clone(),
    })
}

fn server_name(target: &Target, host: &str) -> Result<ServerName<'static>, TransportError> {
    ServerName::try_from(host.to_owned()).map_err(|err| {
        let detail = format!("no certificate can be for `{host}`: {err}");
        target.error(ErrorKind::Config, detail)
    })
}

/// A peer that answered says more than an address where nobody is.
fn more_telling(before: Option<TransportError>, err: TransportError) -> TransportError {
    match before {
        Some(before) if err.kind() == ErrorKind::Connect => before,
        _ => err,
    }
}
