//! Peers that go away.

use super::Kit;
use crate::connection::liveness::NOTICED;
use crate::probe::ProbeExec;
use crate::rig::{Rig, Task, new_key};
use crate::rows::{counting, counts, schema};
use crate::silence::Suspendable;
use crate::wait::{SOON, eventually, within};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion_distributed::{GetWorkerInfoRequest, WorkerToCoordinatorMsg};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Rows of a batch that no transport merges with another one.
const UNMERGED_ROWS: usize = 8192;

/// So many batches, and then nothing.
fn then_nothing(batches: usize) -> Arc<ProbeExec> {
    ProbeExec::new(schema(), 1, move |_| {
        counting(batches, UNMERGED_ROWS)
            .chain(stream::pending())
            .boxed()
    })
}

/// A task that has delivered so many batches and waits.
async fn midway(
    rig: &Rig,
    batches: usize,
) -> (
    Arc<ProbeExec>,
    Task,
    BoxStream<'static, Result<RecordBatch>>,
) {
    let plan = then_nothing(batches);
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let mut stream = run.take(0);
    for _ in 0..batches {
        stream.next().await.expect("a batch").expect("a batch");
    }
    assert!(stream.next().now_or_never().is_none());
    eventually("the producer waits", SOON, || {
        plan.probe(0).polled() > batches
    })
    .await;
    (plan, task, stream)
}

async fn cut(stream: BoxStream<'static, Result<RecordBatch>>, limit: Duration) -> DataFusionError {
    let rest = within("an error", limit, stream.try_collect::<Vec<_>>()).await;
    rest.expect_err("a cut stream must not end as if it were complete")
}

/// Wherever it was, before the first batch or between any two, what a worker left unfinished is an error and never an end
/// (paradedb#6327, quinn#2411).
pub async fn a_worker_that_ends_is_never_a_clean_end(t: Kit) {
    for batches in [0, 1, 2, 3] {
        let mut rig = t.rig().await;
        let (_plan, _task, stream) = midway(&rig, batches).await;
        rig.kill_worker().await;
        cut(stream, SOON).await;
    }
}

/// The error says which worker: a query has many.
pub async fn a_worker_that_ends_names_itself(t: Kit) {
    let mut rig = t.rig().await;
    let (_plan, _task, stream) = midway(&rig, 1).await;
    rig.kill_worker().await;
    let err = cut(stream, SOON).await.to_string();
    assert!(
        err.contains(rig.url.as_str().trim_end_matches('/')),
        "the worker is not named: {err}"
    );
}

/// A coordinator channel that is cut is no end of the query: its metrics have not come.
pub async fn a_worker_that_ends_fails_its_coordinator_channels(t: Kit) {
    let mut rig = t.rig().await;
    let (_plan, task, _stream) = midway(&rig, 1).await;
    rig.kill_worker().await;
    let said = task.from_worker.try_collect::<Vec<_>>();
    let outcome = within("an error", SOON, said).await;
    outcome
        .map(|_| ())
        .expect_err("a cut channel must not end as if the query were over");
}

/// A client that knew a worker before it was restarted reaches it again.
pub async fn a_worker_that_came_back_is_reached(t: Kit) {
    let mut rig = t.rig().await;
    let (_plan, task, stream) = midway(&rig, 1).await;
    rig.kill_worker().await;
    cut(stream, SOON).await;
    drop(task);
    rig.restart_worker().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(5, 10));
    let task = rig.set_plan(plan.clone()).await;
    let parts = rig.execute(&task, 0..2).await.read_all().await;
    assert!(
        parts
            .expect("clean ends")
            .iter()
            .all(|batches| counts(batches, 0, 50))
    );
}

/// Nobody listens: each of the calls is an error that names the worker.
pub async fn an_unreachable_worker_is_an_error_soon(t: Kit) {
    let mut rig = t.rig().await;
    rig.kill_worker().await;
    let name = rig.url.as_str().trim_end_matches('/').to_owned();
    let limit = Duration::from_secs(12);
    let plan = rig.plan(then_nothing(1)).send();
    let plan = within("an error", limit, plan).await.map(|_| ());
    let mut channel = rig.channel().await;
    let info = channel.get_worker_info(GetWorkerInfoRequest {});
    let info = within("an error", limit, info).await.map(|_| ());
    let read = async {
        let mut run = rig.call(new_key(), 0..2).try_send().await?;
        run.take(0).try_collect::<Vec<_>>().await.map(|_| ())
    };
    let read = within("an error", limit, read).await;
    for outcome in [plan, info, read] {
        let err = outcome.expect_err("nobody is there").to_string();
        assert!(err.contains(&name), "{err}");
    }
}

/// And the next call tries anew.
pub async fn an_unreachable_worker_is_tried_again(t: Kit) {
    let mut rig = t.rig().await;
    rig.kill_worker().await;
    let outcome = within("an error", SOON, rig.plan(then_nothing(1)).send()).await;
    outcome.map(|_| ()).expect_err("nobody is there");
    rig.restart_worker().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(5, 10));
    let task = rig.set_plan(plan.clone()).await;
    rig.execute(&task, 0..1)
        .await
        .read_all()
        .await
        .expect("clean ends");
}

/// A worker that says nothing any more, with its connection open, is an error for partitions and coordinator channels in bounded time
/// (materialize#20299, linkerd2#13023).
pub async fn a_silent_worker_is_an_error(t: Kit) {
    let io = Suspendable::start();
    let rig = t.rig_on(io.runtime()).await;
    let (_plan, task, stream) = midway(&rig, 1).await;
    let _suspended = io.suspend();
    cut(stream, NOTICED).await;
    let said = within(
        "an error",
        NOTICED,
        task.from_worker.try_collect::<Vec<_>>(),
    )
    .await;
    said.map(|_| ()).expect_err("the worker said nothing");
}

/// A plan that ends when the case lets it.
fn gated() -> (Arc<ProbeExec>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let at_gate = Arc::clone(&gate);
    let plan = ProbeExec::new(schema(), 1, move |_| {
        let at_gate = Arc::clone(&at_gate);
        let wait = stream::once(async move { at_gate.acquire().await.map(|_| ()) });
        counting(2, 10)
            .chain(wait.filter_map(|_| async { None }))
            .boxed()
    });
    (plan, gate)
}

/// A coordinator that is lost is not the end of its query: a work-unit feed that was cut looks complete to the plan, so the task's partitions
/// must fail, even where the plan ends by itself (`impl_coordinator_channel.rs` closes feeds cleanly in either case).
pub async fn a_lost_coordinator_fails_its_partitions(t: Kit) {
    let rig = t.rig().await;
    let (plan, gate) = gated();
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let mut stream = run.take(0);
    stream.next().await.expect("a batch").expect("a batch");
    drop(task);
    rig.noticed_loss().await;
    gate.add_permits(1);
    cut(stream, SOON).await;
}

/// A worker does not compute for a coordinator that is gone (dfd#320).
pub async fn a_lost_coordinator_frees_its_worker(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| crate::rows::endless(1000));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..2).await;
    run.streams[0]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    drop(task);
    drop(run);
    rig.released(&plan).await;
}

/// Its own connections closed, a client's streams are errors.
pub async fn a_client_that_shuts_down_gets_errors(t: Kit) {
    let rig = t.rig().await;
    let (plan, task, stream) = midway(&rig, 1).await;
    within("connections close", SOON, rig.transports.shutdown()).await;
    cut(stream, SOON).await;
    let said = within("an error", SOON, task.from_worker.try_collect::<Vec<_>>()).await;
    said.map(|_| ()).expect_err("the channel was cut");
    let limit = Duration::from_secs(5);
    eventually("the worker is free", limit, || plan.is_released()).await;
}

/// A worker that drains refuses new queries, saying why, and finishes those it has, partitions that start later included.
pub async fn a_draining_worker_finishes_its_queries(t: Kit) {
    let mut rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    let worker = rig.worker.take().expect("a worker");
    let draining = tokio::spawn(worker.drain(SOON));
    // It begins to drain some time soon: until then a new query may still be taken.
    let refused = loop {
        match rig.plan(plan.clone()).send().await {
            Ok(taken) => drop(taken.finish().await),
            Err(err) => break err.to_string(),
        }
    };
    assert!(refused.contains("shutting down"), "{refused}");
    let parts = rig.execute(&task, 0..2).await.read_all().await;
    assert!(
        parts
            .expect("clean ends")
            .iter()
            .all(|batches| counts(batches, 0, 30))
    );
    task.metrics().await;
    assert_eq!(draining.await.expect("no panic"), 0, "calls were cut");
}

/// What a worker said last arrives, although it closes at once afterwards (quinn#1924, iroh#2603).
pub async fn metrics_survive_an_immediate_shutdown(t: Kit) {
    for _ in 0..10 {
        let mut rig = t.rig().await;
        let plan = ProbeExec::new(schema(), 1, |_| counting(3, 10));
        let mut task = rig.set_plan(plan.clone()).await;
        rig.execute(&task, 0..1)
            .await
            .read_all()
            .await
            .expect("clean ends");
        task.end();
        let worker = rig.worker.take().expect("a worker");
        let (said, cut) =
            tokio::join!(task.from_worker.try_collect::<Vec<_>>(), worker.drain(SOON));
        let said = said.expect("a clean end");
        let metrics = said
            .iter()
            .filter(|m| matches!(m, WorkerToCoordinatorMsg::TaskMetrics(_)));
        assert_eq!((metrics.count(), cut), (1, 0));
    }
}
