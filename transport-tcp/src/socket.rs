//! Sockets: their options, their two directions, and their errors in words.

use crate::config::{CongestionControl, TcpConfig};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

pub(crate) type BoxRead = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// Both directions of an established connection.
pub(crate) struct Duplex {
    pub(crate) read: BoxRead,
    pub(crate) write: BoxWrite,
}

impl Duplex {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self {
            read: Box::new(read),
            write: Box::new(write),
        }
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self {
            read: Box::new(read),
            write: Box::new(write),
        }
    }

    pub(crate) fn split(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            read: Box::new(read),
            write: Box::new(write),
        }
    }
}

/// Sets a TCP socket's options. The kernel's keep-alive and user timeout stand behind the multiplexer's own: they
/// also end connections whose process can't run.
pub(crate) fn prepare_tcp(stream: &TcpStream, config: &TcpConfig) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    prepare_buffers(&socket, config)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(config.idle_timeout)
        .with_interval(config.keep_alive_interval);
    if let Err(err) = socket.set_tcp_keepalive(&keep_alive) {
        tracing::debug!(%err, "no TCP keep-alive");
    }
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(config.idle_timeout))?;
        if let Some(bytes) = config.socket_unsent_bytes {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
        set_congestion(stream, &socket, &config.congestion)?;
    }
    Ok(())
}

/// Takes back what suits this protocol alone, for a socket that turned out to be another's, and says whose it is. A
/// server that reads nothing for a while, which the multiplexer never does, would lose it to the user timeout.
pub(crate) fn release_tcp(stream: &TcpStream) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(None)?;
    stream.peer_addr()
}

/// Sets the options that any socket has.
pub(crate) fn prepare_buffers(socket: &SockRef<'_>, config: &TcpConfig) -> io::Result<()> {
    if let Some(bytes) = config.socket_send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = config.socket_recv_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn set_congestion(
    stream: &TcpStream,
    socket: &SockRef<'_>,
    congestion: &CongestionControl,
) -> io::Result<()> {
    match congestion {
        CongestionControl::System => Ok(()),
        CongestionControl::Named(name) => socket
            .set_tcp_congestion(name.as_bytes())
            .map_err(|err| io::Error::new(err.kind(), format!("congestion control {name}: {err}"))),
        CongestionControl::Automatic => {
            let (peer, local) = (stream.peer_addr()?.ip(), stream.local_addr()?.ip());
            if (peer.is_loopback() || peer == local)
                && let Err(err) = socket.set_tcp_congestion(b"cubic")
            {
                tracing::debug!(%err, "no cubic on loopback");
            }
            Ok(())
        }
    }
}

/// An error of an established connection, in words.
pub(crate) fn failure(err: &io::Error) -> String {
    match err.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            format!("the peer is gone: {err}; its process probably ended")
        }
        io::ErrorKind::TimedOut => format!("the peer does not acknowledge: {err}"),
        // From TLS: the connection was cut without TLS's own end.
        io::ErrorKind::UnexpectedEof => {
            "the peer ended the connection without a reason: it was probably killed".to_owned()
        }
        _ => err.to_string(),
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_released_socket_may_wait_for_its_reader() {
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(port.local_addr().unwrap())
            .await
            .unwrap();
        let timeout = || SockRef::from(&stream).tcp_user_timeout().unwrap();
        let config = TcpConfig::default();
        prepare_tcp(&stream, &config).unwrap();
        assert_eq!(Some(config.idle_timeout), timeout());
        assert_eq!(port.local_addr().unwrap(), release_tcp(&stream).unwrap());
        assert_eq!(None, timeout());
    }
}
