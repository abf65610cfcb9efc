//! 10,000 partitions in one call, all open at once: they work, on one connection, with bounded memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_transport_tests::harness::{memory::Memory, quic::Quic, tcp::Tcp, tcp::Unix};
use datafusion_transport_tests::{ChannelHarness, ProbeExec, Rig, eventually, within};
use futures::future::try_join_all;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(240);
const PARTITIONS: usize = 10_000;
/// The engine's default: here a share of it is far under the minimum that each partition gets.
const BUDGET: usize = 64 << 20;
/// What an open partition may take beyond its data, client, worker and plan together.
const MAX_BYTES_PER_PARTITION: usize = 64 << 10;

/// The memory of a process is what is measured: one test at a time. Holds what the process had before the first, because
/// a later one finds memory that an earlier one left.
static ALONE: Mutex<Option<usize>> = Mutex::const_new(None);

macro_rules! on {
    ($($name:ident: $harness:expr),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let mut alone = ALONE.lock().await;
                let base = *alone.get_or_insert_with(resident_bytes);
                within("ten thousand partitions", LIMIT, ten_thousand_partitions(Arc::new($harness), base)).await;
            }
        )+
    };
}

/// Every partition gives a row and then waits, so that all are open when memory is looked at; then each gives a second
/// row and ends. More streams than the peer allows at first wait for their turn, and nothing deadlocks. (ballista#1943)
async fn ten_thousand_partitions(harness: Arc<dyn ChannelHarness>, base_bytes: usize) {
    let name = harness.name().to_owned();
    let rig = Rig::start(harness).await;
    let gate = CancellationToken::new();
    let plan = ProbeExec::new(schema(), PARTITIONS, {
        let gate = gate.clone();
        move |p| {
            let opened = gate.clone().cancelled_owned();
            let second = opened.map(move |()| Ok(row(p + PARTITIONS)));
            let first = stream::once(async move { Ok(row(p)) });
            first.chain(second.into_stream()).boxed()
        }
    });
    let task = rig.set_plan(plan.clone()).await;
    let call = rig.call(task.key, 0..PARTITIONS).budget(BUDGET);
    let mut run = call.send().await;
    for (p, stream) in run.streams.iter_mut().enumerate() {
        assert_eq!(stream.next().await.unwrap().unwrap(), row(p));
    }
    assert_eq!(plan.total(|p| p.executed() - p.dropped()), PARTITIONS);
    let per_partition = resident_bytes().saturating_sub(base_bytes) / PARTITIONS;
    println!("{name}: {per_partition} bytes per open partition, both ends");
    assert!(per_partition <= MAX_BYTES_PER_PARTITION, "{per_partition}");
    gate.cancel();
    let rest = run.streams.into_iter().map(|s| s.try_collect::<Vec<_>>());
    for (p, rest) in try_join_all(rest).await.unwrap().into_iter().enumerate() {
        assert_eq!(rest, [row(p + PARTITIONS)]);
    }
    let peers = rig.transports.stats();
    assert_eq!((peers[0].connections, peers[0].dials), (1, 1));
    assert_eq!(run.pool.reserved(), 0);
    drop(task);
    eventually("nothing stays on the worker", LIMIT, || {
        let served = rig.worker.as_ref().unwrap().counters().unwrap();
        served.calls == 0 && served.tasks == 0
    })
    .await;
}
on!(memory: Memory::new(), quic: Quic::new(), tcp: Tcp::new(), unix: Unix::new());

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

fn row(number: usize) -> RecordBatch {
    let column = Int64Array::from(vec![number as i64]);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).unwrap()
}

/// This process's memory.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() * 1024
}
