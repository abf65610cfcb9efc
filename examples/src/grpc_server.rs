//! The engine's own gRPC server, with a shutdown that has a deadline.

use std::time::Duration;

use anyhow::{Context, Result};
use datafusion_distributed::Worker;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::timeout};
use tonic::transport::{Server, server::TcpIncoming};

/// A running server. Dropping it stops it at once.
pub(crate) struct GrpcServer {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl GrpcServer {
    /// Serves `worker` to all who connect to `listener`.
    pub(crate) fn start(listener: TcpListener, worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(
            Server::builder()
                .add_service(worker.into_worker_server())
                .serve_with_incoming_shutdown(
                    TcpIncoming::from(listener).with_nodelay(Some(true)),
                    async {
                        let _ = stopped.await;
                    },
                ),
        );
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
