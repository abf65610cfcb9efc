//! [`AutoResolver`]: the engine's traits over [`Auto`].

use crate::auto::Auto;
use crate::auto::call::execute_task;
use crate::auto::choices::Route;
use crate::config::TransportOptions;
use crate::error::{Delivery, ErrorKind, TransportError};
use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::HeaderMap;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Channels of the kind `auto`.
#[derive(Debug)]
pub(crate) struct AutoResolver {
    pub(crate) auto: Arc<Auto>,
}

#[async_trait]
impl ChannelResolver for AutoResolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(AutoChannel {
            auto: Arc::clone(&self.auto),
            url: url.clone(),
        }))
    }
}

/// A channel to one worker, whose kind each call takes from the choice that holds then.
struct AutoChannel {
    auto: Arc<Auto>,
    url: Url,
}

impl Auto {
    /// The channel of a route.
    ///
    /// # Errors
    /// What a foreign resolver that connects here reports, or `Timeout`; nothing was sent.
    pub(super) async fn channel(
        &self,
        url: &Url,
        route: Route,
        limit: Duration,
    ) -> Result<Box<dyn WorkerChannel>> {
        let Some(candidate) = self.candidates.get(route.candidate) else {
            return internal_err!("no such candidate: {route:?}");
        };
        let channel = candidate.resolver.get_worker_client_for_url(url);
        let channel = tokio::time::timeout(limit, channel).await;
        let channel = channel.unwrap_or_else(|_| {
            let detail = format!("no connection within {limit:?} (transport.connect_timeout_ms)");
            let err = TransportError::new(ErrorKind::Timeout, "connect", url.as_str(), detail);
            Err(err.with_delivery(Delivery::NotDelivered).into())
        });
        if channel.is_err() {
            self.lock().drop_choice(url, route);
        }
        channel
    }
}

#[async_trait]
impl WorkerChannel for AutoChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let limit = TransportOptions::from_session(task_ctx.session_config()).connect_timeout()?;
        let route = self.auto.route(&self.url, limit).await?;
        let mut channel = self.auto.channel(&self.url, route, limit).await?;
        let call =
            channel.coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx);
        let (auto, url) = (Arc::clone(&self.auto), self.url.clone());
        let failed = move |err: &_| auto.call_failed(&url, route, err);
        let from_worker = call.await.inspect_err(&failed)?;
        Ok(from_worker.inspect_err(failed).boxed())
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let ctx = Arc::clone(task_ctx);
        let streams = execute_task(&self.auto, &self.url, headers, request, metrics, ctx);
        Ok(streams.into_iter().map(StreamExt::boxed).collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let limit = TransportOptions::default().connect_timeout()?;
        let route = self.auto.route(&self.url, limit).await?;
        let mut channel = self.auto.channel(&self.url, route, limit).await?;
        let info = channel.get_worker_info(request).await;
        info.inspect_err(|err| self.auto.call_failed(&self.url, route, err))
    }
}
