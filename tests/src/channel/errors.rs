//! Errors of the worker, told to whom they concern, as what they were.

use super::Kit;
use crate::probe::ProbeExec;
use crate::rig::{Rig, new_key};
use crate::rows::{Batches, counting, counts, schema};
use crate::wait::{SOON, within};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::physical_plan::ExecutionPlan;
use futures::{StreamExt, TryStreamExt, stream};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A partition of two batches and an error.
async fn failing(rig: &Rig, error: fn() -> DataFusionError) -> (Vec<RecordBatch>, DataFusionError) {
    let source = move |_| -> Batches {
        let end = stream::once(async move { Err(error()) });
        counting(2, 10).chain(end).boxed()
    };
    let plan = ProbeExec::new(schema(), 1, source);
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let mut stream = run.take(0);
    let mut batches = vec![];
    loop {
        match stream.next().await.expect("no clean end") {
            Ok(batch) => batches.push(batch),
            Err(err) => return (batches, err),
        }
    }
}

/// Callers act on the variant: retry, or tell the user (the reference sends it too, `grpc/errors`).
pub async fn an_error_arrives_as_the_same_variant(t: Kit) {
    use DataFusionError as E;
    let rig = t.rig().await;
    let errors: [fn() -> E; 7] = [
        || E::Plan("words".into()),
        || E::Execution("words".into()),
        || E::Internal("words".into()),
        || E::NotImplemented("words".into()),
        || E::Configuration("words".into()),
        || E::ResourcesExhausted("words".into()),
        || E::External("words".into()),
    ];
    for error in errors {
        let (_, err) = failing(&rig, error).await;
        let root = err.find_root();
        let same = std::mem::discriminant(root) == std::mem::discriminant(&error());
        assert!(same, "{:?} arrived as {root:?}", error());
        assert!(root.to_string().contains("words"), "{root}");
    }
}

/// What Arrow and the operating system report keeps its kind.
pub async fn arrow_and_io_errors_arrive_as_themselves(t: Kit) {
    let rig = t.rig().await;
    let (_, err) = failing(&rig, || ArrowError::DivideByZero.into()).await;
    let same = matches!(err.find_root(), DataFusionError::ArrowError(err, _) if matches!(**err, ArrowError::DivideByZero));
    assert!(same, "{err:?}");
    let denied = || io::Error::new(io::ErrorKind::PermissionDenied, "not yours").into();
    let (_, err) = failing(&rig, denied).await;
    let same = matches!(err.find_root(), DataFusionError::IoError(err) if err.kind() == io::ErrorKind::PermissionDenied);
    assert!(same, "{err:?}");
}

/// What the layers of a plan add on the way up.
pub async fn context_and_sharing_arrive(t: Kit) {
    let rig = t.rig().await;
    let error = || {
        let root = DataFusionError::Plan("the root".into());
        let shared = DataFusionError::Shared(Arc::new(root.context("inner")));
        shared.context("outer")
    };
    let (_, err) = failing(&rig, error).await;
    let text = err.to_string();
    for words in ["outer", "inner", "the root"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(
        matches!(err.find_root(), DataFusionError::Plan(_)),
        "{err:?}"
    );
}

/// Rows that were made before the error arrive before it.
pub async fn rows_before_an_error_arrive(t: Kit) {
    let rig = t.rig().await;
    let (batches, err) = failing(&rig, || exec_datafusion_err!("later")).await;
    assert!(counts(&batches, 0, 20));
    assert!(err.to_string().contains("later"), "{err}");
}

/// An error is a stream's last word.
pub async fn nothing_comes_after_an_error(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| {
        let error = stream::once(async { Err(exec_datafusion_err!("enough")) });
        counting(1, 1).chain(error).chain(counting(5, 1)).boxed()
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let mut stream = run.take(0);
    stream.next().await.expect("a batch").expect("a batch");
    stream
        .next()
        .await
        .expect("an error")
        .expect_err("an error");
    let after = within("an end", SOON, stream.next()).await;
    assert!(after.is_none(), "{after:?}");
}

/// A plan that can't even start.
pub async fn a_plan_that_fails_to_start_is_an_error(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::failing_to_start("cannot begin");
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let outcome = run.take(0).try_collect::<Vec<_>>().await;
    let err = outcome.expect_err("it can't begin");
    let same =
        matches!(err.find_root(), DataFusionError::Execution(text) if text == "cannot begin");
    assert!(same, "{err:?}");
}

async fn panics(rig: &Rig, plan: Arc<ProbeExec>) {
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let stream = run.take(0).try_collect::<Vec<_>>();
    let outcome = within("an error", SOON, stream).await;
    let err = outcome.expect_err("a panic must not look like an end");
    let told = err.to_string().contains("the operator gave up");
    assert!(told, "the panic's message is lost: {err}");
}

fn panicking() -> Arc<ProbeExec> {
    ProbeExec::new(schema(), 1, |_| {
        let panic = stream::once(async { panic!("the operator gave up") });
        counting(2, 10).chain(panic).boxed()
    })
}

/// A producer that panics must not look like its end, and the user is told how (paradedb#5848, #6327).
pub async fn a_panic_is_an_error(t: Kit) {
    let rig = t.rig().await;
    panics(&rig, panicking()).await;
}

/// Nor one that panics where the plan starts.
pub async fn a_panic_at_the_start_is_an_error(t: Kit) {
    let rig = t.rig().await;
    panics(
        &rig,
        ProbeExec::new(schema(), 1, |_| panic!("the operator gave up")),
    )
    .await;
}

/// A worker that had a panic serves on, the same client and others (ClickHouse#112590).
pub async fn a_panic_leaves_the_worker_usable(t: Kit) {
    let rig = t.rig().await;
    let plan = panicking();
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let stream = run.take(0).try_collect::<Vec<_>>();
    // Which end that is, is another case's affair.
    let _ = within("an end", SOON, stream).await;
    task.finish().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(5, 10));
    let task = rig.set_plan(plan.clone()).await;
    rig.execute(&task, 0..2)
        .await
        .read_all()
        .await
        .expect("clean ends");
    task.finish().await;
    rig.released(&plan).await;
}

/// Asking for a partition that the plan doesn't have is an error that says so.
pub async fn an_unknown_partition_is_an_error(t: Kit) {
    let rig = t.rig().await;
    let task = rig
        .set_plan(ProbeExec::new(schema(), 1, |_| counting(1, 1)))
        .await;
    let mut run = rig.execute(&task, 5..6).await;
    let outcome = run.take(0).try_collect::<Vec<_>>().await;
    let err = outcome.expect_err("there is no such partition");
    assert!(err.to_string().contains("partition 5"), "{err}");
}

/// A task that no coordinator ever sets is an error, once the worker has waited for it (10 s, `impl_execute_task.rs`).
pub async fn an_unknown_task_is_an_error(t: Kit) {
    let rig = t.rig().await;
    let mut run = rig.call(new_key(), 0..1).send().await;
    let stream = run.take(0).try_collect::<Vec<_>>();
    let outcome = within("an error", Duration::from_secs(16), stream).await;
    let err = outcome.expect_err("there is no such task");
    assert!(err.to_string().contains("plan"), "{err}");
}

/// The coordinator channel's call resolves once the worker decoded the plan, so that a plan that it can't decode is the call's error, and it is over.
pub async fn a_plan_that_cannot_be_decoded_is_the_calls_error(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(1, 1));
    let unknown: Arc<dyn ExecutionPlan> = plan.unknown_to_workers();
    let outcome = within("an answer", SOON, rig.plan(unknown).send()).await;
    let err = outcome.map(|_| ()).expect_err("nobody can decode it");
    assert!(err.to_string().contains("no such probe"), "{err}");
    rig.idle().await;
}

/// A plan that arrives twice is refused, and the first one goes on (dfd#640, #712: a retry delivered it twice).
pub async fn a_second_plan_for_a_task_is_an_error(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(5, 10));
    let task = rig.set_plan(plan.clone()).await;
    // Whoever sends it: a client whose coordinator channel failed may take the query for failed.
    let call = rig.plan(plan.clone()).key(task.key);
    let again = call.by_another_client().send().await;
    let outcome: Result<()> = again.map(|_| ());
    let err = outcome.expect_err("it has one");
    assert!(err.to_string().contains("already"), "{err}");
    let parts = rig.execute(&task, 0..2).await.read_all().await;
    assert!(
        parts
            .expect("clean ends")
            .iter()
            .all(|batches| counts(batches, 0, 50))
    );
    task.metrics().await;
}
