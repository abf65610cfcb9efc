//! Partitions that hold nobody up.

use super::Kit;
use crate::probe::ProbeExec;
use crate::rig::Execution;
use crate::rows::{counting, counts, endless, numbers, schema, values};
use crate::wait::{SOON, within};
use datafusion::common::exec_err;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

/// Rows of several streams at once; the most that was reserved meanwhile.
async fn count_rows(mut run: Execution, unread: usize) -> (usize, usize, Execution) {
    let (mut rows, mut peak) = (0, 0);
    let read = run.streams.split_off(unread);
    let mut merged = stream::select_all(read);
    while let Some(batch) = merged.try_next().await.expect("clean ends") {
        rows += batch.num_rows();
        peak = peak.max(run.pool.reserved());
    }
    (rows, peak, run)
}

/// A partition that nobody polls, with more than four times the budget behind it, holds up nobody: its siblings finish, it is not read to its end
/// in secret, and it is whole when somebody comes for it (dfd#419, TPC-H query 18).
pub async fn an_unread_partition_does_not_block_its_siblings(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 4, |_| counting(160, 8192));
    let task = rig.set_plan(plan.clone()).await;
    let budget = 2 << 20;
    let run = rig.call(task.key, 0..4).budget(budget).send().await;
    let (rows, _, mut run) = count_rows(run, 1).await;
    assert_eq!(rows, 3 * 160 * 8192);
    assert!(
        plan.probe(0).produced() < 160,
        "it was read to its end unasked"
    );
    let unread = run
        .take(0)
        .try_collect::<Vec<_>>()
        .await
        .expect("a clean end");
    assert!(counts(&unread, 0, 160 * 8192));
}

/// Likewise where half of them wait: what the others need is not shared with them (dfd#419).
pub async fn half_of_the_partitions_unread_do_not_block_the_others(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 16, |_| counting(40, 8192));
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.call(task.key, 0..16).budget(1 << 20).send().await;
    let (rows, _, _unread) = count_rows(run, 8).await;
    assert_eq!(rows, 8 * 40 * 8192);
}

/// Eight partitions of 24 MB in batches of 1 MB, one never polled (dfd#419). How long that takes is for the benchmarks.
pub async fn large_partitions_finish_beside_an_unread_one(t: Kit) {
    let rig = t.rig().await;
    let batch = numbers(0, 125_000);
    let plan = ProbeExec::new(schema(), 8, move |_| {
        stream::iter(vec![batch.clone(); 24]).map(Ok).boxed()
    });
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.call(task.key, 0..8).budget(8 << 20).send().await;
    let (rows, _, _unread) = count_rows(run, 1).await;
    assert_eq!(rows, 7 * 24 * 125_000);
}

/// A call that nobody reads does not hold up another call to the same worker, of the same query or of another.
pub async fn a_call_does_not_block_another(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 8, |p| match p {
        0..4 => endless(8192),
        _ => counting(40, 8192),
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut unread = rig.call(task.key, 0..4).budget(1 << 20).send().await;
    unread.streams[0]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    let other = rig.call(task.key, 4..8).budget(1 << 20).send().await;
    let (rows, _, _) = count_rows(other, 0).await;
    assert_eq!(rows, 4 * 40 * 8192);
    let second = rig.set_plan(plan.clone()).await;
    let other = rig.call(second.key, 4..8).budget(1 << 20).send().await;
    let (rows, _, _) = count_rows(other, 0).await;
    assert_eq!(rows, 4 * 40 * 8192);
}

/// An error is the error of its partition: the consumer decides whether the others are of use.
pub async fn a_failed_partition_leaves_its_siblings(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 3, |p| match p {
        1 => stream::once(async { exec_err!("only this one") }).boxed(),
        _ => counting(40, 1000),
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..3).await;
    let err = run
        .take(1)
        .try_collect::<Vec<_>>()
        .await
        .expect_err("it fails");
    assert!(err.to_string().contains("only this one"), "{err}");
    for stream in [run.take(0), run.take(2)] {
        let batches = stream.try_collect::<Vec<_>>().await.expect("a clean end");
        assert!(counts(&batches, 0, 40_000));
    }
}

/// A producer that yields nothing holds up nobody.
pub async fn a_stuck_producer_does_not_block_its_siblings(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 3, |p| match p {
        0 => stream::pending().boxed(),
        _ => counting(40, 1000),
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..3).await;
    assert!(run.streams[0].next().now_or_never().is_none());
    let (rows, _, _) = count_rows(run, 1).await;
    assert_eq!(rows, 2 * 40_000);
}

/// Plans, ends and metrics pass partitions that are full (quinn#2002).
pub async fn coordinator_messages_pass_unread_partitions(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 8, |_| endless(8192));
    let task = rig.set_plan(plan.clone()).await;
    let mut unread = rig.call(task.key, 0..8).budget(1 << 20).send().await;
    unread.streams[0]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    for _ in 0..5 {
        let other = ProbeExec::new(schema(), 1, |_| counting(1, 1));
        let other_task = within("another plan", SOON, rig.set_plan(other.clone())).await;
        rig.execute(&other_task, 0..1)
            .await
            .read_all()
            .await
            .expect("clean ends");
        within("its metrics", SOON, other_task.metrics()).await;
    }
    within("the metrics", SOON, task.metrics()).await;
}

/// Read one after the other, as a consumer with a single thread may do, and the last first: no order of reading deadlocks.
pub async fn hundreds_of_partitions_are_read_one_after_the_other(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 300, |_| counting(4, 2000));
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.call(task.key, 0..300).budget(1 << 20).send().await;
    for stream in run.streams.into_iter().rev() {
        let batches = stream.try_collect::<Vec<_>>().await.expect("a clean end");
        assert_eq!(values(&batches).len(), 8000);
    }
}
