//! When work begins.

use super::Kit;
use crate::probe::{PartitionProbe, ProbeExec};
use crate::rig::new_key;
use crate::rows::{counting, counts, schema};
use crate::wait::{SOON, eventually, never};
use futures::{FutureExt, StreamExt, TryStreamExt};
use std::time::Duration;

/// Nothing happens on the worker before the first poll: a join may never come to its probe side (dfd#477).
pub async fn nothing_runs_before_the_first_poll(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 4, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    let _run = rig.execute(&task, 0..4).await;
    let executed = || plan.total(PartitionProbe::executed) > 0;
    never(
        "a partition was executed unasked",
        Duration::from_millis(500),
        executed,
    )
    .await;
}

/// The first poll of any partition starts the whole range: a consumer that needs all of them must not pay for one after the other.
pub async fn the_first_poll_starts_the_whole_range(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 4, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..4).await;
    run.streams[2]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    eventually("every partition starts", SOON, || {
        plan.total(PartitionProbe::executed) == 4
    })
    .await;
}

/// Each call is started by its own first poll: several consumers share a task (`Worker::execute_task` says so).
pub async fn later_calls_start_by_themselves(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 4, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    let (first, second) = (
        rig.execute(&task, 0..2).await,
        rig.execute(&task, 2..4).await,
    );
    first.read_all().await.expect("clean ends");
    let later = plan.probe(2).executed() + plan.probe(3).executed();
    assert_eq!(later, 0, "the second call was started by the first");
    second.read_all().await.expect("clean ends");
}

/// A consumer may come before the coordinator: the worker waits for the plan (`impl_execute_task.rs` waits 10 s).
pub async fn a_partition_may_be_asked_for_before_its_plan_is_set(t: Kit) {
    let rig = t.rig().await;
    let key = new_key();
    let mut run = rig.call(key, 0..1).send().await;
    let mut stream = run.take(0);
    assert!(stream.next().now_or_never().is_none());
    let plan = ProbeExec::new(schema(), 1, |_| counting(3, 10));
    let task = rig.plan(plan.clone()).key(key).send().await;
    let _task = task.expect("the plan is accepted");
    let batches = stream.try_collect::<Vec<_>>().await.expect("a clean end");
    assert!(counts(&batches, 0, 30));
}
