//! [`TcpConnection`]: many streams to one peer over one socket.

use crate::config::TcpConfig;
use crate::driver::drive;
use crate::link::Link;
use crate::mux::{Limits, Role};
use crate::recv_stream::TcpRecvStream;
use crate::send_stream::TcpSendStream;
use crate::socket::Duplex;
use async_trait::async_trait;
use datafusion_transport_core::connection::{BiStream, Connection, ConnectionStats, StreamClass};
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::task::TaskTracker;

/// A TCP connection. Dropping it closes it, whatever streams are left; its driver then ends within the close timeout,
/// which it uses to send what streams had finished and to tell the peer.
#[derive(Debug)]
pub(crate) struct TcpConnection {
    link: Arc<Link>,
    /// Whose turn it is to wait for the peer's next stream.
    accepting: AsyncMutex<()>,
}

/// What a handshake leaves behind.
pub(crate) struct Established {
    pub(crate) socket: Duplex,
    pub(crate) role: Role,
    /// What the peer announced.
    pub(crate) theirs: Limits,
    pub(crate) peer: String,
}

impl TcpConnection {
    /// Starts the driver on `io`, counted by `drivers`.
    pub(crate) fn start(
        established: Established,
        config: &TcpConfig,
        drivers: &TaskTracker,
        io: &Handle,
    ) -> Self {
        let Established {
            socket,
            role,
            theirs,
            peer,
        } = established;
        let link = Arc::new(Link::new(role, config.limits(), theirs, peer));
        let driver = drive(Arc::clone(&link), socket, config.clone());
        // Not detached: it ends with this connection, and sooner when the connection is lost.
        drop(drivers.spawn_on(driver, io));
        Self {
            link,
            accepting: AsyncMutex::default(),
        }
    }

    /// To close it from outside.
    pub(crate) fn link(&self) -> Weak<Link> {
        Arc::downgrade(&self.link)
    }

    fn streams(&self, stream: u64) -> BiStream {
        BiStream {
            send: Box::new(TcpSendStream::new(Arc::clone(&self.link), stream)),
            recv: Box::new(TcpRecvStream::new(Arc::clone(&self.link), stream)),
        }
    }
}

/// Closes on behalf of this side.
pub(crate) fn close(link: &Link, reason: &str) {
    let detail = format!("closed by this side: {reason}");
    link.fail(ErrorKind::ConnectionLost, detail, Some(reason));
}

#[async_trait]
impl Connection for TcpConnection {
    async fn open(&self, class: StreamClass) -> Result<BiStream, TransportError> {
        let opened = match self.link.may_open().await {
            // The reason of a close is known a moment before the state machine knows.
            true if !self.link.is_closed() => self.link.with(|state, _| state.open(class)),
            _ => None,
        };
        let Some(stream) = opened else {
            let err = self.link.error("open stream");
            return Err(err.with_delivery(Delivery::NotDelivered));
        };
        Ok(self.streams(stream))
    }

    async fn accept(&self) -> Result<BiStream, TransportError> {
        let _turn = self.accepting.lock().await;
        let accepted =
            poll_fn(|cx| self.link.with(|state, wakes| state.poll_accept(cx, wakes))).await;
        match accepted {
            Some(stream) => Ok(self.streams(stream)),
            None => Err(self.link.error("accept stream")),
        }
    }

    fn close(&self, reason: &str) {
        close(&self.link, reason);
    }

    fn close_reason(&self) -> Option<TransportError> {
        self.link.close_reason()
    }

    async fn closed(&self) -> TransportError {
        self.link.closed().await
    }

    fn peer(&self) -> String {
        self.link.peer().to_owned()
    }

    fn stats(&self) -> ConnectionStats {
        self.link.traffic.stats()
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.close("the last handle to the connection was dropped");
    }
}
