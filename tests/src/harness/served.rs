//! [`Served`]: a worker that runs, as cases see it.

use crate::harness::Service;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoResponse, SetPlanRequest,
    WorkerToCoordinatorMsg,
};
use datafusion_transport_core::connection::Listener;
use datafusion_transport_core::{
    IoRuntime, Server, ServerBuilder, ServerHandle, ServerStats, TaskOutput, TransportError,
    WorkerService,
};
use futures::stream::BoxStream;
use http::HeaderMap;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// A worker that runs.
#[async_trait]
pub trait Served: Send + Sync {
    /// Where it is.
    fn url(&self) -> &Url;

    /// Ends it at once, with whatever it has under way. Nobody reaches it any more when this returns, and its URL is free then or soon.
    async fn kill(self: Box<Self>);

    /// What it has open; needs [`Capability::Counters`](crate::Capability::Counters).
    fn counters(&self) -> Option<ServerStats> {
        None
    }

    /// Ends it once its calls are over or `deadline` has passed; returns how many were cut. Needs
    /// [`Capability::Drain`](crate::Capability::Drain).
    async fn drain(self: Box<Self>, _deadline: Duration) -> usize {
        panic!("this harness must say that it lacks Capability::Drain");
    }
}

/// Serves by the generic server.
pub(super) fn start(
    service: Service,
    listeners: impl IntoIterator<Item = Box<dyn Listener>>,
    url: Url,
    io: IoRuntime,
) -> Result<Box<dyn Served>, TransportError> {
    let builder = match service {
        Service::Worker(worker) => Server::builder(worker),
        Service::Other(service) => Server::builder(ServedService(service)),
    };
    let builder = listeners.into_iter().fold(builder, ServerBuilder::listener);
    let server = builder.io_runtime(io).start()?;
    Ok(Box::new(Generic { url, server }))
}

struct Generic {
    url: Url,
    server: ServerHandle,
}

#[async_trait]
impl Served for Generic {
    fn url(&self) -> &Url {
        &self.url
    }

    async fn kill(self: Box<Self>) {
        self.server.shutdown(Duration::ZERO).await;
    }

    fn counters(&self) -> Option<ServerStats> {
        Some(self.server.stats())
    }

    async fn drain(self: Box<Self>, deadline: Duration) -> usize {
        self.server.shutdown(deadline).await
    }
}

/// A shared service is one too.
pub struct ServedService(pub Arc<dyn WorkerService>);

#[async_trait]
impl WorkerService for ServedService {
    async fn coordinator_channel(
        &self,
        headers: HeaderMap,
        plan: SetPlanRequest,
        from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        self.0
            .coordinator_channel(headers, plan, from_coordinator)
            .await
    }

    async fn execute_task(
        &self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
    ) -> Result<TaskOutput> {
        self.0.execute_task(headers, request).await
    }

    async fn worker_info(&self) -> Result<GetWorkerInfoResponse> {
        self.0.worker_info().await
    }
}
