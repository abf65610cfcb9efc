//! An engine of a third party: its own worker service and its own plan format, over this project's client, server and
//! transports. `third-party-engine.md` beside this package's manifest explains it.
//!
//! A plan is SQL that every worker runs on its own rows ([`SqlPlan`]). The client gathers what they found and runs SQL on
//! that. Nothing here is `datafusion_distributed::Worker`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use datafusion::{
    arrow::record_batch::RecordBatch,
    common::{DataFusionError, Result, exec_err, plan_datafusion_err},
    physical_plan::{
        ExecutionPlan, Partitioning, metrics::ExecutionPlanMetricsSet, repartition::RepartitionExec,
    },
    prelude::SessionContext,
};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoResponse,
    MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey, WorkerToCoordinatorMsg,
};
use datafusion_transport_core::{
    TaskOutput, TransportExt, TransportResolver, Transports, WorkerService,
    wire::batch::{Compression, CompressionPolicy},
};
use futures::{
    StreamExt, TryFutureExt, TryStreamExt, future,
    stream::{self, BoxStream},
};
use http::HeaderMap;
use prost::Message;
use url::Url;
use uuid::Uuid;

/// What a client sends to every worker: the plan format of this engine.
#[derive(Clone, PartialEq, Message)]
pub struct SqlPlan {
    /// Runs on the worker's own tables.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// Into how many partitions, and so streams, its rows are dealt out.
    #[prost(uint32, tag = "2")]
    pub partitions: u32,
}

/// A worker of this engine.
pub struct SqlWorker {
    session: SessionContext,
    tasks: Arc<Tasks>,
}

/// Plans by task, until their clients have no more use for them.
#[derive(Default)]
struct Tasks(Mutex<HashMap<TaskKey, Arc<dyn ExecutionPlan>>>);

/// Removes its task when the coordinator channel is gone, however it went.
struct Task {
    tasks: Arc<Tasks>,
    key: TaskKey,
}

impl SqlWorker {
    /// Answers from the tables of `session`.
    pub fn new(session: SessionContext) -> Self {
        Self {
            session,
            tasks: Arc::default(),
        }
    }
}

#[async_trait]
impl WorkerService for SqlWorker {
    /// Resolves once the SQL is planned: what is wrong with it is this call's error.
    async fn coordinator_channel(
        &self,
        _headers: HeaderMap,
        request: SetPlanRequest,
        from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let MaybeEncoded::Encoded(bytes) = request.plan else {
            return exec_err!("a plan of this engine is bytes");
        };
        let plan = SqlPlan::decode(bytes.as_slice())
            .map_err(|err| plan_datafusion_err!("not a plan of this engine: {err}"))?;
        let rows = self
            .session
            .sql(&plan.sql)
            .await?
            .create_physical_plan()
            .await?;
        let dealt = Partitioning::RoundRobinBatch(plan.partitions.max(1) as usize);
        let dealt: Arc<dyn ExecutionPlan> = Arc::new(RepartitionExec::try_new(rows, dealt)?);
        let task = self.tasks.add(request.task_key, dealt)?;
        // This engine reports nothing, so the answer is empty, and ends when the query does.
        let until_over = from_coordinator
            .filter_map(move |said| {
                let _task = &task;
                future::ready(said.err().map(Err))
            })
            .boxed();
        Ok(until_over)
    }

    async fn execute_task(
        &self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
    ) -> Result<TaskOutput> {
        let plan = self.tasks.lock().get(&request.task_key).cloned();
        let Some(plan) = plan else {
            return exec_err!("no such task: its client sets the plan first");
        };
        let partitions = request.target_partition_start..request.target_partition_end;
        let execute = |partition| plan.execute(partition, self.session.task_ctx());
        Ok(TaskOutput {
            partitions: partitions.map(execute).collect::<Result<_>>()?,
            compression: CompressionPolicy::Always(Compression::Lz4),
        })
    }

    async fn worker_info(&self) -> Result<GetWorkerInfoResponse> {
        let version = concat!("sql-engine ", env!("CARGO_PKG_VERSION")).to_owned();
        Ok(GetWorkerInfoResponse { version })
    }
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskKey, Arc<dyn ExecutionPlan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, key: TaskKey, plan: Arc<dyn ExecutionPlan>) -> Result<Task> {
        if self.lock().contains_key(&key) {
            return exec_err!("the task has a plan already");
        }
        self.lock().insert(key, plan);
        Ok(Task {
            tasks: Arc::clone(self),
            key,
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.tasks.lock().remove(&self.key);
    }
}

/// The client of this engine.
pub struct SqlClient {
    transports: Transports,
    workers: Vec<Url>,
}

impl SqlClient {
    /// Asks `workers`, over the default kind of `transports`.
    pub fn new(transports: Transports, workers: Vec<Url>) -> Self {
        Self {
            transports,
            workers,
        }
    }

    /// What all workers find, in no order. Dropping the future ends the query on all of them.
    ///
    /// # Errors
    /// Of the first worker that fails; names it.
    pub async fn gather(&self, plan: &SqlPlan) -> Result<Vec<RecordBatch>> {
        let query_id = Uuid::new_v4();
        let ask = |(task_number, worker)| {
            let task_key = TaskKey {
                query_id,
                stage_id: 0,
                task_number,
            };
            let asked = self.ask(worker, task_key, plan);
            asked.map_err(move |err| err.context(format!("worker {worker}")))
        };
        let asked = self.workers.iter().enumerate().map(ask);
        Ok(future::try_join_all(asked).await?.concat())
    }

    async fn ask(
        &self,
        worker: &Url,
        task_key: TaskKey,
        plan: &SqlPlan,
    ) -> Result<Vec<RecordBatch>> {
        let config =
            datafusion::prelude::SessionConfig::new().with_distributed_transports(&self.transports);
        let ctx = SessionContext::new_with_config(config).task_ctx();
        let resolver = TransportResolver::new(self.transports.clone());
        let mut channel = resolver.get_worker_client_for_url(worker).await?;
        let request = SetPlanRequest {
            task_key,
            task_count: self.workers.len(),
            plan: MaybeEncoded::Encoded(plan.encode_to_vec()),
            work_unit_feed_declarations: vec![],
            target_worker_url: worker.clone(),
            query_start_time_ns: 0,
        };
        let (metrics, headers) = (ExecutionPlanMetricsSet::new(), HeaderMap::new);
        // Nothing more to say, and not over: dropped with this function, it ends the task.
        let to_worker = stream::pending().boxed();
        let _from_worker = channel
            .coordinator_channel(headers(), request, to_worker, metrics.clone(), &ctx)
            .await?;
        let request = ExecuteTaskRequest {
            task_key,
            target_partition_start: 0,
            target_partition_end: plan.partitions.max(1) as usize,
            producer_head: ProducerHead::None,
        };
        let partitions = channel
            .execute_task(headers(), request, metrics, &ctx)
            .await?;
        stream::select_all(partitions).try_collect().await
    }
}

/// Runs `sql` on what was gathered, as table `gathered`.
///
/// # Errors
/// Of the SQL; or where nothing was gathered, of which no table can be made.
pub async fn merge(gathered: Vec<RecordBatch>, sql: &str) -> Result<Vec<RecordBatch>> {
    let session = SessionContext::new();
    let Some(schema) = gathered.first().map(RecordBatch::schema) else {
        return Err(DataFusionError::Execution(
            "the workers found nothing".to_owned(),
        ));
    };
    let table = datafusion::datasource::MemTable::try_new(schema, vec![gathered])?;
    session.register_table("gathered", Arc::new(table))?;
    session.sql(sql).await?.collect().await
}
