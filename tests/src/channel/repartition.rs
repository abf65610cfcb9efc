//! A shuffle's partitions come from one repartition, which stops once all its outputs are full: an output that nobody wants must not keep it going,
//! nor keep it from going on.

use super::Kit;
use crate::probe::ProbeExec;
use crate::rig::{Execution, Rig, Task};
use crate::rows::{Batches, numbers, schema};
use crate::wait::{SOON, eventually, within};
use arrow_array::{Int64Array, RecordBatch};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use datafusion_distributed::{MaybeEncoded, ProducerHead};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PARTITIONS: usize = 4;

/// A leaf under a hash repartition.
struct Shuffle {
    leaf: Arc<ProbeExec>,
    task: Task,
    run: Execution,
}

async fn shuffle(rig: &Rig, source: impl Fn() -> Batches + Send + Sync + 'static) -> Shuffle {
    let leaf = ProbeExec::new(schema(), 1, move |_| source());
    let partitioning = Partitioning::Hash(vec![Arc::new(Column::new("n", 0))], PARTITIONS);
    let input = Arc::clone(&leaf) as Arc<dyn ExecutionPlan>;
    let head = RepartitionExec::try_new(input, partitioning.clone()).expect("a repartition");
    let task = rig.set_plan(Arc::new(head)).await;
    let partitioning = MaybeEncoded::Decoded(partitioning);
    let head = ProducerHead::RepartitionExec { partitioning };
    let run = rig.call(task.key, 0..PARTITIONS).head(head).send().await;
    Shuffle { leaf, task, run }
}

/// Rows that all go to one partition.
fn one_key() -> Batches {
    let column = Arc::new(Int64Array::from(vec![7; 1024]));
    let batch = RecordBatch::try_new(schema(), vec![column]).expect("one column");
    stream::repeat_with(move || Ok(batch.clone())).boxed()
}

/// Rows that go to all partitions.
fn many_keys() -> Batches {
    let batch = numbers(0, 1024);
    stream::repeat_with(move || Ok(batch.clone())).boxed()
}

/// The partition that the rows of one key go to.
async fn full_partition(rig: &Rig) -> usize {
    let shuffle = shuffle(rig, || one_key().take(3).boxed()).await;
    let parts = shuffle.run.read_all().await.expect("clean ends");
    parts
        .iter()
        .position(|batches| !batches.is_empty())
        .expect("one of them")
}

async fn input_is_dropped(leaf: &ProbeExec) {
    let probe = leaf.probe(0);
    eventually("the repartition's input is dropped", SOON, || {
        probe.dropped() == 1
    })
    .await;
}

/// Partitions that no row goes to are dropped before the call starts, and a sibling is read by somebody who stops: the repartition must stop too. It
/// doesn't while an empty channel looks as if it had a reader (dfd#482).
pub async fn unread_outputs_do_not_keep_it_going(t: Kit) {
    let rig = t.rig().await;
    let full = full_partition(&rig).await;
    let Shuffle {
        leaf,
        mut run,
        task: _task,
    } = shuffle(&rig, one_key).await;
    let mut read = run.take(full);
    run.streams.clear();
    read.next().await.expect("a batch").expect("a batch");
    let before = stands_still(|| leaf.probe(0).produced()).await;
    // And goes on with its reader.
    let mut read = read.take(2 * before);
    while let Some(batch) = within("a batch", SOON, read.next()).await {
        batch.expect("a batch");
    }
    assert!(leaf.probe(0).produced() > before);
}

/// All outputs dropped unpolled: the input ends while the query still runs (dfd#465).
pub async fn all_outputs_dropped_unpolled_end_its_input(t: Kit) {
    let rig = t.rig().await;
    let Shuffle {
        leaf,
        run,
        task: _task,
    } = shuffle(&rig, many_keys).await;
    drop(run);
    input_is_dropped(&leaf).await;
}

/// All outputs dropped in mid-data (dfd#482).
pub async fn all_outputs_dropped_in_mid_data_end_its_input(t: Kit) {
    let rig = t.rig().await;
    let Shuffle {
        leaf,
        mut run,
        task: _task,
    } = shuffle(&rig, many_keys).await;
    run.streams[1]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    drop(run);
    input_is_dropped(&leaf).await;
}

/// Waits until a count has not changed for half a second.
async fn stands_still(count: impl Fn() -> usize) -> usize {
    let (mut last, mut since) = (count(), Instant::now());
    eventually("production stands still", SOON / 2, || {
        if count() != last {
            (last, since) = (count(), Instant::now());
        }
        since.elapsed() > Duration::from_millis(500)
    })
    .await;
    last
}
