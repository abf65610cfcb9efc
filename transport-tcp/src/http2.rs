//! [`Http2Connections`]: what reaches a shared port and is HTTP/2, which is to say gRPC (`docs/tcp.md`, T-22 to T-24).

use crate::socket::{BoxRead, BoxWrite, Duplex};
use datafusion_transport_core::IoRuntime;
use futures_core::Stream;
use std::fmt;
use std::io::{self, Cursor, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Chain, Join, ReadBuf, join};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The HTTP/2 connections that arrive at a [`TcpListener`](crate::TcpListener) that shares its port, for a server of the
/// caller's, such as tonic's. They are that server's alone: closing the listener does not close them, and ends this.
///
/// Take them promptly: those that wait longer than the handshake timeout are closed. Dropped, the port refuses HTTP/2.
#[derive(Debug)]
pub struct Http2Connections(mpsc::Receiver<Http2Stream>);

/// A connection on which the peer has begun to speak HTTP/2: its bytes from the first one on, decrypted where it came
/// over TLS. Dropping it closes it.
///
/// It may be used from any runtime; the socket's readiness comes from the listener's I/O runtime, which it keeps.
pub struct Http2Stream {
    bytes: Join<Chain<Cursor<Vec<u8>>, BoxRead>, BoxWrite>,
    peer: SocketAddr,
    encrypted: bool,
    _io: IoRuntime,
}

/// What the listener knows of such a connection.
pub(crate) struct Http2Start {
    pub(crate) socket: Duplex,
    /// Bytes that were read to find out.
    pub(crate) seen: Vec<u8>,
    pub(crate) peer: SocketAddr,
    pub(crate) encrypted: bool,
}

/// Its name in a TLS handshake (ALPN).
pub(crate) const H2: &[u8] = b"h2";
/// What a client says first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A client that is about to ask does so within a round trip; what it says before are settings.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
const FIRST_REQUEST_BYTES: u64 = 16 << 10;
/// Connections that wait for the caller's server. More wait in their handshake's place.
const BACKLOG: usize = 64;

pub(crate) fn channel() -> (mpsc::Sender<Http2Stream>, Http2Connections) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    (sender, Http2Connections(receiver))
}

impl Http2Connections {
    /// The next connection, or `None` once the listener is closed or dropped. Cancel safe.
    pub async fn accept(&mut self) -> Option<Http2Stream> {
        self.0.recv().await
    }
}

impl Stream for Http2Connections {
    type Item = Http2Stream;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Http2Stream>> {
        self.0.poll_recv(cx)
    }
}

impl Http2Stream {
    pub(crate) fn new(start: Http2Start, io: IoRuntime) -> Self {
        let read = Cursor::new(start.seen).chain(start.socket.read);
        Self {
            bytes: join(read, start.socket.write),
            peer: start.peer,
            encrypted: start.encrypted,
            _io: io,
        }
    }

    /// The remote address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether it came over TLS, and so from a client that [`ServerTls`](crate::ServerTls) lets in.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

/// T-22: reads on until `seen` is a whole preface, or can't become one any more; no byte behind it. `may_read` is how
/// many bytes any peer may be expected to send first.
pub(crate) async fn begins(
    stream: &mut (impl AsyncRead + Unpin),
    seen: &mut Vec<u8>,
    may_read: usize,
) -> io::Result<bool> {
    loop {
        let limit = match PREFACE.strip_prefix(seen.as_slice()) {
            None => return Ok(false),
            Some([]) => return Ok(true),
            Some(_) if seen.is_empty() => may_read,
            Some(rest) => rest.len(),
        };
        if (&mut *stream).take(limit as u64).read_buf(seen).await? == 0 {
            return Ok(false);
        }
    }
}

/// T-24: tells an HTTP/2 client, whose preface was read, why there is nothing for it here. `why` has less than 248 bytes.
pub(crate) async fn refuse(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    why: &str,
) -> io::Result<()> {
    // If it did not come in time, or not in this form, then so be it.
    let _ = timeout(FIRST_REQUEST_TIMEOUT, first_request(stream)).await;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const LAST_STREAM_AND_CODE: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];
    let length = u8::try_from(LAST_STREAM_AND_CODE.len() + why.len()).unwrap_or(u8::MAX);
    let why = why.as_bytes();
    let why = why
        .get(..usize::from(length) - LAST_STREAM_AND_CODE.len())
        .unwrap_or(why);
    let go_away = [0, 0, length, 7, 0, 0, 0, 0, 0];
    let frames = [&SETTINGS[..], &go_away, &LAST_STREAM_AND_CODE, why].concat();
    stream.write_all(&frames).await?;
    stream.flush().await
}

/// Reads until the client has asked for something: one that is refused before has no request to fail with the reason,
/// and common clients then forget it.
async fn first_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    const HEADERS: u8 = 1;
    let mut stream = stream.take(FIRST_REQUEST_BYTES);
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await?;
        let [high, middle, low, kind, ..] = header;
        if kind == HEADERS {
            return Ok(());
        }
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = (&mut stream).take(length.into());
        tokio::io::copy(&mut payload, &mut tokio::io::sink()).await?;
    }
}

impl AsyncRead for Http2Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(cx, buf)
    }
}

impl AsyncWrite for Http2Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write_vectored(cx, bufs)
    }
}

impl fmt::Debug for Http2Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Stream")
            .field("peer", &self.peer)
            .field("encrypted", &self.encrypted)
            .finish_non_exhaustive()
    }
}
