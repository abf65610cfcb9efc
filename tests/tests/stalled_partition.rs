//! 8 partitions of 100 MB, one never polled: the other seven complete in about the time that they take without it, and what
//! is buffered stays within the call's budget. The reference hangs: the contract's case of an unread partition shows that.
#![allow(clippy::unwrap_used, missing_docs)]

use datafusion_transport_tests::harness::{memory::Memory, quic::Quic, tcp::Tcp, tcp::Unix};
use datafusion_transport_tests::rows::{numbers, schema};
use datafusion_transport_tests::{BUDGET, ChannelHarness, ProbeExec, Rig, within};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const LIMIT: Duration = Duration::from_secs(120);
const ROWS_PER_BATCH: usize = 125_000;
const BATCHES: usize = 100;

/// Times are compared: one test at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

macro_rules! on {
    ($($name:ident: $harness:expr),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let _alone = ALONE.lock().await;
                within("seven of eight end", LIMIT, seven_of_eight(Arc::new($harness))).await;
            }
        )+
    };
}

async fn seven_of_eight(harness: Arc<dyn ChannelHarness>) {
    let rig = Rig::start(harness).await;
    // The same batch of 1 MB again and again: producing must cost nothing.
    let batch = numbers(0, ROWS_PER_BATCH);
    let plan = ProbeExec::new(schema(), 8, move |_| {
        stream::iter(vec![batch.clone(); BATCHES]).map(Ok).boxed()
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut times = vec![];
    for first in [1, 0] {
        let mut run = rig.call(task.key, first..8).budget(BUDGET).send().await;
        let _unread = (first == 0).then(|| run.streams.remove(0));
        let (start, mut rows) = (Instant::now(), 0);
        let mut merged = stream::select_all(run.streams);
        while let Some(batch) = merged.try_next().await.unwrap() {
            rows += batch.num_rows();
            // The budget, and a message that may overdraw for each partition.
            assert!(run.pool.reserved() <= BUDGET + 8 * 1_100_000);
        }
        assert_eq!(rows, 7 * BATCHES * ROWS_PER_BATCH);
        times.push(start.elapsed());
    }
    assert!(plan.probe(0).produced() < BATCHES, "it was read unasked");
    // Wide enough for a busy machine; the benchmarks measure it.
    let [without, with] = times.try_into().unwrap();
    assert!(
        with < without * 3 + Duration::from_secs(2),
        "{without:?} {with:?}"
    );
}
on!(memory: Memory::new(), quic: Quic::new(), tcp: Tcp::new(), tcp_tls: Tcp::with_tls(), unix: Unix::new());
