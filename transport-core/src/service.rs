//! The upper seam: what a worker does with calls, whatever carries them.
//!
//! [`WorkerService`] mirrors `datafusion_distributed::WorkerChannel` on the worker's side. [`WiredWorker`](crate::WiredWorker)
//! implements it for the engine's own worker; an engine with a worker of its own implements it directly and keeps its
//! own plan format (`SetPlanRequest::plan` arrives as the bytes the coordinator sent).

use crate::wire::batch::CompressionPolicy;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoResponse, SetPlanRequest,
    WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use http::HeaderMap;

/// What a worker produces for an execute-task call.
pub struct TaskOutput {
    /// One stream per requested partition, in order. Dropping one releases its partition.
    pub partitions: Vec<SendableRecordBatchStream>,
    /// When and how their batches are compressed on the wire.
    pub compression: CompressionPolicy,
}

/// A worker's answers to calls. Methods run on the query runtime, except [`worker_info`](Self::worker_info).
#[async_trait]
pub trait WorkerService: Send + Sync + 'static {
    /// Sets a task's plan. Resolves once the plan is accepted or refused, without waiting for `from_coordinator`.
    /// `from_coordinator` ends cleanly when the query is over and yields one error when the link to the coordinator is
    /// lost. The returned stream ends after the task's metrics.
    ///
    /// # Errors
    /// A plan that can't be decoded, or a second plan for a task.
    async fn coordinator_channel(
        &self,
        headers: HeaderMap,
        plan: SetPlanRequest,
        from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>>;

    /// Instantiates the streams of a partition range. Dropping the future, or a stream, cancels that work.
    ///
    /// # Errors
    /// No such task or partition, or a plan that fails to start.
    async fn execute_task(
        &self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
    ) -> Result<TaskOutput>;

    /// Who the worker is. Runs on the I/O runtime, so that it answers while queries block every thread: must not compute.
    ///
    /// # Errors
    /// Whatever the worker reports.
    async fn worker_info(&self) -> Result<GetWorkerInfoResponse>;
}
