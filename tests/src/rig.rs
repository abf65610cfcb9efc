//! [`Rig`]: one worker and one client on a harness, in this process, as a case uses them.

use crate::case::{Progress, Trial};
use crate::harness::{ChannelHarness, Served, Service};
use crate::probe::{ProbeCodec, ProbeExec};
use crate::wait::{SOON, eventually};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedExt, ExecuteTaskRequest, MaybeEncoded,
    ProducerHead, SetPlanRequest, TaskKey, TaskMetrics, WorkUnitFeedDeclaration, WorkerChannel,
    WorkerQueryContext, WorkerToCoordinatorMsg,
};
use datafusion_transport_core::{
    IoRuntime, PeerStats, TransportExt, TransportResolver, Transports, WorkerService,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use url::Url;
use uuid::Uuid;

/// The version that a rig's worker reports.
pub const WORKER_VERSION: &str = "kit-7.5";

/// The engine's default buffer budget of a call.
pub const BUDGET: usize = 64 << 20;

/// A worker, and a client that reaches it.
pub struct Rig {
    /// Where the worker is.
    pub url: Url,
    /// The client's transports.
    pub transports: Transports,
    /// The worker, until a case stops it.
    pub worker: Option<Box<dyn Served>>,
    harness: Arc<dyn ChannelHarness>,
    progress: Progress,
    headers: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Trial<dyn ChannelHarness> {
    /// Starts a worker and a client.
    pub async fn rig(&self) -> Rig {
        Rig::start_with(Arc::clone(&self.harness), None, self.progress.clone()).await
    }

    /// Starts a worker whose I/O runs on a runtime of its own, and a client.
    pub async fn rig_on(&self, io: &IoRuntime) -> Rig {
        Rig::start_with(Arc::clone(&self.harness), Some(io), self.progress.clone()).await
    }

    /// Serves something else than the engine's worker.
    pub async fn rig_of(&self, service: Arc<dyn WorkerService>) -> Rig {
        let served = self
            .harness
            .serve(Service::Other(service), None, None)
            .await;
        let worker = served.expect("the service starts");
        Rig {
            url: worker.url().clone(),
            transports: self.harness.transports(),
            worker: Some(worker),
            harness: Arc::clone(&self.harness),
            progress: self.progress.clone(),
            headers: Arc::default(),
        }
    }
}

impl Rig {
    /// Starts a worker and a client outside of a case.
    pub async fn start(harness: Arc<dyn ChannelHarness>) -> Self {
        Self::start_with(harness, None, Progress::default()).await
    }

    async fn start_with(
        harness: Arc<dyn ChannelHarness>,
        io: Option<&IoRuntime>,
        progress: Progress,
    ) -> Self {
        let headers = Arc::default();
        let worker = serve(&harness, &headers, None, io).await;
        Self {
            url: worker.url().clone(),
            transports: harness.transports(),
            worker: Some(worker),
            harness,
            progress,
            headers,
        }
    }

    /// Another client of the same worker, with connections of its own.
    pub fn client(&self) -> Self {
        Self {
            url: self.url.clone(),
            transports: self.harness.transports(),
            worker: None,
            harness: Arc::clone(&self.harness),
            progress: self.progress.clone(),
            headers: Arc::clone(&self.headers),
        }
    }

    /// Ends the worker at once.
    pub async fn kill_worker(&mut self) {
        self.worker.take().expect("a worker").kill().await;
    }

    /// Starts a worker again where the one was that a case stopped.
    pub async fn restart_worker(&mut self) {
        assert!(self.worker.is_none());
        let worker = serve(&self.harness, &self.headers, Some(&self.url), None).await;
        assert_eq!(worker.url(), &self.url);
        self.worker = Some(worker);
    }

    /// The headers of the coordinator channels that the worker's session builder saw.
    pub fn headers_seen(&self) -> Vec<HeaderMap> {
        self.headers.lock().expect("no case panics with it").clone()
    }

    /// A channel to the worker, as the engine would get it.
    pub async fn channel(&self) -> Box<dyn WorkerChannel> {
        let resolver = TransportResolver::new(self.transports.clone());
        let channel = resolver.get_worker_client_for_url(&self.url).await;
        channel.expect("a channel costs nothing")
    }

    /// A plan call with what it says by default.
    pub fn plan(&self, plan: Arc<dyn ExecutionPlan>) -> PlanCall<'_> {
        PlanCall {
            rig: self,
            transports: self.transports.clone(),
            plan,
            key: new_key(),
            headers: compression("none"),
            feeds: vec![],
            to_worker: stream::empty().boxed(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Gives the worker a plan; a [`ProbeExec`] arrives as the same object.
    pub async fn set_plan(&self, plan: Arc<dyn ExecutionPlan>) -> Task {
        self.plan(plan).send().await.expect("the plan is accepted")
    }

    /// An execute call with what it says by default.
    pub fn call(&self, key: TaskKey, partitions: Range<usize>) -> ExecuteCall<'_> {
        ExecuteCall {
            rig: self,
            key,
            partitions,
            budget_bytes: BUDGET,
            head: ProducerHead::None,
            pool: Arc::new(UnboundedMemoryPool::default()),
        }
    }

    /// Asks for partitions of a task.
    pub fn execute<'a>(
        &'a self,
        task: &Task,
        partitions: Range<usize>,
    ) -> impl Future<Output = Execution> + use<'a> {
        self.call(task.key, partitions).send()
    }

    /// What the client's connections did.
    pub fn peer(&self) -> PeerStats {
        let stats = self.transports.stats().into_iter();
        let mut peers = stats.filter(|peer| peer.url == self.url);
        peers.next().expect("the client has used the worker")
    }

    /// Waits until nothing is left of a plan's streams, nor of any call on either side as far as they are counted.
    pub async fn released(&self, plan: &ProbeExec) {
        let limit = Duration::from_secs(5);
        eventually("the plan's streams are dropped", limit, || {
            plan.is_released()
        })
        .await;
        self.idle().await;
    }

    /// Waits until the worker has noticed that its tasks' coordinators are gone; where it doesn't count them, for as long as that may take.
    pub async fn noticed_loss(&self) {
        let open = || self.worker.as_ref()?.counters();
        match open() {
            Some(_) => {
                let none = || open().is_some_and(|open| open.tasks == 0);
                eventually("the worker notices the loss", SOON, none).await;
            }
            None => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }

    /// Waits until no call is open on either side, as far as they are counted.
    pub async fn idle(&self) {
        let limit = Duration::from_secs(5);
        let Some(worker) = &self.worker else { return };
        if worker.counters().is_some() {
            eventually("the worker's calls end", limit, || {
                let counters = worker.counters().expect("as before");
                (counters.calls, counters.tasks) == (0, 0)
            })
            .await;
        }
        eventually("the client's streams end", limit, || {
            let peers = self.transports.stats();
            peers.iter().all(|peer| peer.streams_active == 0)
        })
        .await;
    }

    /// A wired session's context.
    pub fn context(&self, budget_bytes: usize, pool: &Arc<dyn MemoryPool>) -> Arc<TaskContext> {
        context(&self.transports, budget_bytes, pool)
    }
}

fn context(
    transports: &Transports,
    budget_bytes: usize,
    pool: &Arc<dyn MemoryPool>,
) -> Arc<TaskContext> {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool));
    let config = SessionConfig::new()
        .with_distributed_transports(transports)
        .with_distributed_user_codec(ProbeCodec)
        .with_distributed_worker_connection_buffer_budget_bytes(budget_bytes)
        .expect("a budget");
    let runtime = runtime.build_arc().expect("a runtime environment");
    SessionContext::new_with_config_rt(config, runtime).task_ctx()
}

/// The sum of a metric by name, which must be there.
pub(crate) fn sum(metrics: &ExecutionPlanMetricsSet, name: &str) -> usize {
    let metrics = metrics.clone_inner();
    let named: Vec<_> = metrics
        .iter()
        .filter(|m| m.value().name() == name)
        .collect();
    assert!(!named.is_empty(), "{name} is not reported");
    named.iter().map(|metric| metric.value().as_usize()).sum()
}

/// A worker whose sessions know the probe and keep the headers they were made with.
async fn serve(
    harness: &Arc<dyn ChannelHarness>,
    headers: &Arc<Mutex<Vec<HeaderMap>>>,
    at: Option<&Url>,
    io: Option<&IoRuntime>,
) -> Box<dyn Served> {
    let start = Instant::now();
    loop {
        let headers = Arc::clone(headers);
        let session = move |ctx: WorkerQueryContext| {
            headers.lock().expect("as above").push(ctx.headers);
            let builder = ctx.builder.with_distributed_user_codec(ProbeCodec);
            async move { Ok(builder.build()) }
        };
        let worker = harness.transports().worker(session);
        let service = Service::Worker(worker.with_version(WORKER_VERSION));
        match harness.serve(service, at, io).await {
            Ok(worker) => return worker,
            // The system may not have let go of a port yet.
            Err(_) if at.is_some() && start.elapsed() < SOON => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(err) => panic!("the worker does not start: {err}"),
        }
    }
}

/// A task of a query of its own.
pub fn new_key() -> TaskKey {
    TaskKey {
        query_id: Uuid::new_v4(),
        stage_id: 1,
        task_number: 0,
    }
}

/// The header by which a coordinator's session sets the engine's compression.
pub fn compression(value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let option = "x-datafusion-distributed-config-distributed.compression";
    headers.insert(option, value.parse().expect("a header value"));
    headers
}

/// A coordinator channel to be opened.
pub struct PlanCall<'a> {
    rig: &'a Rig,
    transports: Transports,
    plan: Arc<dyn ExecutionPlan>,
    key: TaskKey,
    headers: HeaderMap,
    feeds: Vec<WorkUnitFeedDeclaration>,
    to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
    metrics: ExecutionPlanMetricsSet,
}

impl PlanCall<'_> {
    /// Sends it from a process of its own, so to speak.
    pub fn by_another_client(mut self) -> Self {
        self.transports = self.rig.harness.transports();
        self
    }

    /// A task of the caller's choice.
    pub fn key(mut self, key: TaskKey) -> Self {
        self.key = key;
        self
    }

    /// Headers instead of those that turn compression off.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Declares a work-unit feed.
    pub fn feed(mut self, id: Uuid, partitions: usize) -> Self {
        self.feeds.push(WorkUnitFeedDeclaration { id, partitions });
        self
    }

    /// What the coordinator says; it says nothing more until the task is ended.
    pub fn saying(
        mut self,
        messages: impl futures::Stream<Item = CoordinatorToWorkerMsg> + Send + 'static,
    ) -> Self {
        self.to_worker = messages.boxed();
        self
    }

    /// Where the call reports to.
    pub fn metrics(mut self, metrics: &ExecutionPlanMetricsSet) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Opens the channel.
    ///
    /// # Errors
    /// What the worker says about the plan.
    pub async fn send(self) -> Result<Task> {
        // Until the worker has decoded it.
        let _keep = Arc::clone(&self.plan);
        let request = SetPlanRequest {
            task_key: self.key,
            task_count: 1,
            plan: MaybeEncoded::Decoded(self.plan),
            work_unit_feed_declarations: self.feeds,
            target_worker_url: self.rig.url.clone(),
            query_start_time_ns: 0,
        };
        let (end, ended) = oneshot::channel::<()>();
        let until_end = stream::once(ended).filter_map(|_| async { None });
        let to_worker = self.to_worker.chain(until_end).boxed();
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let ctx = context(&self.transports, BUDGET, &pool);
        let resolver = TransportResolver::new(self.transports);
        let mut channel = resolver.get_worker_client_for_url(&self.rig.url).await?;
        let from_worker = channel
            .coordinator_channel(self.headers, request, to_worker, self.metrics, &ctx)
            .await?;
        let progress = self.rig.progress.clone();
        Ok(Task {
            key: self.key,
            from_worker: from_worker.inspect(move |_| progress.made()).boxed(),
            end: Some(end),
        })
    }
}

/// A task whose plan a worker holds. Dropping it cuts its coordinator channel.
pub struct Task {
    /// Its key.
    pub key: TaskKey,
    /// What the worker says to the coordinator.
    pub from_worker: BoxStream<'static, Result<WorkerToCoordinatorMsg>>,
    end: Option<oneshot::Sender<()>>,
}

impl Task {
    /// The query is over.
    pub fn end(&mut self) {
        self.end.take();
    }

    /// Ends the query; gives what the worker still says.
    pub async fn finish(mut self) -> Vec<WorkerToCoordinatorMsg> {
        self.end();
        let mut said = vec![];
        while let Some(message) = self.from_worker.next().await {
            said.push(message.expect("a clean end"));
        }
        said
    }

    /// Ends the query; gives its metrics, which come exactly once.
    pub async fn metrics(self) -> TaskMetrics {
        let said = self.finish().await.into_iter();
        let metrics = said.filter_map(|message| match message {
            WorkerToCoordinatorMsg::TaskMetrics(metrics) => Some(metrics),
            _ => None,
        });
        let mut metrics: Vec<_> = metrics.collect();
        assert_eq!(metrics.len(), 1, "task metrics must come once");
        metrics.remove(0)
    }
}

/// An execute call to be made.
pub struct ExecuteCall<'a> {
    rig: &'a Rig,
    key: TaskKey,
    partitions: Range<usize>,
    budget_bytes: usize,
    head: ProducerHead,
    pool: Arc<dyn MemoryPool>,
}

impl ExecuteCall<'_> {
    /// The session's buffer budget.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget_bytes = bytes;
        self
    }

    /// The head of the task.
    pub fn head(mut self, head: ProducerHead) -> Self {
        self.head = head;
        self
    }

    /// The session's memory.
    pub fn pool(mut self, pool: Arc<dyn MemoryPool>) -> Self {
        self.pool = pool;
        self
    }

    /// Makes the call.
    ///
    /// # Panics
    /// Where the call itself fails.
    pub async fn send(self) -> Execution {
        self.try_send().await.expect("the call")
    }

    /// Makes the call.
    ///
    /// # Errors
    /// What the channel says at once; one that connects lazily says nothing.
    pub async fn try_send(self) -> Result<Execution> {
        let ctx = self.rig.context(self.budget_bytes, &self.pool);
        let request = ExecuteTaskRequest {
            task_key: self.key,
            target_partition_start: self.partitions.start,
            target_partition_end: self.partitions.end,
            producer_head: self.head,
        };
        let metrics = ExecutionPlanMetricsSet::new();
        // Dropped at the end of this function: streams must not need it.
        let mut channel = self.rig.channel().await;
        let streams = channel
            .execute_task(HeaderMap::new(), request, metrics.clone(), &ctx)
            .await?;
        let counted = |stream: BoxStream<'static, Result<RecordBatch>>| {
            let progress = self.rig.progress.clone();
            stream.inspect(move |_| progress.made()).boxed()
        };
        Ok(Execution {
            streams: streams.into_iter().map(counted).collect(),
            metrics,
            pool: self.pool,
        })
    }
}

/// The streams of a call, and what the session sees of them.
pub struct Execution {
    /// One per partition, in order.
    pub streams: Vec<BoxStream<'static, Result<RecordBatch>>>,
    /// The boundary's metrics.
    pub metrics: ExecutionPlanMetricsSet,
    /// The session's memory pool.
    pub pool: Arc<dyn MemoryPool>,
}

impl Execution {
    /// Takes a partition's stream out.
    pub fn take(&mut self, index: usize) -> BoxStream<'static, Result<RecordBatch>> {
        std::mem::replace(&mut self.streams[index], stream::empty().boxed())
    }

    /// The sum of a metric of the boundary.
    pub fn metric(&self, name: &str) -> usize {
        sum(&self.metrics, name)
    }

    /// Reads all partitions at once to their ends.
    pub async fn read_all(self) -> Result<Vec<Vec<RecordBatch>>> {
        use futures::TryStreamExt;
        let parts = self.streams.into_iter().map(|s| s.try_collect::<Vec<_>>());
        futures::future::try_join_all(parts).await
    }
}
