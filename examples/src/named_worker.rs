//! A worker that signs its errors.

use async_trait::async_trait;
use datafusion::{
    common::Result, execution::SendableRecordBatchStream,
    physical_plan::stream::RecordBatchStreamAdapter,
};
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoResponse, SetPlanRequest,
    WorkerToCoordinatorMsg,
};
use datafusion_transport_core::{TaskOutput, WiredWorker, WorkerService};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::HeaderMap;
use url::Url;

use crate::workers::name_worker;

/// Puts the worker's URL into the errors of its plans, which know nothing of where they run.
pub(crate) struct NamedWorker {
    worker: WiredWorker,
    url: Url,
}

impl NamedWorker {
    pub(crate) fn new(worker: WiredWorker, url: Url) -> Self {
        Self { worker, url }
    }

    fn name(&self, partition: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let (schema, url) = (partition.schema(), self.url.clone());
        let named = partition.map_err(move |error| name_worker(&url, error));
        Box::pin(RecordBatchStreamAdapter::new(schema, named))
    }
}

#[async_trait]
impl WorkerService for NamedWorker {
    async fn coordinator_channel(
        &self,
        headers: HeaderMap,
        plan: SetPlanRequest,
        from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let call = self
            .worker
            .coordinator_channel(headers, plan, from_coordinator);
        let messages = call.await.map_err(|error| name_worker(&self.url, error))?;
        let url = self.url.clone();
        Ok(messages
            .map_err(move |error| name_worker(&url, error))
            .boxed())
    }

    async fn execute_task(
        &self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
    ) -> Result<TaskOutput> {
        let call = self.worker.execute_task(headers, request).await;
        let output = call.map_err(|error| name_worker(&self.url, error))?;
        let partitions = output.partitions.into_iter();
        Ok(TaskOutput {
            partitions: partitions.map(|partition| self.name(partition)).collect(),
            compression: output.compression,
        })
    }

    async fn worker_info(&self) -> Result<GetWorkerInfoResponse> {
        self.worker.worker_info().await
    }
}
