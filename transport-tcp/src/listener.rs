//! [`TcpListener`]: the server half. From a port, or a Unix socket, to connections.

use crate::admission::{Admission, Port};
use crate::config::TcpConfig;
use crate::connection::{TcpConnection, close};
use crate::http2::{self, Http2Connections, Http2Stream};
use crate::link::Link;
use async_trait::async_trait;
use datafusion_transport_core::connection::{Connection, Listener};
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::ServerTls;
use datafusion_transport_core::{IoRuntime, Places};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::mpsc;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// Accepts connections on a TCP port or a Unix socket. Dropped without [`close`](Listener::close) it accepts no more,
/// and the connections it made go on.
///
/// Everything runs on the I/O runtime given to [`bind`](Self::bind), which the listener keeps.
#[derive(Debug)]
pub struct TcpListener {
    local: Local,
    config: TcpConfig,
    io: IoRuntime,
    accepted: mpsc::Receiver<TcpConnection>,
    made: Arc<Made>,
    places: Places,
    /// Aborted with this, and with it the port is closed.
    admission: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
enum Local {
    Tcp(SocketAddr, &'static str),
    Unix(PathBuf),
    /// Closed: the path may be another's by now.
    Gone(String),
}

/// The connections of a listener, to close them with it.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) drivers: TaskTracker,
    links: Mutex<Vec<Weak<Link>>>,
}

/// Connections that wait for `accept`. More wait in their handshake's place.
const ACCEPT_BACKLOG: usize = 64;
/// Connections that wait in the kernel; it has a lower limit of its own.
const KERNEL_BACKLOG: i32 = 1024;
const SHUTDOWN: &str = "the worker is shutting down";

impl TcpListener {
    /// Binds `addr` (port 0 takes a free one) and accepts from now on, only with TLS if `tls` is given. HTTP/2 is refused
    /// in words that a gRPC client shows.
    ///
    /// # Errors
    /// Kind `Config`: an invalid field of `config`, or an address that can't be bound.
    pub fn bind(
        addr: SocketAddr,
        config: TcpConfig,
        tls: Option<ServerTls>,
        io: &IoRuntime,
    ) -> Result<Self, TransportError> {
        Self::bind_tcp(addr, config, tls, None, io)
    }

    /// Like [`bind`](Self::bind), and shares the port with HTTP/2: what a gRPC client opens is not this listener's but comes
    /// out of the [`Http2Connections`], for a server of the caller's. Without TLS the first bytes tell the two apart, with
    /// TLS the protocol name (ALPN `h2`), and a client that names none is HTTP/2 if it speaks it. `tls` is for both: with
    /// a client CA, gRPC clients need a certificate too, and a plaintext one is refused.
    ///
    /// A connection that is neither, or does not say within [`TcpConfig::handshake_timeout`], is closed and logged. Those
    /// under way are bounded in number together with this protocol's handshakes.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Example
    /// With tonic, by the adapter `GrpcStream` of `datafusion-transport-core` (feature `grpc`), the same port then serves
    /// `Server::builder().add_service(..).serve_with_incoming(http2.map(|stream| GrpcStream::new(stream.peer(), stream)))`.
    /// By hand:
    ///
    /// ```no_run
    /// use datafusion_transport_core::{IoRuntime, TransportError};
    /// use datafusion_transport_tcp::{TcpConfig, TcpListener};
    /// # async fn serve_http2(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite) {}
    /// # async fn example() -> Result<(), TransportError> {
    /// let io = IoRuntime::shared()?;
    /// let address = ([0, 0, 0, 0], 8080).into();
    /// let (listener, mut http2) = TcpListener::bind_shared(address, TcpConfig::default(), None, &io)?;
    /// // `listener` goes to `Server::builder(worker).listener(..)`, and beside it:
    /// while let Some(stream) = http2.accept().await {
    ///     serve_http2(stream).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind_shared(
        addr: SocketAddr,
        config: TcpConfig,
        tls: Option<ServerTls>,
        io: &IoRuntime,
    ) -> Result<(Self, Http2Connections), TransportError> {
        let (sender, http2) = http2::channel();
        let listener = Self::bind_tcp(addr, config, tls, Some(sender), io)?;
        Ok((listener, http2))
    }

    fn bind_tcp(
        addr: SocketAddr,
        config: TcpConfig,
        tls: Option<ServerTls>,
        http2: Option<mpsc::Sender<Http2Stream>>,
        io: &IoRuntime,
    ) -> Result<Self, TransportError> {
        config.validate()?;
        let name = if tls.is_some() { "tcp+tls" } else { "tcp" };
        let fail = |err| bind_error(format!("{name} {addr}"), &err);
        let socket = bind_socket(addr).map_err(fail)?;
        let handle = io.handle();
        let _entered = handle.enter();
        let port = tokio::net::TcpListener::from_std(socket).map_err(fail)?;
        let local = Local::Tcp(port.local_addr().map_err(fail)?, name);
        Ok(Self::start(local, Port::Tcp(port), config, tls, http2, io))
    }

    /// Binds a Unix socket at `path`, in place of one that nobody listens on any more, and removes it when closed or
    /// dropped. No TLS: who may open the file may connect.
    ///
    /// # Errors
    /// Kind `Config`: an invalid field of `config`, or a path that can't be bound.
    pub fn bind_unix(
        path: &Path,
        config: TcpConfig,
        io: &IoRuntime,
    ) -> Result<Self, TransportError> {
        config.validate()?;
        let fail = |err| bind_error(format!("unix {}", path.display()), &err);
        // Of anything else than a socket the system says the same: it must stay, and binding fails.
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
        let refused = |err: io::Error| err.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(refused) {
            std::fs::remove_file(path).map_err(fail)?;
        }
        let handle = io.handle();
        let _entered = handle.enter();
        let port = tokio::net::UnixListener::bind(path).map_err(fail)?;
        Ok(Self::start(
            Local::Unix(path.to_owned()),
            Port::Unix(port),
            config,
            None,
            None,
            io,
        ))
    }

    fn start(
        local: Local,
        port: Port,
        config: TcpConfig,
        tls: Option<ServerTls>,
        http2: Option<mpsc::Sender<Http2Stream>>,
        io: &IoRuntime,
    ) -> Self {
        let (sender, accepted) = mpsc::channel(ACCEPT_BACKLOG);
        let made = Arc::new(Made::default());
        let admission = Admission::new(
            config.clone(),
            tls,
            sender,
            http2,
            Arc::clone(&made),
            io.clone(),
        );
        let places = admission.places().clone();
        let task = io.handle().spawn(admission.run(port));
        Self {
            local,
            config,
            io: io.clone(),
            accepted,
            made,
            places,
            admission: Some(AbortOnDropHandle::new(task)),
        }
    }

    /// Removes a Unix socket from the file system, once.
    fn remove_socket(&mut self) {
        if let Local::Unix(path) = &self.local {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
            self.local = Local::Gone(self.describe());
        }
    }

    /// The bound address, with the port that was taken; `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.local {
            Local::Tcp(addr, _) => Some(*addr),
            Local::Unix(_) | Local::Gone(_) => None,
        }
    }

    /// Handshakes in progress now: at most [`TcpConfig::max_handshakes`].
    pub fn handshakes(&self) -> usize {
        self.places.taken()
    }
}

#[async_trait]
impl Listener for TcpListener {
    async fn accept(&mut self) -> Option<Arc<dyn Connection>> {
        let connection = self.accepted.recv().await?;
        Some(Arc::new(connection))
    }

    fn describe(&self) -> String {
        match &self.local {
            Local::Tcp(addr, name) => format!("{name} {addr}"),
            Local::Unix(path) => format!("unix {}", path.display()),
            Local::Gone(name) => name.clone(),
        }
    }

    async fn close(&mut self) {
        if let Some(admission) = self.admission.take() {
            admission.abort();
            let _ = admission.await;
        }
        self.remove_socket();
        self.accepted.close();
        while self.accepted.try_recv().is_ok() {}
        self.made.close(SHUTDOWN, &self.config, &self.io).await;
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.remove_socket();
    }
}

impl Made {
    pub(crate) fn add(&self, connection: &TcpConnection) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() == links.capacity() {
            links.retain(|link| link.strong_count() > 0);
        }
        links.push(connection.link());
    }

    /// Closes all, and waits until the peers can have been told. Each driver ends by itself within about its close timeout.
    pub(crate) async fn close(self: &Arc<Self>, reason: &str, config: &TcpConfig, io: &IoRuntime) {
        self.close_all(reason);
        self.drivers.close();
        // On the I/O runtime, because a timeout needs one.
        let (made, limit) = (Arc::clone(self), 2 * config.close_timeout);
        let told = io.handle().spawn(async move {
            if tokio::time::timeout(limit, made.drivers.wait())
                .await
                .is_err()
            {
                tracing::debug!("some peers did not confirm that their connection is closed");
            }
        });
        let _ = AbortOnDropHandle::new(told).await;
    }

    fn close_all(&self, reason: &str) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<_> = links.drain(..).filter_map(|link| link.upgrade()).collect();
        drop(links);
        for link in open {
            close(&link, reason);
        }
    }
}

fn bind_socket(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        // A worker on `[::]` serves IPv4 too. Where the system refuses, it serves IPv6.
        if let Err(err) = socket.set_only_v6(false) {
            tracing::debug!(%err, "no dual-stack TCP socket");
        }
    }
    // A restarted worker gets its port back although connections of the old one linger in the kernel.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(KERNEL_BACKLOG)?;
    Ok(socket.into())
}

fn bind_error(place: String, err: &io::Error) -> TransportError {
    let detail = format!("cannot listen there: {err}");
    TransportError::new(ErrorKind::Config, "listen", place, detail)
}
