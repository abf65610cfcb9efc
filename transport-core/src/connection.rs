//! The lower seam: what a network must give, and nothing else.
//!
//! A transport implements [`Connector`], [`Listener`], [`Connection`], [`SendStream`] and [`RecvStream`]; everything
//! that knows plans, batches, errors or metrics stands above. The one property that all of it rests on: **every stream
//! has flow control of its own**. A reader that does not read stops its writer, and nobody else.
//!
//! Reads and writes are poll functions, because they are called through `dyn` once per chunk and an `async` method would
//! allocate a future each time. [`read()`] and [`write()`] wrap them for `await`.

use crate::error::TransportError;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use url::Url;

/// How urgent a stream's bytes are when several streams of a connection have something to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamClass {
    /// Small messages that a query waits for: plans, work units, metrics. They go before bulk data.
    Control,
    /// Partition data.
    Bulk,
}

/// Why a stream was cut before its end, as a number that crosses the wire (`docs/protocol.md`, P-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamCode(pub u32);

impl StreamCode {
    /// The receiver has no more use for the stream, or the call was cancelled.
    pub const CANCELLED: Self = Self(1);
    /// The sender went away without finishing: its task was dropped.
    pub const ABANDONED: Self = Self(2);
    /// The peer broke the protocol on this stream.
    pub const PROTOCOL: Self = Self(3);
    /// The worker takes no new calls; it did not act on this one.
    pub const REFUSED: Self = Self(4);
}

/// Why a read or a write on a stream failed.
#[derive(Clone, Debug)]
pub enum StreamError {
    /// The peer's sending side was cut with this code: what was read so far is not complete.
    Reset(StreamCode),
    /// The peer reads no further: what is written from now on is lost.
    Stopped(StreamCode),
    /// The connection is gone.
    Connection(TransportError),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "stream reset by peer (code {})", code.0),
            Self::Stopped(code) => write!(f, "peer stopped reading the stream (code {})", code.0),
            Self::Connection(err) => err.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

/// The two halves of a bidirectional stream.
pub struct BiStream {
    /// What this side sends.
    pub send: Box<dyn SendStream>,
    /// What the peer sends.
    pub recv: Box<dyn RecvStream>,
}

/// Makes connections: the client half of a transport.
#[async_trait]
pub trait Connector: Send + Sync + fmt::Debug {
    /// Connects to a worker and completes the handshake. The caller sets the deadline and drops the future when it
    /// passes; an implementation also bounds its own handshake.
    /// Dropping the future abandons the attempt and leaves nothing behind.
    ///
    /// # Errors
    /// `Config` for a URL this transport can't use, `Connect`, `Handshake` (certificate, name, version) or `Timeout`;
    /// each names the URL.
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError>;

    /// Whether a handshake shows who the peer is. Where it does and fails, `transport.kind = 'auto'` goes on to no other kind,
    /// which might ask for no proof.
    fn authenticates(&self) -> bool {
        false
    }
}

/// Accepts connections: the server half of a transport.
#[async_trait]
pub trait Listener: Send + fmt::Debug {
    /// The next connection whose handshake is complete; `None` once closed. A peer whose handshake fails or dawdles is
    /// logged and never returned, and delays nobody else. Cancel safe: no connection is lost with a dropped future.
    async fn accept(&mut self) -> Option<Arc<dyn Connection>>;

    /// Where this listener can be reached, for logs: `quic 127.0.0.1:8080`.
    fn describe(&self) -> String;

    /// Stops listening, after the connections it made were closed; waits, at most a few seconds, until the peers can have been told.
    async fn close(&mut self);
}

/// A connection that carries many independent streams. Dropping the last handle closes it.
#[async_trait]
pub trait Connection: Send + Sync + fmt::Debug {
    /// Opens a stream. Waits while the peer allows no more streams; the wait holds nothing that other streams need.
    /// Nothing is sent before the first write. Dropping the future opens nothing.
    async fn open(&self, class: StreamClass) -> Result<BiStream, TransportError>;

    /// The next stream that the peer opened. Cancel safe.
    async fn accept(&self) -> Result<BiStream, TransportError>;

    /// Closes at once: streams still open fail on both sides, and the peer is told `reason`. Idempotent.
    fn close(&self, reason: &str);

    /// Why the connection is closed, or `None` while it lives. Never blocks.
    fn close_reason(&self) -> Option<TransportError>;

    /// Waits until the connection is closed, by whichever side. Cancel safe.
    async fn closed(&self) -> TransportError;

    /// The peer's address, for messages.
    fn peer(&self) -> String;

    /// Counters since the connection began.
    fn stats(&self) -> ConnectionStats;
}

/// The sending half of a stream. Dropped before [`finish`](Self::finish), it resets the stream with
/// [`StreamCode::ABANDONED`]: a dropped sender never looks like a clean end.
pub trait SendStream: Send {
    /// Writes `chunks` front to back, uncopied where the transport can, and removes what it took; a chunk that was taken in
    /// part stays with its rest. Ready once all are taken: taken means queued for sending, not received.
    /// Cancel safe: what was taken is gone from `chunks`, the rest is still there.
    ///
    /// # Errors
    /// `Stopped` when the peer reads no further, `Connection` when the connection is gone.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), StreamError>>;

    /// Ends the stream cleanly; what was written still arrives. Does not wait. A second call does nothing.
    fn finish(&mut self);

    /// Cuts the stream: what was written may not arrive, and the peer reads `Reset(code)`.
    fn reset(&mut self, code: StreamCode);

    /// Changes the urgency of what is written from now on. The opener's choice does not cross the wire.
    fn set_class(&mut self, class: StreamClass);
}

/// The receiving half of a stream. Dropped before its end, it stops the peer with [`StreamCode::CANCELLED`].
pub trait RecvStream: Send {
    /// The next bytes in order, at most `max_bytes` and never empty; `None` at the clean end. Cancel safe.
    /// Reading is what grants the peer more room.
    ///
    /// # Errors
    /// `Reset` when the peer cut the stream, `Connection` when the connection is gone.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Poll<Result<Option<Bytes>, StreamError>>;

    /// Tells the peer to stop; later reads yield whatever. Bytes already under way are dropped.
    fn stop(&mut self, code: StreamCode);
}

/// Counters of one connection since it began. What a transport can't know is zero or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Bytes this side put on the wire, with all overheads of the transport.
    pub bytes_sent: u64,
    /// Bytes this side took from the wire.
    pub bytes_received: u64,
    /// Current estimate of the round trip.
    pub round_trip: Option<Duration>,
    /// Packets declared lost, and so sent again.
    pub packets_lost: u64,
    /// Largest datagram the path takes now, in bytes.
    pub path_mtu_bytes: Option<u16>,
}

/// Awaits [`SendStream::poll_write`].
///
/// # Errors
/// As `poll_write`.
pub async fn write(
    stream: &mut dyn SendStream,
    chunks: &mut VecDeque<Bytes>,
) -> Result<(), StreamError> {
    poll_fn(|cx| stream.poll_write(cx, chunks)).await
}

/// Awaits [`RecvStream::poll_read`].
///
/// # Errors
/// As `poll_read`.
pub async fn read(
    stream: &mut dyn RecvStream,
    max_bytes: usize,
) -> Result<Option<Bytes>, StreamError> {
    poll_fn(|cx| stream.poll_read(cx, max_bytes)).await
}
