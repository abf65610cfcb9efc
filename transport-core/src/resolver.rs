//! [`TransportResolver`]: picks the transport when a call is made, not when the channel is asked for.
//!
//! `get_worker_client_for_url` receives only the URL. The channel's methods receive the session, and so decide.

use crate::config::{DEFAULT_KIND, TransportOptions};
use crate::transports::Transports;
use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use http::HeaderMap;
use std::sync::Arc;
use url::Url;

/// The engine's resolver over [`Transports`].
#[derive(Clone, Debug)]
pub struct TransportResolver {
    transports: Transports,
}

impl TransportResolver {
    /// A resolver over a registry. [`Transports::wire`] registers it in a session.
    pub fn new(transports: Transports) -> Self {
        Self { transports }
    }
}

#[async_trait]
impl ChannelResolver for TransportResolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(SwitchingChannel {
            transports: self.transports.clone(),
            url: url.clone(),
        }))
    }
}

/// A channel whose transport each call's session chooses.
struct SwitchingChannel {
    transports: Transports,
    url: Url,
}

impl SwitchingChannel {
    async fn channel(&self, kind: &str) -> Result<Box<dyn WorkerChannel>> {
        let resolver = self.transports.resolver(kind)?;
        resolver.get_worker_client_for_url(&self.url).await
    }

    async fn channel_for(&self, ctx: &TaskContext) -> Result<Box<dyn WorkerChannel>> {
        let options = TransportOptions::from_session(ctx.session_config());
        self.channel(&options.kind).await
    }
}

#[async_trait]
impl WorkerChannel for SwitchingChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let queries = self.transports.queries();
        let query = queries.query(set_plan_request.task_key.query_id);
        let opened = async {
            let mut channel = self.channel_for(task_ctx).await?;
            channel
                .coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx)
                .await
        };
        // The engine looks at it only after the result.
        opened.await.map_err(|err| queries.plan_failed(query, err))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let mut channel = self.channel_for(task_ctx).await?;
        channel
            .execute_task(headers, request, metrics, task_ctx)
            .await
    }

    /// Has no session to ask: uses the process's default kind.
    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let mut channel = self.channel(DEFAULT_KIND).await?;
        channel.get_worker_info(request).await
    }
}
