//! A worker whose partitions yield one batch, wait, and yield another.

use crate::service::{TaskOutput, WorkerService};
use crate::wire::batch::{Compression, CompressionPolicy};
use async_trait::async_trait;
use datafusion::arrow::array::record_batch;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoResponse, SetPlanRequest,
    WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

pub(super) type Batches = BoxStream<'static, Result<RecordBatch>>;
pub(super) type FromWorker = BoxStream<'static, Result<WorkerToCoordinatorMsg>>;

#[derive(Clone, Debug, Default)]
pub(super) struct StubWorker {
    pub(super) infos: Arc<AtomicUsize>,
    plans: Arc<AtomicUsize>,
    holds_plans: Arc<AtomicBool>,
    executed: Arc<Mutex<BTreeSet<usize>>>,
    going_on: CancellationToken,
}

impl StubWorker {
    /// Answers no plan.
    pub(super) fn hold_plans(&self) {
        self.holds_plans.store(true, Ordering::Relaxed);
    }

    pub(super) fn plans(&self) -> usize {
        self.plans.load(Ordering::Relaxed)
    }

    /// Lets partitions yield their second batch.
    pub(super) fn go_on(&self) {
        self.going_on.cancel();
    }

    pub(super) fn executed(&self) -> Vec<usize> {
        self.executed.lock().unwrap().iter().copied().collect()
    }
}

#[async_trait]
impl WorkerService for StubWorker {
    async fn coordinator_channel(
        &self,
        _headers: HeaderMap,
        _plan: SetPlanRequest,
        mut from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<FromWorker> {
        self.plans.fetch_add(1, Ordering::Relaxed);
        if self.holds_plans.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let until_the_end = async move {
            while from_coordinator.next().await.is_some() {}
            None
        };
        Ok(stream::once(until_the_end)
            .filter_map(std::future::ready)
            .boxed())
    }

    async fn execute_task(
        &self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
    ) -> Result<TaskOutput> {
        let partition = request.target_partition_start;
        self.executed.lock().unwrap().insert(partition);
        let batch = record_batch!(("a", Int32, [1, 2, 3]))?;
        let schema = batch.schema();
        let (first, second) = (batch.clone(), batch);
        let going_on = self.going_on.clone();
        let later = async move {
            going_on.cancelled().await;
            Ok(second)
        };
        let batches = stream::iter([Ok(first)]).chain(stream::once(later));
        Ok(TaskOutput {
            partitions: vec![Box::pin(RecordBatchStreamAdapter::new(schema, batches))],
            compression: CompressionPolicy::Always(Compression::None),
        })
    }

    async fn worker_info(&self) -> Result<GetWorkerInfoResponse> {
        self.infos.fetch_add(1, Ordering::Relaxed);
        let version = "stub".into();
        Ok(GetWorkerInfoResponse { version })
    }
}
