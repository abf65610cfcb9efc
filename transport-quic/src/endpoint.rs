//! UDP sockets: bound with large buffers, wrapped so that no send exceeds what the kernel takes, and given to quinn.

use crate::config::QuicConfig;
use crate::runtime::QuinnRuntime;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Endpoint, Runtime, ServerConfig, UdpPoller};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// Binds a socket to `local` and starts an endpoint on it: its driver runs on `runtime` until the last handle to the
/// endpoint and its connections is gone. `server` makes it accept connections, `share_port` lets more sockets bind the
/// same port.
///
/// # Errors
/// The socket's, and `InvalidInput` for a configuration that was not validated.
pub(crate) fn bind(
    local: SocketAddr,
    config: &QuicConfig,
    server: Option<ServerConfig>,
    share_port: bool,
    runtime: &Arc<QuinnRuntime>,
) -> io::Result<Endpoint> {
    let socket = bind_socket(local, share_port, config)?;
    let settings = config
        .endpoint()
        .map_err(|err| io::Error::new(io::ErrorKind::InvalidInput, err))?;
    let socket = Arc::new(CappedSocket {
        inner: runtime.wrap_udp_socket(socket)?,
        max_mtu_bytes: config.max_mtu_bytes(),
    });
    Endpoint::new_with_abstract_socket(settings, server, socket, Arc::clone(runtime) as _)
}

fn bind_socket(
    local: SocketAddr,
    share_port: bool,
    config: &QuicConfig,
) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if local.is_ipv6() {
        // A worker on `[::]` serves IPv4 too. Where the system refuses, it serves IPv6.
        if let Err(err) = socket.set_only_v6(false) {
            tracing::debug!(%err, "no dual-stack UDP socket");
        }
    }
    // Only when asked for: with it, any process of the same user could take part of the traffic of the port.
    if share_port {
        #[cfg(unix)]
        socket.set_reuse_port(true)?;
        #[cfg(not(unix))]
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "several endpoints on one port need SO_REUSEPORT",
        ));
    }
    size_buffers(&socket, config);
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    Ok(socket.into())
}

/// Sets the buffers and says, once per process and direction, when the system gave less.
fn size_buffers(socket: &Socket, config: &QuicConfig) {
    static SEND_WARNED: AtomicBool = AtomicBool::new(false);
    static RECV_WARNED: AtomicBool = AtomicBool::new(false);
    let wanted = config.socket_send_buffer_bytes;
    let got = socket
        .set_send_buffer_size(wanted)
        .and_then(|()| socket.send_buffer_size());
    warn_if_clamped(&SEND_WARNED, "send", "net.core.wmem_max", wanted, got);
    let wanted = config.socket_recv_buffer_bytes;
    let got = socket
        .set_recv_buffer_size(wanted)
        .and_then(|()| socket.recv_buffer_size());
    warn_if_clamped(&RECV_WARNED, "receive", "net.core.rmem_max", wanted, got);
}

fn warn_if_clamped(
    warned: &AtomicBool,
    direction: &str,
    limit: &str,
    wanted_bytes: usize,
    got: io::Result<usize>,
) {
    let Some(problem) = clamped(direction, limit, wanted_bytes, got) else {
        return;
    };
    if !warned.swap(true, Ordering::Relaxed) {
        tracing::warn!("{problem}");
    }
}

fn clamped(
    direction: &str,
    limit: &str,
    wanted_bytes: usize,
    got: io::Result<usize>,
) -> Option<String> {
    match got {
        Ok(reported) => {
            // Linux reports twice what it gave: the other half is its own bookkeeping.
            let got_bytes = if cfg!(target_os = "linux") {
                reported / 2
            } else {
                reported
            };
            (got_bytes < wanted_bytes).then(|| {
                format!(
                    "the system clamped the UDP {direction} buffer to {got_bytes} bytes, {wanted_bytes} were asked for; \
                     bursts will be lost and sent again. Remedy: sysctl -w {limit}={wanted_bytes}"
                )
            })
        }
        Err(err) => Some(format!(
            "cannot set the UDP {direction} buffer to {wanted_bytes} bytes: {err}; bursts will be lost and sent again"
        )),
    }
}

/// A UDP socket that never makes quinn build a send which the kernel refuses.
///
/// Quinn fills up to ten datagrams into one send whatever their size, and the kernel refuses more than 64 KiB. Quinn
/// would take every such refusal for loss, then for a path that carries no large datagrams, and fall to 1200 bytes.
#[derive(Debug)]
struct CappedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    max_mtu_bytes: u16,
}

/// Just below what an IPv4 or IPv6 datagram may carry.
const MAX_SEND_BYTES: usize = 65_000;
/// The kernel merges received datagrams up to this.
const MAX_RECV_BYTES: usize = 65_536;

impl AsyncUdpSocket for CappedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        let fit = MAX_SEND_BYTES / usize::from(self.max_mtu_bytes).max(1);
        self.inner.max_transmit_segments().min(fit).max(1)
    }

    /// Quinn allocates this many datagrams of the largest size per receive slot; more than 64 KiB can't arrive in one.
    fn max_receive_segments(&self) -> usize {
        let fill = MAX_RECV_BYTES.div_ceil(usize::from(self.max_mtu_bytes).max(1));
        self.inner.max_receive_segments().min(fill).max(1)
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_send_and_no_receive_exceeds_64_kib() {
        let runtime = Arc::new(QuinnRuntime::new(tokio::runtime::Handle::current()));
        for max_mtu_bytes in [1200, 1452, 6550, 8952, 40_000, 65_000] {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            let socket = CappedSocket {
                inner: runtime.wrap_udp_socket(socket).unwrap(),
                max_mtu_bytes,
            };
            let mtu = usize::from(max_mtu_bytes);
            let segments = socket.max_transmit_segments();
            assert!(segments >= 1 && segments * mtu <= MAX_SEND_BYTES);
            // Either all that can be merged fits, or the kernel merges fewer datagrams than that.
            let merged = socket.max_receive_segments() * mtu;
            let kernel = socket.inner.max_receive_segments() * mtu;
            assert!(merged >= MAX_RECV_BYTES.min(kernel), "{max_mtu_bytes}");
        }
    }

    #[test]
    fn a_clamped_buffer_names_the_remedy() {
        let reported = if cfg!(target_os = "linux") { 400 } else { 200 };
        assert_eq!(None, clamped("send", "net.x", 200, Ok(reported)));
        let problem = clamped("send", "net.x", 201, Ok(reported)).unwrap();
        assert!(problem.contains("to 200 bytes") && problem.contains("sysctl -w net.x=201"));
    }
}
