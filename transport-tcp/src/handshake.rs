//! From a fresh socket to two sides that know each other's limits: TLS where configured, then the preambles
//! (`docs/tcp.md`, T-1 to T-4).

use crate::error::handshake_failure;
use crate::mux::{Limits, PREAMBLE_BYTES, Preamble, PreambleError, VERSIONED_BYTES};
use crate::socket::Duplex;
use crate::tls::{ALPN, check_alpn};
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::{ClientTls, EXPECTS_TLS};
use rustls::pki_types::ServerName;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// A socket without a word on it yet.
pub(crate) enum Fresh {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Why a handshake failed, in words.
pub(crate) struct Failure(pub(crate) String);

type Done = (Duplex, Limits);

/// The connector's side. `name` is whom the certificate must be for; Unix sockets carry no TLS.
pub(crate) async fn connect(
    socket: Fresh,
    tls: Option<(&ClientTls, ServerName<'static>)>,
    ours: Limits,
) -> Result<Done, Failure> {
    match (socket, tls) {
        (Fresh::Tcp(mut stream), None) => {
            let theirs = greet(&mut stream, ours).await?;
            Ok((Duplex::tcp(stream), theirs))
        }
        (Fresh::Unix(mut stream), _) => {
            let theirs = greet(&mut stream, ours).await?;
            Ok((Duplex::unix(stream), theirs))
        }
        (Fresh::Tcp(stream), Some((tls, name))) => {
            let config = tls.current(&[ALPN]).await;
            let connected = TlsConnector::from(config).connect(name, stream).await;
            let mut stream = connected.map_err(Failure::io)?;
            check_alpn(stream.get_ref().1.alpn_protocol()).map_err(Failure)?;
            let theirs = greet(&mut stream, ours).await?;
            Ok((Duplex::split(stream), theirs))
        }
    }
}

/// The connector's side, on a stream that is ready for it.
pub(crate) async fn greet<S>(stream: &mut S, ours: Limits) -> Result<Limits, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    say(stream, ours).await?;
    hear(stream, Vec::new()).await
}

/// The listener's side. `seen` is what has been read already.
pub(crate) async fn answer<S>(
    stream: &mut S,
    seen: Vec<u8>,
    ours: Limits,
) -> Result<Limits, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let heard = hear(stream, seen).await;
    // T-2: also when nothing comes of it, so that the peer can say why.
    let said = say(stream, ours).await;
    if heard.is_err() {
        leave(stream).await;
    }
    let theirs = heard?;
    said?;
    Ok(theirs)
}

/// A round trip at leisure. Longer, and peers that stay would hold the places of handshakes.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// Ends a connection that comes to nothing, after the last words of this side.
pub(crate) async fn leave<S>(stream: &mut S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let leave = async {
        let _ = stream.shutdown().await;
        // Until the peer has closed too: an earlier close would destroy those words.
        let mut ignored = [0; 1024];
        while matches!(stream.read(&mut ignored).await, Ok(1..)) {}
    };
    let _ = tokio::time::timeout(LEAVE_LIMIT, leave).await;
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), ours: Limits) -> Result<(), Failure> {
    let preamble = Preamble { limits: ours }.encode();
    stream.write_all(&preamble).await.map_err(Failure::io)?;
    stream.flush().await.map_err(Failure::io)
}

/// Reads the peer's preamble, which may begin with what was `seen` already, and not a byte more.
async fn hear(stream: &mut (impl AsyncRead + Unpin), seen: Vec<u8>) -> Result<Limits, Failure> {
    let mut bytes = seen;
    loop {
        match Preamble::decode(&bytes) {
            Ok(None) => {}
            Ok(Some(preamble)) => return Ok(preamble.limits),
            Err(err) => return Err(Failure::preamble(&err, &bytes)),
        }
        // What is behind the version may differ in other versions.
        let wanted = match bytes.len() {
            0..VERSIONED_BYTES => VERSIONED_BYTES,
            _ => PREAMBLE_BYTES,
        };
        let mut rest = (&mut *stream).take((wanted - bytes.len()) as u64);
        if rest.read_buf(&mut bytes).await.map_err(Failure::io)? == 0 {
            let detail = "the peer ended the connection before it said anything: is it this protocol's port?";
            return Err(Failure::because(detail));
        }
    }
}

impl Failure {
    pub(crate) fn because(detail: &str) -> Self {
        Self(detail.to_owned())
    }

    pub(crate) fn io(err: io::Error) -> Self {
        Self(handshake_failure(&err))
    }

    fn preamble(err: &PreambleError, began: &[u8]) -> Self {
        match err {
            PreambleError::Foreign("TLS") => Self::because(EXPECTS_TLS),
            PreambleError::Foreign(_) => {
                Self(format!("{err}; it began `{}`", began.escape_ascii()))
            }
            err => Self(err.to_string()),
        }
    }

    /// T-23: a TLS client that named no protocol, and does not speak HTTP/2.
    pub(crate) fn foreign_over_tls(began: &[u8]) -> Self {
        Self(format!(
            "the peer named no protocol (ALPN) over TLS and does not speak HTTP/2; it began `{}`",
            began.escape_ascii()
        ))
    }

    /// The error of `operation` with `peer`.
    pub(crate) fn error(self, operation: &'static str, peer: &str) -> TransportError {
        TransportError::new(ErrorKind::Handshake, operation, peer, self.0)
    }
}
