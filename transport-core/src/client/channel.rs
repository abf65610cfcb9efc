//! [`PooledChannel`]: the engine's trait over a pool. Thin on purpose: the trait still changes upstream.

use crate::client::coordinator::open_coordinator_channel;
use crate::client::execute::ExecuteCall;
use crate::client::metrics::{BoundaryMetrics, plan_sent};
use crate::client::pool::Pool;
use crate::config::TransportOptions;
use crate::connection::StreamClass;
use crate::error::{ErrorKind, TransportError};
use crate::framed::{FrameReader, FrameWriter};
use crate::server::call::PANICKED;
use crate::wire::call::{TaskCalls, encode_coordinator_call, encode_worker_info_call};
use crate::wire::error::{ErrorMessage, decode_error};
use crate::wire::frame::{Frame, FrameKind};
use crate::wire::worker_info::decode_worker_info;
use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedConfig, ExecuteTaskRequest,
    GetWorkerInfoRequest, GetWorkerInfoResponse, SetPlanRequest, WorkerChannel,
    WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderMap;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

use super::credit::CallMemory;

/// Channels of one transport kind.
#[derive(Debug)]
pub(crate) struct PooledResolver {
    pub(crate) pool: Arc<Pool>,
}

#[async_trait]
impl ChannelResolver for PooledResolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(PooledChannel {
            pool: Arc::clone(&self.pool),
            url: url.clone(),
        }))
    }
}

/// A channel to one worker. Connects at the first use; streams outlive it.
struct PooledChannel {
    pool: Arc<Pool>,
    url: Url,
}

#[async_trait]
impl WorkerChannel for PooledChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let limit = TransportOptions::from_session(task_ctx.session_config()).connect_timeout()?;
        let query = self.pool.queries.query(set_plan_request.task_key.query_id);
        let (call, plan_bytes) = encode_coordinator_call(&headers, set_plan_request, task_ctx)?;
        let (stream, lease) = self
            .pool
            .open(&self.url, StreamClass::Control, limit)
            .await?;
        let from_worker = open_coordinator_channel(
            &self.pool, query, stream, lease, &self.url, call, c2w_stream,
        )
        .await?;
        plan_sent(&metrics, plan_bytes);
        Ok(from_worker)
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let options = TransportOptions::from_session(task_ctx.session_config());
        let partitions = request.target_partition_start..request.target_partition_end;
        let query = self.pool.queries.query(request.task_key.query_id);
        let calls = TaskCalls::try_new(&headers, request, task_ctx)?;
        let metrics = Arc::new(BoundaryMetrics::new(&metrics, &options.compression));
        let reservation = MemoryConsumer::new("WorkerConnection").register(task_ctx.memory_pool());
        let peak = metrics.max_mem_used.clone();
        let memory = match options.partition_buffer_bytes {
            0 => {
                let config = DistributedConfig::from_session_config(task_ctx.session_config())?;
                let budget = config.worker_connection_buffer_budget_bytes;
                CallMemory::new(reservation, peak, budget, partitions.len())
            }
            share => CallMemory::with_share(reservation, peak, share),
        };
        let call = ExecuteCall {
            pool: Arc::clone(&self.pool),
            url: self.url.clone(),
            limit: options.connect_timeout()?,
            calls,
            partitions,
            memory,
        };
        let streams = call.into_streams(query, metrics);
        Ok(streams.into_iter().map(StreamExt::boxed).collect())
    }

    async fn get_worker_info(
        &mut self,
        _request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let limit = TransportOptions::default().connect_timeout()?;
        let info = tokio::time::timeout(limit, worker_info(&self.pool, &self.url, limit)).await;
        info.unwrap_or_else(|_| {
            let detail = format!("no answer within {limit:?}");
            let url = self.url.as_str();
            Err(TransportError::new(ErrorKind::Timeout, "worker info from", url, detail).into())
        })
    }
}

async fn worker_info(
    pool: &Arc<Pool>,
    url: &Url,
    limit: Duration,
) -> Result<GetWorkerInfoResponse> {
    let (stream, _lease) = pool.open(url, StreamClass::Control, limit).await?;
    let mut writer = FrameWriter::new(stream.send);
    let mut reader = FrameReader::new(stream.recv, "worker info from", url.to_string());
    // A worker that refused may have stopped reading: its answer tells more than the failed write.
    let _ = writer
        .send(FrameKind::Call, 0, encode_worker_info_call())
        .await;
    let frame = reader.next().await?.ok_or_else(|| reader.ended_early())?;
    // C-9: only now, so that the worker knows that its answer arrived.
    writer.finish();
    match frame.header.kind {
        FrameKind::Reply => {
            let version = decode_worker_info(&frame.payload);
            let version = version.map_err(|err| reader.violation(&err))?;
            Ok(GetWorkerInfoResponse { version })
        }
        FrameKind::Error => Err(remote_error(&frame, &mut reader)),
        _ => Err(reader.unexpected(&frame.header).into()),
    }
}

/// The error that an error frame carries.
pub(super) fn remote_error(frame: &Frame, reader: &mut FrameReader) -> DataFusionError {
    match ErrorMessage::decode(frame.payload.as_slice()) {
        Ok(message) => match decode_error(message) {
            DataFusionError::Execution(text) if text.starts_with(PANICKED) => {
                DataFusionError::Execution(format!("{}: {text}", reader.peer()))
            }
            err => err,
        },
        Err(err) => reader.violation(&err.into()).into(),
    }
}
