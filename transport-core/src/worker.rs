//! [`WiredWorker`]: the engine's worker behind the upper seam.

use crate::config::TransportOptions;
use crate::service::{TaskOutput, WorkerService};
use crate::transports::Transports;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion_distributed::{
    CoordinatorToWorkerMsg, DistributedConfig, DistributedExt, ExecuteTaskRequest,
    GetWorkerInfoResponse, SetPlanRequest, Worker, WorkerQueryContext, WorkerSessionBuilder,
    WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use http::HeaderMap;
use std::borrow::Cow;
use std::sync::Arc;

/// A `datafusion_distributed::Worker` whose sessions use a registry's transports. Cheap to clone; clones share their tasks.
#[derive(Clone)]
pub struct WiredWorker {
    worker: Worker,
}

impl WiredWorker {
    pub(crate) fn new(
        transports: Transports,
        session_builder: impl WorkerSessionBuilder + Send + Sync + 'static,
    ) -> Self {
        let session_builder = WiredSessionBuilder {
            inner: session_builder,
            transports,
        };
        Self {
            worker: Worker::from_session_builder(session_builder),
        }
    }

    /// The runtime environment, and so the memory pool and disk, of all queries.
    pub fn with_runtime_env(mut self, runtime_env: Arc<RuntimeEnv>) -> Self {
        self.worker = self.worker.with_runtime_env(runtime_env);
        self
    }

    /// The version that worker info reports.
    pub fn with_version(mut self, version: impl Into<Cow<'static, str>>) -> Self {
        self.worker = self.worker.with_version(version);
        self
    }

    /// The engine's worker, to serve it by the engine's own gRPC service as well.
    pub fn worker(&self) -> Worker {
        self.worker.clone()
    }
}

#[async_trait]
impl WorkerService for WiredWorker {
    async fn coordinator_channel(
        &self,
        headers: HeaderMap,
        plan: SetPlanRequest,
        from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let worker = &self.worker;
        worker
            .coordinator_channel(headers, plan, from_coordinator)
            .await
    }

    async fn execute_task(
        &self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
    ) -> Result<TaskOutput> {
        let (partitions, ctx) = self.worker.execute_task(request).await?;
        let engine = DistributedConfig::from_task_context(&ctx)?;
        let options = TransportOptions::from_session(ctx.session_config());
        Ok(TaskOutput {
            partitions,
            compression: options.compression(&engine.compression)?,
        })
    }

    async fn worker_info(&self) -> Result<GetWorkerInfoResponse> {
        Ok(GetWorkerInfoResponse {
            version: self.worker.version().to_owned(),
        })
    }
}

/// Builds the user's session, then puts the registry and the query's options into it.
struct WiredSessionBuilder<B> {
    inner: B,
    transports: Transports,
}

#[async_trait]
impl<B: WorkerSessionBuilder + Send + Sync> WorkerSessionBuilder for WiredSessionBuilder<B> {
    async fn build_session_state(&self, ctx: WorkerQueryContext) -> Result<SessionState> {
        let headers = ctx.headers.clone();
        let state = self.inner.build_session_state(ctx).await?;
        let mut builder = SessionStateBuilder::new_from_existing(state);
        let config = builder.config().get_or_insert_default();
        config.set_distributed_option_extension_from_headers::<TransportOptions>(&headers)?;
        self.transports.wire(config);
        Ok(builder.build())
    }
}
