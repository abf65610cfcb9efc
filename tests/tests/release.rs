//! Partitions of a shared repartition that nobody reads, over each of our transports: the repartition must learn of it, or
//! it goes on to fill channels that nobody empties. (dfd#482)
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use datafusion_distributed::{MaybeEncoded, ProducerHead, TaskKey};
use datafusion_transport_tests::{Execution, Harness, Kind, ProbeExec, Task, eventually, within};
use futures::{StreamExt, stream};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const BUDGET: usize = 64 << 20;
const PARTITIONS: usize = 4;

macro_rules! on {
    ($case:ident) => {
        mod $case {
            on!($case: Memory, Quic, Tcp, Unix);
        }
    };
    ($case:ident: $($kind:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[allow(non_snake_case)]
            async fn $kind() {
                super::within(stringify!($case), super::LIMIT, super::$case(super::Kind::$kind)).await;
            }
        )+
    };
}

/// An endless leaf under a hash repartition.
struct Shuffle {
    harness: Harness,
    leaf: Arc<ProbeExec>,
    partitioning: Partitioning,
    task: Task,
}

impl Shuffle {
    async fn start(kind: Kind, batch: RecordBatch) -> Self {
        let harness = Harness::start(kind).await;
        let leaf = ProbeExec::new(schema(), 1, move |_| {
            stream::repeat(batch.clone()).map(Ok).boxed()
        });
        let key = col("n", &schema()).unwrap();
        let partitioning = Partitioning::Hash(vec![key], PARTITIONS);
        let input = Arc::clone(&leaf) as Arc<dyn ExecutionPlan>;
        let head = RepartitionExec::try_new(input, partitioning.clone()).unwrap();
        let task = harness.set_plan(Arc::new(head)).await;
        Self {
            harness,
            leaf,
            partitioning,
            task,
        }
    }

    async fn execute(&self, partitions: Range<usize>) -> Execution {
        let head = ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Decoded(self.partitioning.clone()),
        };
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let key: TaskKey = self.task.key;
        let execute = self.harness.execute_in(key, partitions, head, BUDGET, pool);
        execute.await
    }
}

/// The partition that the rows go to.
async fn full_partition() -> usize {
    let shuffle = Shuffle::start(Kind::Memory, one_key()).await;
    let run = shuffle.execute(0..PARTITIONS).await;
    let numbered = run.streams.into_iter().enumerate();
    let mut any = stream::select_all(numbered.map(|(p, s)| s.map(move |_| p).boxed()));
    any.next().await.unwrap()
}

/// Partitions that no row goes to are dropped before the call starts, and a sibling is read by somebody who stops: the
/// repartition must stop too. It doesn't while an empty channel looks as if it had a reader.
async fn unread_partitions_do_not_open_the_gate(kind: Kind) {
    let full = full_partition().await;
    let shuffle = Shuffle::start(kind, one_key()).await;
    let mut run = shuffle.execute(0..PARTITIONS).await;
    let mut read = run.streams.swap_remove(full);
    drop(run.streams);
    read.next().await.unwrap().unwrap();
    let produced = || shuffle.leaf.probe(0).produced();
    // It is bounded by the windows and two batches per channel.
    stands_still(produced).await;
    // And goes on with its reader.
    let before = produced();
    let mut read = read.take(2 * before);
    while let Some(batch) = read.next().await {
        batch.unwrap();
    }
    assert!(produced() > before);
}
on!(unread_partitions_do_not_open_the_gate);

/// All partitions dropped unpolled: the repartition's input ends while the query still runs.
async fn a_released_repartition_drops_its_input(kind: Kind) {
    let shuffle = Shuffle::start(kind, many_keys()).await;
    drop(shuffle.execute(0..PARTITIONS).await);
    eventually("the input is dropped", LIMIT, || {
        shuffle.leaf.probe(0).dropped() == 1
    })
    .await;
}
on!(a_released_repartition_drops_its_input);

/// One partition dropped in mid-data: the repartition stops filling it, and its siblings end.
async fn dropped_partitions_stop_their_input(kind: Kind) {
    let shuffle = Shuffle::start(kind, many_keys()).await;
    let mut run = shuffle.execute(0..PARTITIONS).await;
    let mut any = stream::select_all(run.streams.iter_mut());
    any.next().await.unwrap().unwrap();
    drop(any);
    drop(run.streams);
    eventually("the input is dropped", LIMIT, || {
        shuffle.leaf.probe(0).dropped() == 1
    })
    .await;
}
on!(dropped_partitions_stop_their_input);

/// Waits until a count has not changed for half a second.
async fn stands_still(count: impl Fn() -> usize) {
    let (mut last, mut since) = (count(), Instant::now());
    eventually("production stands still", LIMIT, || {
        if count() != last {
            (last, since) = (count(), Instant::now());
        }
        since.elapsed() > Duration::from_millis(500)
    })
    .await;
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

/// Rows that all go to one partition.
fn one_key() -> RecordBatch {
    batch(Int64Array::from(vec![7; 1024]))
}

/// Rows that go to all partitions.
fn many_keys() -> RecordBatch {
    batch(Int64Array::from_iter_values(0..1024))
}

fn batch(column: Int64Array) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).unwrap()
}
