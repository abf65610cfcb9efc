//! [`TransportError`]: what went wrong between two peers, where, and whether the request may have arrived.

use datafusion::common::DataFusionError;
use std::fmt;
use std::sync::Arc;

/// What kind of failure it was, and so whose fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A URL, an option or a certificate on this side is unusable.
    Config,
    /// The peer could not be reached: name lookup, refused, unreachable.
    Connect,
    /// The peer was reached and the handshake failed: certificate, server name, protocol version.
    Handshake,
    /// A deadline passed.
    Timeout,
    /// An established connection broke or went silent.
    ConnectionLost,
    /// The peer closed the connection on purpose, with a reason.
    Closed,
    /// The peer cut one stream, or cancelled the call, while the connection lives.
    Aborted,
    /// The peer broke the protocol, for example a stream that ended without its terminal message.
    Protocol,
    /// The peer refuses new calls because it is shutting down.
    ShuttingDown,
}

/// Whether a failed request may have reached the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing of the request left this process, or the peer said that it did not act on it: safe to send elsewhere.
    NotDelivered,
    /// The peer may have acted on it.
    Unknown,
}

/// A failure between two peers. Cheap to clone, so that one lost connection can fail all its streams.
#[derive(Clone)]
pub struct TransportError(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    peer: String,
    detail: String,
    delivery: Delivery,
}

impl TransportError {
    /// Builds an error: `operation` is what this side was doing (`"connect"`, `"read partition"`), `peer` the worker's
    /// URL or the remote address, `detail` the cause and, where there is one, the remedy.
    /// Failures before a request can leave (`Config`, `Connect`, `Handshake`, `ShuttingDown`) count as not delivered.
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        peer: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        let delivery = match kind {
            ErrorKind::Config
            | ErrorKind::Connect
            | ErrorKind::Handshake
            | ErrorKind::ShuttingDown => Delivery::NotDelivered,
            ErrorKind::Timeout
            | ErrorKind::ConnectionLost
            | ErrorKind::Closed
            | ErrorKind::Aborted
            | ErrorKind::Protocol => Delivery::Unknown,
        };
        Self(Arc::new(Inner {
            kind,
            operation,
            peer: peer.into(),
            detail: detail.into(),
            delivery,
        }))
    }

    /// The same failure, seen from another operation or named by another peer name.
    pub fn during(&self, operation: &'static str, peer: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind: self.0.kind,
            operation,
            peer: peer.into(),
            detail: self.0.detail.clone(),
            delivery: self.0.delivery,
        }))
    }

    /// The same failure with what is known about delivery.
    pub fn with_delivery(&self, delivery: Delivery) -> Self {
        Self(Arc::new(Inner {
            kind: self.0.kind,
            operation: self.0.operation,
            peer: self.0.peer.clone(),
            detail: self.0.detail.clone(),
            delivery,
        }))
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The worker URL or remote address.
    pub fn peer(&self) -> &str {
        &self.0.peer
    }

    /// The cause in words.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Whether the request may have reached the peer.
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            kind,
            operation,
            peer,
            detail,
            ..
        } = self.0.as_ref();
        let what = match kind {
            ErrorKind::Config => "invalid configuration",
            ErrorKind::Connect => "cannot reach worker",
            ErrorKind::Handshake => "handshake failed",
            ErrorKind::Timeout => "timed out",
            ErrorKind::ConnectionLost => "connection lost",
            ErrorKind::Closed => "connection closed by peer",
            ErrorKind::Aborted => "stream aborted by peer",
            ErrorKind::Protocol => "protocol violation by peer",
            ErrorKind::ShuttingDown => "worker is shutting down",
        };
        write!(f, "{operation} {peer}: {what}: {detail}")
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportError")
            .field("kind", &self.0.kind)
            .field("operation", &self.0.operation)
            .field("peer", &self.0.peer)
            .field("detail", &self.0.detail)
            .field("delivery", &self.0.delivery)
            .finish()
    }
}

impl std::error::Error for TransportError {}

impl From<TransportError> for DataFusionError {
    /// The error stays whole inside `External`: callers can downcast to it and ask for its kind and delivery.
    fn from(err: TransportError) -> Self {
        Self::External(Box::new(err))
    }
}
