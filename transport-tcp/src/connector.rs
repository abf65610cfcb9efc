//! [`TcpConnector`]: the client half. From a URL to a connection.

use crate::config::TcpConfig;
use crate::connection::{Established, TcpConnection};
use crate::handshake::{self, Fresh};
use crate::mux::{Limits, Role};
use crate::socket::{Duplex, prepare_buffers, prepare_tcp};
use crate::target::Place;
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connection, Connector};
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use datafusion_transport_core::tls::ClientTls;
use datafusion_transport_core::{IoRuntime, Target};
use rustls::pki_types::ServerName;
use socket2::SockRef;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use url::Url;

/// Makes TCP connections to workers, with TLS or without. Cheap to clone. Each connection is one socket.
///
/// `http://host:port`, `https://host:port` and `tcp://host:port` all mean TCP port `port` of `host`, whose certificate must
/// be valid for `host`, or for the name given to [`ClientTls::with_server_name`], if this connector has TLS; one without
/// refuses `https`. `unix:///path` is a Unix socket, which carries no TLS: who may open the file may connect.
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
        let place = Place::parse(url)?;
        if url.scheme() == "https" && self.0.tls.is_none() {
            let detail = "the URL asks for TLS and this connector has none configured";
            return Err(place.error(ErrorKind::Config, detail));
        }
        let name = place.url().to_owned();
        let dialer = Arc::clone(&self.0);
        let dial = async move { dialer.dial(place).await };
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

    fn authenticates(&self) -> bool {
        self.0.tls.as_ref().is_some_and(ClientTls::verifies)
    }
}

const CONNECT: &str = "connect";

impl Dialer {
    async fn dial(self: Arc<Self>, place: Place) -> Result<TcpConnection, TransportError> {
        let limit = self.config.handshake_timeout;
        let dialed = match place.clone() {
            Place::Unix(path, url) => timeout(limit, self.attempt_unix(&path, &url)).await,
            Place::Tcp(target) => {
                let target = Arc::new(target);
                let attempt = |address| {
                    let (dialer, target) = (Arc::clone(&self), Arc::clone(&target));
                    async move { dialer.attempt(&target, address).await }
                };
                timeout(limit, target.reach(attempt)).await
            }
        };
        let established = dialed.unwrap_or_else(|_| {
            let detail =
                format!("no answer within {limit:?}: is the worker serving this protocol there?");
            Err(place.error(ErrorKind::Timeout, detail))
        })?;
        let io = self.io.handle();
        Ok(TcpConnection::start(
            established,
            &self.config,
            &self.drivers,
            &io,
        ))
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
        let tls = match &self.tls {
            Some(tls) => Some((tls, server_name(tls, target)?)),
            None => None,
        };
        let done = handshake::connect(Fresh::Tcp(stream), tls, self.config.limits()).await;
        established(target.url(), done)
    }

    async fn attempt_unix(&self, path: &Path, url: &str) -> Result<Established, TransportError> {
        let refused = |err| {
            let detail = format!("{}: {err}; is the worker serving there?", path.display());
            TransportError::new(ErrorKind::Connect, CONNECT, url, detail)
        };
        let stream = UnixStream::connect(path).await.map_err(refused)?;
        prepare_buffers(&SockRef::from(&stream), &self.config).map_err(refused)?;
        let done = handshake::connect(Fresh::Unix(stream), None, self.config.limits()).await;
        established(url, done)
    }
}

fn established(
    url: &str,
    done: Result<(Duplex, Limits), handshake::Failure>,
) -> Result<Established, TransportError> {
    let (socket, theirs) = done.map_err(|failure| {
        let err = failure.error(CONNECT, url);
        err.with_delivery(Delivery::NotDelivered)
    })?;
    Ok(Established {
        socket,
        role: Role::Connector,
        theirs,
        peer: url.to_owned(),
    })
}

fn server_name(tls: &ClientTls, target: &Target) -> Result<ServerName<'static>, TransportError> {
    let name = tls.server_name(target.host());
    ServerName::try_from(name.to_owned()).map_err(|err| {
        let detail = format!("no certificate can be for `{name}`: {err}");
        target.error(ErrorKind::Config, detail)
    })
}
