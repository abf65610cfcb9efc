//! [`Multiplexer`]: connections over byte streams of any kind, for transports of third parties.

use crate::config::TcpConfig;
use crate::connection::{Established, TcpConnection};
use crate::handshake::{Failure, answer, greet};
use crate::listener::Made;
use crate::mux::{Limits, Role};
use crate::socket::Duplex;
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::Connection;
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Makes connections of byte streams that somebody else opened: pipes, serial links, tunnels, shared memory. It is what
/// [`TcpConnector`](crate::TcpConnector) and [`TcpListener`](crate::TcpListener) do with a socket, and the same on the wire
/// (`docs/tcp.md`).
///
/// A stream must be ordered and reliable, and its `shutdown` must end it for the peer. A transport over it is a
/// `Connector` that opens a stream and calls [`connect`](Self::connect), and a `Listener` that takes one and calls
/// [`accept`](Self::accept). Cheap to clone; clones close together. Options of sockets in [`TcpConfig`] mean nothing here.
#[derive(Clone, Debug)]
pub struct Multiplexer {
    config: TcpConfig,
    io: IoRuntime,
    made: Arc<Made>,
}

impl Multiplexer {
    /// Connections run on `io`, which must outlive them.
    ///
    /// # Errors
    /// Kind `Config` for an invalid `config`; names the field.
    pub fn new(config: TcpConfig, io: &IoRuntime) -> Result<Self, TransportError> {
        config.validate()?;
        Ok(Self {
            config,
            io: io.clone(),
            made: Arc::default(),
        })
    }

    /// The side that opened the stream. `peer` is the worker's URL. Works from any thread; dropping the future drops the stream.
    ///
    /// # Errors
    /// `Handshake` where the peer speaks something else, `Timeout` where it says nothing within
    /// [`TcpConfig::handshake_timeout`]. Nothing of a call was sent.
    pub async fn connect<S>(
        &self,
        stream: S,
        peer: &str,
    ) -> Result<Arc<dyn Connection>, TransportError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let made = self.establish(stream, Role::Connector, peer).await;
        made.map_err(|err| err.with_delivery(Delivery::NotDelivered))
    }

    /// The side that took the stream. `peer` names the other one in messages. Works from any thread; dropping the future drops
    /// the stream. Accept several at the same time, so that a peer which dawdles holds up nobody.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn accept<S>(
        &self,
        stream: S,
        peer: &str,
    ) -> Result<Arc<dyn Connection>, TransportError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.establish(stream, Role::Listener, peer).await
    }

    /// Closes all connections that it made, and waits until the peers can have been told: at most twice
    /// [`TcpConfig::close_timeout`]. Dropping the future still closes them.
    pub async fn close(&self, reason: &str) {
        self.made.close(reason, &self.config, &self.io).await;
    }

    async fn establish<S>(
        &self,
        stream: S,
        role: Role,
        peer: &str,
    ) -> Result<Arc<dyn Connection>, TransportError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let operation = match role {
            Role::Connector => "connect",
            Role::Listener => "accept",
        };
        let (limit, limits) = (self.config.handshake_timeout, self.config.limits());
        let handshake = async move { timeout(limit, greeted(stream, role, limits)).await };
        let done = AbortOnDropHandle::new(self.io.handle().spawn(handshake)).await;
        let error = |kind, detail| TransportError::new(kind, operation, peer, detail);
        let greeted = done.map_err(|err| {
            let detail = format!("the I/O runtime of this side is gone: {err}");
            error(ErrorKind::Connect, detail)
        })?;
        let greeted = greeted
            .map_err(|_| error(ErrorKind::Timeout, format!("no answer within {limit:?}")))?;
        let (socket, theirs) = greeted.map_err(|failure| failure.error(operation, peer))?;
        let established = Established {
            socket,
            role,
            theirs,
            peer: peer.to_owned(),
        };
        let (drivers, io) = (&self.made.drivers, self.io.handle());
        let connection = TcpConnection::start(established, &self.config, drivers, &io);
        self.made.add(&connection);
        Ok(Arc::new(connection))
    }
}

async fn greeted<S>(mut stream: S, role: Role, ours: Limits) -> Result<(Duplex, Limits), Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let theirs = match role {
        Role::Connector => greet(&mut stream, ours).await?,
        Role::Listener => answer(&mut stream, Vec::new(), ours).await?,
    };
    Ok((Duplex::split(stream), theirs))
}
