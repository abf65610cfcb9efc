//! The engine's own gRPC server, with a shutdown that has a deadline.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use datafusion_distributed::Worker;
use datafusion_transport_core::GrpcStream;
use datafusion_transport_tcp::Http2Connections;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::timeout};
use tonic::transport::{Server, server::TcpIncoming};

use crate::program::usage;

/// Where gRPC's connections come from.
pub(crate) enum GrpcConnections {
    /// A port that gRPC shares.
    Shared(Http2Connections),
    /// A port of its own.
    Own(TcpListener),
}

impl GrpcConnections {
    /// Binds a port for gRPC alone.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self> {
        let bound = TcpListener::bind(address).await;
        bound.map(Self::Own).map_err(|error| {
            usage(format!(
                "cannot listen on {address}: {error}; choose another with --listen"
            ))
        })
    }

    /// Where it listens, if the port is its own.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Own(listener) => listener.local_addr().ok(),
            Self::Shared(_) => None,
        }
    }
}

/// A running server. Dropping it stops it at once.
pub(crate) struct GrpcServer {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl GrpcServer {
    /// Serves `worker` to all who connect.
    pub(crate) fn start(connections: GrpcConnections, worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = stopped.map(|_| ());
        let router = Server::builder().add_service(worker.into_worker_server());
        let serve: BoxFuture<'static, _> = match connections {
            GrpcConnections::Own(listener) => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                router
                    .serve_with_incoming_shutdown(incoming, stopped)
                    .boxed()
            }
            GrpcConnections::Shared(http2) => {
                let incoming =
                    http2.map(|stream| Ok::<_, Infallible>(GrpcStream::new(stream.peer(), stream)));
                router
                    .serve_with_incoming_shutdown(incoming, stopped)
                    .boxed()
            }
        };
        let task = tokio::spawn(serve);
        Self {
            stop: Some(stop),
            task,
        }
    }

    /// Takes no more calls, and lets running ones end until `deadline` has passed.
    ///
    /// # Errors
    /// When the server had failed.
    pub(crate) async fn shutdown(mut self, deadline: Duration) -> Result<()> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        match timeout(deadline, &mut self.task).await {
            Ok(ended) => ended?.context("the gRPC server failed"),
            Err(_) => {
                tracing::warn!(?deadline, "gRPC calls still running at the deadline");
                Ok(())
            }
        }
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
