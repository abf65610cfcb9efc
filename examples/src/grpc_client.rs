//! The engine's own gRPC client, with errors that name the worker.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    arrow::array::RecordBatch,
    common::{DataFusionError, Result, exec_datafusion_err},
    execution::TaskContext,
    physical_plan::metrics::ExecutionPlanMetricsSet,
};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
    grpc::DefaultChannelResolver,
};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::HeaderMap;
use url::Url;

use crate::workers::{display_url, name_worker};

/// gRPC channels to workers, kept per URL.
#[derive(Default)]
pub(crate) struct GrpcChannels(DefaultChannelResolver);

#[async_trait]
impl ChannelResolver for GrpcChannels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let channel = self.0.get_worker_client_for_url(url).await;
        Ok(Box::new(GrpcChannel {
            channel: channel.map_err(|error| unreachable(url, &error))?,
            url: url.clone(),
        }))
    }
}

/// What the client says about a failed connect is the inside of its error types, the worker aside.
fn unreachable(url: &Url, error: &DataFusionError) -> DataFusionError {
    let text = error.to_string();
    let of_system = text.split_once("message: \"").map(|(_, rest)| rest);
    let cause = of_system.and_then(|rest| rest.split('"').next());
    let cause = cause.unwrap_or(&text);
    exec_datafusion_err!(
        "cannot reach the worker at {} over gRPC: {cause}; is it running, and does it serve grpc \
         (see worker --transports)?",
        display_url(url)
    )
}

struct GrpcChannel {
    channel: Box<dyn WorkerChannel>,
    url: Url,
}

#[async_trait]
impl WorkerChannel for GrpcChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        plan: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let call = self
            .channel
            .coordinator_channel(headers, plan, to_worker, metrics, task_ctx);
        let messages = call.await.map_err(|error| name_worker(&self.url, error))?;
        Ok(named(self.url.clone(), messages))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let call = self
            .channel
            .execute_task(headers, request, metrics, task_ctx);
        let partitions = call.await.map_err(|error| name_worker(&self.url, error))?;
        let name = |partition| named(self.url.clone(), partition);
        Ok(partitions.into_iter().map(name).collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let call = self.channel.get_worker_info(request).await;
        call.map_err(|error| name_worker(&self.url, error))
    }
}

fn named<T: 'static>(
    url: Url,
    stream: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    stream
        .map_err(move |error| name_worker(&url, error))
        .boxed()
}
