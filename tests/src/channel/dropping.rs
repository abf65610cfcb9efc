//! Partitions that their consumer drops, at every stage.

use super::Kit;
use crate::probe::{PartitionProbe, ProbeExec};
use crate::rig::{Rig, Task};
use crate::rows::{counting, counting_from, counts, endless, numbers, schema};
use crate::wait::{SOON, eventually, within};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::Partitioning;
use datafusion_distributed::{MaybeEncoded, ProducerHead};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How long a release may take that is to be prompt: a round trip, and a busy machine.
const PROMPT: Duration = Duration::from_secs(3);

/// The producer of a partition is dropped.
async fn dropped(plan: &ProbeExec, partition: usize, limit: Duration) {
    let probe = plan.probe(partition);
    eventually("the partition's producer is dropped", limit, || {
        probe.dropped() == 1
    })
    .await;
}

/// Nobody polled anything: the worker's partitions are started and cancelled all the same, because something there may wait for them, and
/// nothing stays (dfd#465, #521, #524).
pub async fn all_dropped_unpolled_are_released(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 4, |_| counting(1000, 1000));
    let task = rig.set_plan(plan.clone()).await;
    drop(rig.execute(&task, 0..4).await);
    eventually("all partitions are dropped", Duration::from_secs(5), || {
        plan.total(PartitionProbe::dropped) == 4
    })
    .await;
    task.finish().await;
    rig.released(&plan).await;
}

/// Dropped before its call started: it is released once a sibling starts the call, and its siblings are whole (dfd#465).
pub async fn one_dropped_unpolled_is_released(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 3, |_| counting(5, 10));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..3).await;
    drop(run.take(1));
    let (first, last) = (run.take(0), run.take(2));
    for stream in [first, last] {
        let batches = stream.try_collect::<Vec<_>>().await.expect("a clean end");
        assert!(counts(&batches, 0, 50));
    }
    dropped(&plan, 1, PROMPT).await;
    task.finish().await;
    rig.released(&plan).await;
}

/// Dropped while its producer has nothing yet, and perhaps never will: the reader's going away reaches a plan that yields nothing.
pub async fn one_dropped_before_its_first_batch_is_released(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |p| match p {
        0 => stream::pending().boxed(),
        _ => counting(1, 1).chain(stream::pending()).boxed(),
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..2).await;
    assert!(run.streams[0].next().now_or_never().is_none());
    eventually("it runs", SOON, || plan.probe(0).polled() > 0).await;
    drop(run.take(0));
    dropped(&plan, 0, PROMPT).await;
    drop(run);
    task.finish().await;
    rig.released(&plan).await;
}

/// Dropped in the middle of its data: its producer stops, its siblings are whole (dfd#473, #482).
pub async fn one_dropped_between_batches_is_released(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 3, |p| match p {
        0 => endless(1000),
        _ => counting(50, 1000),
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.call(task.key, 0..3).budget(1 << 20).send().await;
    run.streams[0]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    drop(run.take(0));
    dropped(&plan, 0, PROMPT).await;
    for stream in [run.take(1), run.take(2)] {
        let batches = stream.try_collect::<Vec<_>>().await.expect("a clean end");
        assert!(counts(&batches, 0, 50_000));
    }
    task.finish().await;
    rig.released(&plan).await;
}

/// The release waits for no sibling, not even for those that nobody reads: a join that drops its probe side may be what they wait for (dfd#482).
pub async fn one_dropped_while_its_siblings_are_unread_is_released(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 4, |_| endless(8192));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.call(task.key, 0..4).budget(1 << 20).send().await;
    run.streams[1]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    eventually("the siblings run", SOON, || {
        (0..4).all(|p| plan.probe(p).produced() > 0)
    })
    .await;
    drop(run.take(1));
    dropped(&plan, 1, PROMPT).await;
    let others = [0, 2, 3].map(|p| plan.probe(p).dropped());
    assert_eq!(others, [0; 3], "siblings were dropped too");
}

/// A shuffle's partitions come from one repartition, which stops once all its outputs are full: an output that was dropped must not
/// count (dfd#482, where a hash join that drops its probe side unread hung).
pub async fn one_dropped_in_a_shared_repartition_lets_the_others_go_on(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(300, 8192));
    let task = rig.set_plan(plan.clone()).await;
    let column = Arc::new(Column::new("n", 0));
    let partitioning = MaybeEncoded::Decoded(Partitioning::Hash(vec![column], 4));
    let head = ProducerHead::RepartitionExec { partitioning };
    let call = rig.call(task.key, 0..4).head(head).budget(1 << 20);
    let mut run = call.send().await;
    run.streams[0]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    drop(run.take(0));
    let parts = run.read_all();
    let parts = within("the others end", SOON, parts)
        .await
        .expect("clean ends");
    let rows: usize = parts.iter().flatten().map(|batch| batch.num_rows()).sum();
    let all = 300 * 8192;
    assert!(rows > all / 2 && rows < all, "{rows} of {all} rows");
}

/// Its bytes stop crossing the wire: what the boundary counts stands still (dfd#482).
pub async fn a_dropped_partition_sends_no_more(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |p| match p {
        0 => endless(8192),
        _ => stream::pending().boxed(),
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..2).await;
    for _ in 0..5 {
        run.streams[0]
            .next()
            .await
            .expect("a batch")
            .expect("a batch");
    }
    drop(run.take(0));
    dropped(&plan, 0, PROMPT).await;
    let produced = plan.probe(0).produced();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(plan.probe(0).produced(), produced);
}

/// A call of eight partitions, endless where they will be dropped.
async fn eight(rig: &Rig, dropped: Range<usize>) -> (Arc<ProbeExec>, Task) {
    let plan = ProbeExec::new(schema(), 8, move |p| match dropped.contains(&p) {
        true => endless(1000),
        false => counting_from(p * 1_000_000, 60, 1000),
    });
    let task = rig.set_plan(plan.clone()).await;
    (plan, task)
}

/// The rest is whole, to the row.
async fn rest_is_whole(run: crate::rig::Execution, first: usize) {
    let mut parts = run.read_all().await.expect("clean ends");
    for (p, batches) in parts.drain(..).enumerate().skip(first) {
        assert!(
            counts(&batches, p * 1_000_000, 60_000),
            "partition {p} is not whole"
        );
    }
}

/// Three of eight dropped before any data (dfd#473, where the rest silently lost rows).
pub async fn some_dropped_before_data_leave_the_rest_whole(t: Kit) {
    let rig = t.rig().await;
    let (plan, task) = eight(&rig, 0..3).await;
    let mut run = rig.execute(&task, 0..8).await;
    for p in 0..3 {
        drop(run.take(p));
    }
    rest_is_whole(run, 3).await;
    task.finish().await;
    rig.released(&plan).await;
}

/// Three of eight dropped one after the other while data flows (dfd#473).
pub async fn some_dropped_during_data_leave_the_rest_whole(t: Kit) {
    let rig = t.rig().await;
    let (plan, task) = eight(&rig, 0..3).await;
    let mut run = rig.call(task.key, 0..8).budget(2 << 20).send().await;
    for p in 0..3 {
        for _ in 0..=p {
            run.streams[p]
                .next()
                .await
                .expect("a batch")
                .expect("a batch");
        }
        drop(run.take(p));
    }
    rest_is_whole(run, 3).await;
    task.finish().await;
    rig.released(&plan).await;
}

/// Three of eight dropped after they were read to their ends, the others still to come (dfd#473).
pub async fn some_dropped_after_data_leave_the_rest_whole(t: Kit) {
    let rig = t.rig().await;
    let (plan, task) = eight(&rig, 0..0).await;
    let mut run = rig.execute(&task, 0..8).await;
    for p in 0..3 {
        let batches = run
            .take(p)
            .try_collect::<Vec<_>>()
            .await
            .expect("a clean end");
        assert!(counts(&batches, p * 1_000_000, 60_000));
    }
    rest_is_whole(run, 3).await;
    task.finish().await;
    rig.released(&plan).await;
}

/// All dropped while data flows (dfd#320).
pub async fn all_dropped_in_mid_data_are_released(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 6, |_| endless(1000));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..6).await;
    for stream in &mut run.streams {
        stream.next().await.expect("a batch").expect("a batch");
    }
    drop(run);
    eventually("all producers are dropped", PROMPT, || plan.is_released()).await;
    task.finish().await;
    rig.released(&plan).await;
}

/// Partitions and coordinator channel dropped at once, in either order, as a query that its user gives up: nothing is left on either side, of
/// calls, streams, memory and tasks (dfd#320, doris#39223).
pub async fn a_query_dropped_half_way_leaves_nothing(t: Kit) {
    let rig = t.rig().await;
    for task_first in [true, false] {
        let plan = ProbeExec::new(schema(), 4, |p| match p {
            0 => stream::pending().boxed(),
            _ => stream::repeat_with(|| Ok(numbers(0, 1000))).boxed(),
        });
        let task = rig.set_plan(plan.clone()).await;
        let mut run = rig.execute(&task, 0..4).await;
        run.streams[1]
            .next()
            .await
            .expect("a batch")
            .expect("a batch");
        let pool = Arc::clone(&run.pool);
        match task_first {
            true => drop((task, run)),
            false => drop((run, task)),
        }
        rig.released(&plan).await;
        assert_eq!(pool.reserved(), 0);
    }
}

/// The worker lets go of the plan itself: build sides and buffers hang on it (dfd#320).
pub async fn a_plan_is_let_go_after_its_query(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    rig.execute(&task, 0..2)
        .await
        .read_all()
        .await
        .expect("clean ends");
    task.finish().await;
    eventually(
        "only the case holds the plan",
        Duration::from_secs(5),
        || Arc::strong_count(&plan) == 1,
    )
    .await;
}
