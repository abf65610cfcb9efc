//! Throughput of `WorkerChannel::execute_task`: a worker that holds its batches in memory, a client that drains every
//! partition, over loopback in one process. gRPC is the engine's own, with its defaults and without TLS; QUIC is always encrypted.
//!
//! `cargo bench` runs it. Compare transports within one run, never absolute numbers between runs or machines.
#![allow(clippy::unwrap_used, missing_docs)]

use arrow_array::{
    ArrayRef, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray,
};
use async_trait::async_trait;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use datafusion_transport_core::{IoRuntime, PoolOptions, TransportError, Transports};
use datafusion_transport_tests::case::Subject;
use datafusion_transport_tests::harness::tcp::Tcp;
use datafusion_transport_tests::harness::{ChannelHarness, ConnectionHarness, Served, Service};
use datafusion_transport_tests::report::Subjects;
use datafusion_transport_tests::{ProbeExec, Rig};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use url::Url;

const BUDGET_BYTES: usize = 64 << 20;

/// A scenario: partitions, rows per batch, batches per partition.
struct Scenario {
    name: &'static str,
    partitions: usize,
    rows: usize,
    batches: usize,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "bulk",
        partitions: 16,
        rows: 8192,
        batches: 20,
    },
    Scenario {
        name: "small batches",
        partitions: 64,
        rows: 128,
        batches: 50,
    },
    Scenario {
        name: "many partitions",
        partitions: 512,
        rows: 512,
        batches: 5,
    },
    Scenario {
        name: "one batch",
        partitions: 1,
        rows: 8,
        batches: 1,
    },
];

/// Six columns of the usual kinds, about 60 bytes per row.
fn batch(rows: usize) -> RecordBatch {
    let n = rows as i64;
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..n));
    let sparse: ArrayRef = Arc::new(
        (0..n)
            .map(|i| (i % 7 != 0).then_some(i * 31))
            .collect::<Int64Array>(),
    );
    let prices: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..n).map(|i| i as f64 * 0.37),
    ));
    let dates: ArrayRef = Arc::new(Date32Array::from_iter_values((0..n).map(|i| i as i32)));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..n).map(|i| format!("name {i}")),
    ));
    let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(
        (0..n).map(|i| format!("comment {i}")),
    ));
    let columns = [
        ("n", numbers),
        ("s", sparse),
        ("p", prices),
        ("d", dates),
        ("name", names),
        ("view", views),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// Drains all partitions once, on two tasks, and checks the number of rows outside the time taken.
async fn drain(rig: &Rig, plan: &Arc<ProbeExec>, scenario: &Scenario) -> Duration {
    let mut task = rig.set_plan(Arc::clone(plan) as _).await;
    let start = Instant::now();
    let call = rig.call(task.key, 0..scenario.partitions);
    let run = call.budget(BUDGET_BYTES).send().await;
    let count = |stream: stream::BoxStream<'static, _>| {
        tokio::spawn(stream.try_fold(0, |rows, batch: RecordBatch| async move {
            Ok(rows + batch.num_rows())
        }))
    };
    let mut rows = 0;
    for counted in run.streams.into_iter().map(count).collect::<Vec<_>>() {
        rows += counted.await.unwrap().unwrap();
    }
    let taken = start.elapsed();
    assert_eq!(rows, scenario.partitions * scenario.batches * scenario.rows);
    task.end();
    task.from_worker.by_ref().for_each(|_| async {}).await;
    taken
}

/// TCP over several connections: what the default number of one rests on.
struct Spread {
    name: String,
    tcp: Tcp,
    connections_per_peer: usize,
}

impl Spread {
    fn over(connections_per_peer: usize) -> Arc<dyn ChannelHarness> {
        Arc::new(Self {
            name: format!("tcp over {connections_per_peer} connections"),
            tcp: Tcp::new(),
            connections_per_peer,
        })
    }
}

impl Subject for Spread {
    fn name(&self) -> &str {
        &self.name
    }
}

#[async_trait]
impl ChannelHarness for Spread {
    fn transports(&self) -> Transports {
        let options = PoolOptions {
            connections_per_peer: self.connections_per_peer,
            ..PoolOptions::default()
        };
        let builder = Transports::builder().connector("tcp", self.tcp.connector().unwrap());
        builder.pool(options).build().unwrap()
    }

    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError> {
        ChannelHarness::serve(&self.tcp, service, at, io).await
    }
}

fn execute_task(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    for scenario in &SCENARIOS {
        let batch = batch(scenario.rows);
        let bytes = batch.get_array_memory_size() * scenario.batches * scenario.partitions;
        let batches = vec![batch.clone(); scenario.batches];
        let plan = ProbeExec::new(batch.schema(), scenario.partitions, move |_| {
            stream::iter(batches.clone()).map(Ok).boxed()
        });
        let mut group = c.benchmark_group(scenario.name);
        group
            .throughput(Throughput::Bytes(bytes as u64))
            .sample_size(10);
        let spread = [2, 4].map(Spread::over);
        for harness in Subjects::ours().channels.into_iter().chain(spread) {
            let name = harness.name().to_owned();
            let rig = runtime.block_on(Rig::start(harness));
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter_custom(|times| {
                    runtime.block_on(async {
                        let mut total = Duration::ZERO;
                        for _ in 0..times {
                            total += drain(&rig, &plan, scenario).await;
                        }
                        total
                    })
                });
            });
            runtime.block_on(async { drop(rig) });
        }
        group.finish();
    }
}

criterion_group!(benches, execute_task);
criterion_main!(benches);
