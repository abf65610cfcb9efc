//! Memory that is held for data that nobody has read.

use super::Kit;
use crate::probe::{PartitionProbe, ProbeExec};
use crate::rows::{counting, endless, schema};
use crate::wait::{SOON, eventually, within};
use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;

/// A call that nobody reads costs nothing (dfd#477).
pub async fn nothing_is_reserved_before_the_first_poll(t: Kit) {
    let rig = t.rig().await;
    let task = rig
        .set_plan(ProbeExec::new(schema(), 64, |_| endless(1000)))
        .await;
    let run = rig.execute(&task, 0..64).await;
    assert_eq!(run.pool.reserved(), 0);
}

/// What arrived and was not read is in the session's pool, and stays within the budget plus a message for each partition
/// (ballista#1952, velox#6005).
pub async fn what_is_held_is_reserved_and_bounded(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 8, |_| endless(8192));
    let task = rig.set_plan(plan.clone()).await;
    let budget = 4 << 20;
    let mut run = rig.call(task.key, 0..8).budget(budget).send().await;
    let mut merged = stream::select_all(run.streams.drain(..));
    let mut peak = 0;
    for _ in 0..2000 {
        merged.next().await.expect("a batch").expect("a batch");
        peak = peak.max(run.pool.reserved());
    }
    assert!(peak > 0, "nothing was reserved");
    assert!(
        peak <= budget + 8 * 70_000,
        "{peak} bytes of {budget} were held"
    );
}

/// At the end of the streams, all of it is back.
pub async fn everything_is_given_back_at_the_end(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 8, |_| counting(20, 8192));
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.execute(&task, 0..8).await;
    let pool = Arc::clone(&run.pool);
    run.read_all().await.expect("clean ends");
    eventually("the memory is back", SOON, || pool.reserved() == 0).await;
}

/// And soon after the streams are dropped, unread data behind them or not.
pub async fn everything_is_given_back_when_dropped(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 8, |_| endless(8192));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..8).await;
    run.streams[0]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    eventually("all partitions run", SOON, || {
        plan.total(PartitionProbe::produced) > 20
    })
    .await;
    let pool = Arc::clone(&run.pool);
    drop(run);
    eventually("the memory is back", SOON, || pool.reserved() == 0).await;
}

/// A session whose pool has nothing left gets an error of the variant that says so, soon, and the worker is released (presto, velox#7410).
pub async fn a_refused_reservation_is_an_error_soon(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1024));
    let mut run = rig.call(task.key, 0..1).pool(pool).send().await;
    let stream = run.take(0).try_collect::<Vec<_>>();
    let outcome = within("an error", Duration::from_secs(5), stream).await;
    let err = outcome.expect_err("there is no memory");
    let exhausted = matches!(err.find_root(), DataFusionError::ResourcesExhausted(_));
    assert!(exhausted, "{err:?}");
    task.finish().await;
    rig.idle().await;
    eventually("the worker is released", SOON, || {
        plan.total(PartitionProbe::executed) == plan.total(PartitionProbe::dropped)
    })
    .await;
}
