#![allow(clippy::unwrap_used, clippy::panic)]

mod limits;
mod shaped;

use super::*;
use crate::memory::MemoryNetwork;
use crate::service::TaskOutput;
use crate::transports::{TransportExt, Transports};
use crate::wire::batch::CompressionPolicy;
use async_trait::async_trait;
use datafusion::arrow::array::{DictionaryArray, Int64Array};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result, not_impl_err};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoResponse,
    ProducerHead, SetPlanRequest, TaskKey, WorkerToCoordinatorMsg,
};
use futures::stream::{self, BoxStream, TryStreamExt};
use http::HeaderMap;
use shaped::ShapedListener;
use url::Url;
use uuid::Uuid;

/// Yields the batches, compressed as the link asks for.
struct Batches(Vec<RecordBatch>);

#[async_trait]
impl WorkerService for Batches {
    async fn coordinator_channel(
        &self,
        _headers: HeaderMap,
        _plan: SetPlanRequest,
        _from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        not_impl_err!("the test sets no plan")
    }

    async fn execute_task(
        &self,
        _headers: HeaderMap,
        _request: ExecuteTaskRequest,
    ) -> Result<TaskOutput> {
        let schema = self.0.first().unwrap().schema();
        let batches = stream::iter(self.0.clone().into_iter().map(Ok));
        Ok(TaskOutput {
            partitions: vec![Box::pin(RecordBatchStreamAdapter::new(schema, batches))],
            compression: CompressionPolicy::Auto,
        })
    }

    async fn worker_info(&self) -> Result<GetWorkerInfoResponse> {
        not_impl_err!("the test asks for none")
    }
}

/// Half a megabyte each, which LZ4 makes small; one dictionary for all.
fn batches() -> Vec<RecordBatch> {
    let words = ["a", "b", "c"].into_iter().cycle().take(50_000);
    let words = DictionaryArray::<Int32Type>::from_iter(words);
    let words = Arc::new(words);
    let batch = |turn: i64| {
        let numbers = Int64Array::from_iter_values((0..50_000).map(|row| turn + row % 7));
        RecordBatch::try_from_iter([
            ("numbers", Arc::new(numbers) as _),
            ("words", Arc::clone(&words) as _),
        ])
        .unwrap()
    };
    (0..20).map(batch).collect()
}

/// Carries the batches over a link of this rate, `None` for one that takes whatever it is given. Returns how many arrived compressed and
/// how many not.
async fn carry(bytes_per_second: Option<u64>) -> (usize, usize) {
    let url: Url = "http://worker:1".parse().unwrap();
    let io = IoRuntime::from_handle(Handle::current());
    let network = MemoryNetwork::new();
    let listener = ShapedListener::new(network.listen(&url), bytes_per_second);
    let server = Server::builder(Batches(batches())).listener(Box::new(listener));
    let _server = server.io_runtime(io.clone()).start().unwrap();
    let transports = Transports::builder().connector("memory", Arc::new(network));
    let transports = transports.io_runtime(io).build().unwrap();
    let mut config = SessionConfig::new().with_distributed_transports(&transports);
    let options = config.options_mut();
    options.set("transport.compression", "auto").unwrap();
    let ctx = SessionContext::new_with_config(config).task_ctx();
    let resolver = transports.resolver("memory").unwrap();
    let mut channel = resolver.get_worker_client_for_url(&url).await.unwrap();
    let request = ExecuteTaskRequest {
        task_key: TaskKey {
            query_id: Uuid::from_u128(1),
            stage_id: 1,
            task_number: 0,
        },
        target_partition_start: 0,
        target_partition_end: 1,
        producer_head: ProducerHead::None,
    };
    let metrics = ExecutionPlanMetricsSet::new();
    let call = channel.execute_task(HeaderMap::new(), request, metrics.clone(), &ctx);
    let partition = call.await.unwrap().remove(0);
    let limit = Duration::from_secs(60);
    let read = tokio::time::timeout(limit, partition.try_collect::<Vec<_>>());
    assert!(
        read.await.unwrap().unwrap() == batches(),
        "the batches changed on the way"
    );
    let metrics = metrics.clone_inner();
    let count = |name| metrics.sum_by_name(name).unwrap().as_usize();
    (count("batches_compressed"), count("batches_uncompressed"))
}

#[tokio::test]
async fn a_slow_link_gets_compressed_batches_as_soon_as_it_shows() {
    let (compressed, uncompressed) = carry(Some(4_000_000)).await;
    assert_eq!(compressed + uncompressed, 20);
    assert!(uncompressed >= 1, "nothing was known of the link yet");
    assert!(
        compressed >= 10,
        "{compressed} compressed, {uncompressed} not"
    );
}

#[tokio::test]
async fn a_link_that_takes_all_gets_them_as_they_are() {
    assert_eq!(carry(None).await, (0, 20));
}
