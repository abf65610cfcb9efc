//! [`QuicConnection`]: many streams to one peer.

use crate::congestion::exempt_close;
use crate::error::connection_error;
use crate::recv_stream::QuicRecvStream;
use crate::send_stream::QuicSendStream;
use crate::stream_allowance::{OpenStream, StreamAllowance};
use async_trait::async_trait;
use datafusion_transport_core::connection::{
    BiStream, Connection, ConnectionStats, StreamClass, StreamCode,
};
use datafusion_transport_core::error::{Delivery, TransportError};
use quinn::{ConnectionError, VarInt};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A QUIC connection. Dropping it closes it, whatever streams are left.
#[derive(Debug)]
pub(crate) struct QuicConnection {
    quic: quinn::Connection,
    about: Arc<About>,
    allowance: Arc<StreamAllowance>,
}

/// What an error needs to say about a connection.
#[derive(Debug)]
pub(crate) struct About {
    /// The worker's URL on the client, the remote address on the server.
    pub(crate) peer: String,
    pub(crate) idle_timeout: Duration,
    /// Why this side closed it.
    pub(crate) local_reason: OnceLock<String>,
}

/// What a stream keeps of its connection: not the connection, which must close when its last handle goes.
#[derive(Clone, Debug)]
pub(crate) struct StreamOwner {
    about: Arc<About>,
    /// Counts a stream that the peer opened until both halves are gone.
    _open: Option<Arc<OpenStream>>,
}

/// The code of a close that is not an error of QUIC. The text says why.
const CLOSE_CODE: VarInt = VarInt::from_u32(0);
/// Quinn cuts a reason to one packet; this much always fits.
const MAX_REASON_BYTES: usize = 1000;

impl QuicConnection {
    /// Wraps a connection whose handshake is complete.
    pub(crate) fn new(
        quic: quinn::Connection,
        peer: String,
        idle_timeout: Duration,
        allowance: StreamAllowance,
    ) -> Self {
        Self {
            quic,
            about: Arc::new(About {
                peer,
                idle_timeout,
                local_reason: OnceLock::new(),
            }),
            allowance: Arc::new(allowance),
        }
    }

    fn streams(
        &self,
        (send, recv): (quinn::SendStream, quinn::RecvStream),
        open: Option<OpenStream>,
    ) -> BiStream {
        let owner = StreamOwner {
            about: Arc::clone(&self.about),
            _open: open.map(Arc::new),
        };
        BiStream {
            send: Box::new(QuicSendStream::new(send, owner.clone())),
            recv: Box::new(QuicRecvStream::new(recv, owner)),
        }
    }
}

#[async_trait]
impl Connection for QuicConnection {
    async fn open(&self, class: StreamClass) -> Result<BiStream, TransportError> {
        let streams = self.quic.open_bi().await.map_err(|err| {
            let err = self.about.error(&err, "open stream");
            err.with_delivery(Delivery::NotDelivered)
        })?;
        let mut streams = self.streams(streams, None);
        streams.send.set_class(class);
        Ok(streams)
    }

    async fn accept(&self) -> Result<BiStream, TransportError> {
        let streams = self
            .quic
            .accept_bi()
            .await
            .map_err(|err| self.about.error(&err, "accept stream"))?;
        let open = StreamAllowance::opened(&self.allowance, |allowed| {
            self.quic.set_max_concurrent_bi_streams(allowed.into());
        });
        Ok(self.streams(streams, Some(open)))
    }

    fn close(&self, reason: &str) {
        // Quinn would forget why the connection is closed already.
        if self.quic.close_reason().is_some() {
            return;
        }
        let _ = self.about.local_reason.set(reason.to_owned());
        exempt_close(&self.quic);
        let cut = reason.floor_char_boundary(MAX_REASON_BYTES);
        self.quic
            .close(CLOSE_CODE, reason.get(..cut).unwrap_or_default().as_bytes());
    }

    fn close_reason(&self) -> Option<TransportError> {
        let err = self.quic.close_reason()?;
        Some(self.about.error(&err, "use connection"))
    }

    async fn closed(&self) -> TransportError {
        let err = self.quic.closed().await;
        self.about.error(&err, "use connection")
    }

    fn peer(&self) -> String {
        self.about.peer.clone()
    }

    fn stats(&self) -> ConnectionStats {
        let stats = self.quic.stats();
        ConnectionStats {
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            round_trip: Some(stats.path.rtt),
            packets_lost: stats.path.lost_packets,
            path_mtu_bytes: Some(stats.path.current_mtu),
        }
    }
}

impl Drop for QuicConnection {
    fn drop(&mut self) {
        self.close("the last handle to the connection was dropped");
    }
}

impl About {
    fn error(&self, err: &ConnectionError, operation: &'static str) -> TransportError {
        let local_reason = self.local_reason.get().map(String::as_str);
        connection_error(err, operation, &self.peer, self.idle_timeout, local_reason)
    }
}

impl StreamOwner {
    pub(crate) fn error(&self, err: &ConnectionError, operation: &'static str) -> TransportError {
        self.about.error(err, operation)
    }
}

/// Quinn sends streams of a higher number first, those of one number in turn.
pub(crate) fn stream_priority(class: StreamClass) -> i32 {
    match class {
        StreamClass::Control => 1,
        StreamClass::Bulk => 0,
    }
}

pub(crate) fn varint(code: StreamCode) -> VarInt {
    VarInt::from_u32(code.0)
}

/// A peer may send more than this side's codes hold; what is unknown stays unknown.
pub(crate) fn stream_code(code: VarInt) -> StreamCode {
    StreamCode(u32::try_from(code.into_inner()).unwrap_or(u32::MAX))
}
