//! A good transport, and between it and the engine something that does one thing wrong.

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use datafusion_transport_core::{IoRuntime, TransportError, TransportResolver, Transports};
use datafusion_transport_tests::harness::memory::Memory;
use datafusion_transport_tests::{
    Capability, ChannelHarness, ConnectionHarness, Served, Service, Subject, compression,
};
use futures::StreamExt;
use futures::future::ready;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use url::Url;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing: shows that the rest of this file is not what is noticed.
    None,
    LosesTheLastBatch,
    EndsWithoutTerminalMessage,
    NeverReleasesADroppedPartition,
    MixesTwoPartitions,
    BlocksSiblings,
    SwallowsWorkerErrors,
    FailsSiblings,
    LeaksATask,
    DeliversMetricsLate,
    LosesMetrics,
    LosesLoadInfosEnd,
    Reorders,
    Duplicates,
    StartsUnasked,
    ReadsAheadWithoutBound,
    KeepsMemory,
    LosesMetadata,
    LosesRowCounts,
    LosesRepeatedHeaders,
    IgnoresCompression,
    ReportsNothing,
    SaysSomethingAfterAnError,
}

/// The in-memory network, spoiled.
pub struct Broken {
    good: Memory,
    defect: Defect,
}

impl Broken {
    pub fn new(defect: Defect) -> Self {
        Self {
            good: Memory::new(),
            defect,
        }
    }
}

const NAME: &str = "broken";

impl Subject for Broken {
    fn name(&self) -> &str {
        NAME
    }

    fn lacks(&self) -> Vec<(Capability, &'static str)> {
        vec![(Capability::Counters, "a foreign resolver counts nothing")]
    }
}

#[async_trait]
impl ChannelHarness for Broken {
    fn transports(&self) -> Transports {
        let connector = self.good.connector().unwrap();
        let good = Transports::builder().connector(NAME, connector);
        let resolver = BrokenResolver {
            good: TransportResolver::new(good.build().unwrap()),
            defect: self.defect,
        };
        let builder = Transports::builder().channel_resolver(NAME, Arc::new(resolver));
        builder.build().unwrap()
    }

    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> std::result::Result<Box<dyn Served>, TransportError> {
        ChannelHarness::serve(&self.good, service, at, io).await
    }
}

struct BrokenResolver {
    good: TransportResolver,
    defect: Defect,
}

#[async_trait]
impl ChannelResolver for BrokenResolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(BrokenChannel {
            good: self.good.get_worker_client_for_url(url).await?,
            defect: self.defect,
        }))
    }
}

struct BrokenChannel {
    good: Box<dyn WorkerChannel>,
    defect: Defect,
}

type Said = BoxStream<'static, Result<WorkerToCoordinatorMsg>>;
type Batches = BoxStream<'static, Result<RecordBatch>>;

#[async_trait]
impl WorkerChannel for BrokenChannel {
    async fn coordinator_channel(
        &mut self,
        mut headers: HeaderMap,
        plan: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        ctx: &Arc<TaskContext>,
    ) -> Result<Said> {
        match self.defect {
            Defect::LosesRepeatedHeaders => {
                let first = |name: &http::HeaderName| (name.clone(), headers[name].clone());
                headers = headers.keys().map(first).collect();
            }
            Defect::IgnoresCompression => headers.extend(compression("none")),
            _ => {}
        }
        let good = &mut self.good;
        let said = good
            .coordinator_channel(headers, plan, to_worker, metrics, ctx)
            .await?;
        Ok(spoil_channel(self.defect, said))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        ctx: &Arc<TaskContext>,
    ) -> Result<Vec<Batches>> {
        let metrics = match self.defect {
            Defect::ReportsNothing => ExecutionPlanMetricsSet::new(),
            _ => metrics,
        };
        if self.defect == Defect::KeepsMemory {
            let kept = MemoryConsumer::new("kept").register(ctx.memory_pool());
            kept.grow(1);
            std::mem::forget(kept);
        }
        let streams = self
            .good
            .execute_task(headers, request, metrics, ctx)
            .await?;
        Ok(spoil_call(self.defect, streams))
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        self.good.get_worker_info(request).await
    }
}

fn spoil_channel(defect: Defect, said: Said) -> Said {
    use WorkerToCoordinatorMsg::{LoadInfoEos, TaskMetrics};
    let without = |said: Said, unwanted: fn(&WorkerToCoordinatorMsg) -> bool| {
        said.filter(move |message| ready(!matches!(message, Ok(message) if unwanted(message))))
            .boxed()
    };
    match defect {
        Defect::LeaksATask => Leaked(Some(said)).boxed(),
        Defect::LosesMetrics => without(said, |message| matches!(message, TaskMetrics(_))),
        Defect::LosesLoadInfosEnd => without(said, |message| matches!(message, LoadInfoEos)),
        Defect::DeliversMetricsLate => said
            .then(async |message| {
                if let Ok(TaskMetrics(_)) = message {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
                message
            })
            .boxed(),
        _ => said,
    }
}

fn spoil_call(defect: Defect, mut streams: Vec<Batches>) -> Vec<Batches> {
    match defect {
        Defect::MixesTwoPartitions => {
            if streams.len() > 1 {
                streams.swap(0, 1);
            }
            streams
        }
        Defect::BlocksSiblings => interleaved(streams),
        Defect::StartsUnasked => read_ahead(streams, true),
        Defect::ReadsAheadWithoutBound => read_ahead(streams, false),
        Defect::FailsSiblings => failing_together(streams),
        _ => streams
            .into_iter()
            .map(|stream| spoil_stream(defect, stream))
            .collect(),
    }
}

fn spoil_stream(defect: Defect, stream: Batches) -> Batches {
    match defect {
        Defect::LosesTheLastBatch => stream::unfold((stream, None), async |(mut stream, held)| {
            let mut held = held;
            loop {
                match (stream.next().await?, held) {
                    (Ok(batch), None) => held = Some(batch),
                    (Ok(batch), Some(before)) => return Some((Ok(before), (stream, Some(batch)))),
                    (Err(err), _) => return Some((Err(err), (stream, None))),
                }
            }
        })
        .boxed(),
        Defect::EndsWithoutTerminalMessage => until_error(stream, |err| {
            matches!(err.find_root(), DataFusionError::External(_))
        }),
        Defect::SwallowsWorkerErrors => until_error(stream, |err| {
            !matches!(err.find_root(), DataFusionError::External(_))
        }),
        Defect::NeverReleasesADroppedPartition => Leaked(Some(stream)).boxed(),
        Defect::Reorders => stream
            .chunks(2)
            .flat_map(|pair| stream::iter(pair.into_iter().rev().collect::<Vec<_>>()))
            .boxed(),
        Defect::Duplicates => stream
            .flat_map(|batch| match batch {
                Ok(batch) => stream::iter(vec![Ok(batch.clone()), Ok(batch)]),
                Err(err) => stream::iter(vec![Err(err)]),
            })
            .boxed(),
        Defect::LosesMetadata => stream.map(|batch| Ok(without_metadata(&batch?))).boxed(),
        Defect::LosesRowCounts => stream.map(|batch| Ok(without_row_count(batch?))).boxed(),
        Defect::SaysSomethingAfterAnError => stream
            .flat_map(|batch| match batch {
                Ok(batch) => stream::iter(vec![Ok(batch)]),
                Err(err) => {
                    let more = RecordBatch::new_empty(Arc::new(Schema::empty()));
                    stream::iter(vec![Err(err), Ok(more)])
                }
            })
            .boxed(),
        _ => stream,
    }
}

/// Errors of one kind become ends.
fn until_error(stream: Batches, swallowed: fn(&DataFusionError) -> bool) -> Batches {
    stream
        .take_while(move |batch| ready(!matches!(batch, Err(err) if swallowed(err))))
        .boxed()
}

/// One task reads all partitions in turn, into queues of one batch each.
fn interleaved(streams: Vec<Batches>) -> Vec<Batches> {
    let (senders, receivers): (Vec<_>, Vec<_>) = streams
        .iter()
        .map(|_| tokio::sync::mpsc::channel(1))
        .unzip();
    tokio::spawn(async move {
        let mut open: Vec<_> = streams.into_iter().zip(senders).collect();
        while !open.is_empty() {
            let mut still = vec![];
            for (mut stream, sender) in open {
                if let Some(batch) = stream.next().await {
                    let _ = sender.send(batch).await;
                    still.push((stream, sender));
                }
            }
            open = still;
        }
    });
    let stream = |mut receiver: tokio::sync::mpsc::Receiver<_>| {
        stream::poll_fn(move |cx| receiver.poll_recv(cx)).boxed()
    };
    receivers.into_iter().map(stream).collect()
}

/// The first error is everybody's.
fn failing_together(streams: Vec<Batches>) -> Vec<Batches> {
    let failed = CancellationToken::new();
    let stream = |stream: Batches| {
        let (at_error, failed) = (failed.clone(), failed.clone());
        let noticed = stream.inspect(move |batch| {
            if batch.is_err() {
                at_error.cancel();
            }
        });
        noticed
            .map(move |batch| match failed.is_cancelled() {
                true => Err(DataFusionError::Execution(
                    "a sibling failed: only this one".into(),
                )),
                false => batch,
            })
            .boxed()
    };
    streams.into_iter().map(stream).collect()
}

/// Tasks read all partitions as fast as they come; from the first poll of any on, or unasked.
fn read_ahead(streams: Vec<Batches>, unasked: bool) -> Vec<Batches> {
    let started = CancellationToken::new();
    if unasked {
        started.cancel();
    }
    let stream = |mut stream: Batches| {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let (start, started) = (started.clone(), started.clone());
        tokio::spawn(async move {
            started.cancelled().await;
            while let Some(batch) = stream.next().await {
                if sender.send(batch).is_err() {
                    return;
                }
            }
        });
        stream::poll_fn(move |cx| {
            start.cancel();
            receiver.poll_recv(cx)
        })
        .boxed()
    };
    streams.into_iter().map(stream).collect()
}

fn without_metadata(batch: &RecordBatch) -> RecordBatch {
    let schema = Schema::new(batch.schema().fields().clone());
    RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec()).unwrap()
}

fn without_row_count(batch: RecordBatch) -> RecordBatch {
    if batch.num_columns() > 0 {
        return batch;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(0));
    RecordBatch::try_new_with_options(batch.schema(), vec![], &options).unwrap()
}

/// Is not dropped when it is dropped.
struct Leaked<T: Send + 'static>(Option<BoxStream<'static, T>>);

impl<T: Send> stream::Stream for Leaked<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        match &mut self.0 {
            Some(stream) => stream.as_mut().poll_next(cx),
            None => std::task::Poll::Ready(None),
        }
    }
}

impl<T: Send> Drop for Leaked<T> {
    fn drop(&mut self) {
        std::mem::forget(self.0.take());
    }
}
