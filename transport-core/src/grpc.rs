//! [`GrpcStream`]: a connection that came some other way than through tonic's own listener, for tonic to serve (feature
//! `grpc`).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// A byte stream on which a client speaks gRPC, such as one that reached a port which gRPC shares with another transport.
/// Dropping it drops the stream.
///
/// ```no_run
/// use datafusion_transport_core::GrpcStream;
/// use futures::{Stream, StreamExt};
/// use std::{convert::Infallible, net::SocketAddr};
/// use tokio::io::{AsyncRead, AsyncWrite};
/// use tonic::transport::server::Router;
///
/// # async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
/// #     routes: Router, connections: impl Stream<Item = (SocketAddr, S)>) {
/// // `routes`: Server::builder().add_service(worker.into_worker_server())
/// let incoming = connections.map(|(peer, stream)| Ok::<_, Infallible>(GrpcStream::new(peer, stream)));
/// routes.serve_with_incoming(incoming).await.unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct GrpcStream<S> {
    peer: SocketAddr,
    stream: S,
}

impl<S> GrpcStream<S> {
    /// `peer` is the remote address, which services find in a request as tonic's `remote_addr`.
    pub fn new(peer: SocketAddr, stream: S) -> Self {
        Self { peer, stream }
    }
}

impl<S> Connected for GrpcStream<S> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(self.peer),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GrpcStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GrpcStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
