//! [`WiredWorker`]: the engine's worker behind the upper seam.

use crate::config::TransportOptions;
use crate::service::{TaskOutput, WorkerService};
use crate::sweep::Sweeper;
use crate::transports::Transports;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion_distributed::{
    BroadcastExec, CoordinatorToWorkerMsg, DistributedConfig, DistributedExt, ExecuteTaskRequest,
    GetWorkerInfoResponse, MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey, Worker,
    WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerQueryContext,
    WorkerSessionBuilder, WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::future::ready;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A `datafusion_distributed::Worker` whose sessions use a registry's transports. Cheap to clone; clones share their tasks.
#[derive(Clone)]
pub struct WiredWorker {
    worker: Worker,
    sweeper: Arc<Sweeper>,
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
            sweeper: Arc::default(),
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
        let (key, head) = (plan.task_key, Arc::new(OnceLock::new()));
        let worker = self.worker.clone();
        let at_end = instantiate(worker, key, Arc::clone(&head));
        let from_coordinator = from_coordinator.chain(stream::once(at_end).filter_map(ready));
        // The engine drops the stream after it removed the task, whatever ended it.
        let ended = TaskEnded(self.clone());
        let from_coordinator = from_coordinator.inspect(move |_| {
            let _ = &ended;
        });
        let call = self
            .worker
            .coordinator_channel(headers, plan, from_coordinator.boxed());
        PLAN_HEAD.scope(head, call).await
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

/// Tells, when dropped, that a task was removed.
struct TaskEnded(WiredWorker);

impl Drop for TaskEnded {
    fn drop(&mut self) {
        self.0.sweeper.task_ended(&self.0.worker);
    }
}

tokio::task_local! {
    /// Where the plan that is being set leaves its head.
    static PLAN_HEAD: Arc<OnceLock<ProducerHead>>;
}

/// Keeps the head of the plan that is being set. Changes nothing.
fn keep_head(ev: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse> {
    let head = if let Some(repartition) = ev.plan.downcast_ref::<RepartitionExec>() {
        ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Decoded(repartition.partitioning().clone()),
        }
    } else if ev.plan.downcast_ref::<BroadcastExec>().is_some() {
        ProducerHead::BroadcastExec {
            output_partitions: ev.plan.output_partitioning().partition_count(),
        }
    } else {
        ProducerHead::None
    };
    // Fails outside a coordinator channel of this transport, where nobody asks for it.
    let _ = PLAN_HEAD.try_with(|kept| kept.set(head));
    Ok(WorkerPlanRewriteEventResponse::new(ev.plan))
}

/// How long the engine may take to find a plan that it holds: no time. It forgets plans that were idle for ten minutes, and
/// would then wait for another one.
pub(crate) const PRESENT_LIMIT: Duration = Duration::from_millis(500);

/// Makes a task that nobody executed report its metrics when its query ends: the engine's EXPLAIN ANALYZE waits, for ever, for those
/// of every task, and a task has none before its plan was instantiated. Executing no partition does that, under the head the
/// plan came with. A task that was executed stays as it is.
async fn instantiate<T>(
    worker: Worker,
    task_key: TaskKey,
    head: Arc<OnceLock<ProducerHead>>,
) -> Option<T> {
    let request = ExecuteTaskRequest {
        task_key,
        target_partition_start: 0,
        target_partition_end: 0,
        producer_head: head.get()?.clone(),
    };
    let _ = tokio::time::timeout(PRESENT_LIMIT, worker.execute_task(request)).await;
    None
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
        config.set_distributed_worker_plan_rewrite_handler(keep_head);
        Ok(builder.build())
    }
}
