//! The coordinator channel: what both sides say on it besides metrics.

use super::Kit;
use crate::feed::{FeedExec, Unit};
use crate::probe::ProbeExec;
use crate::rig::{Rig, Task};
use crate::rows::{counting, schema, values};
use crate::service::Script;
use crate::wait::{SOON, within};
use datafusion::common::{DataFusionError, exec_datafusion_err};
use datafusion_distributed::{
    CoordinatorToWorkerMsg, LoadInfo, MaybeEncoded, WorkUnitBatch, WorkUnitMsg,
    WorkerToCoordinatorMsg,
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The call resolves once the worker has decoded the plan, and waits for nothing that the coordinator says: it may say nothing for long
/// (`query_coordinator.rs`).
pub async fn a_plan_is_accepted_before_anything_else_is_said(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(1, 1));
    let call = rig.plan(plan.clone()).saying(stream::pending()).send();
    let task = within("the plan is accepted", SOON, call).await;
    let _task = task.expect("the plan is accepted");
}

/// The channel stays open, and mostly silent, for the whole query: idle timeouts must allow it.
pub async fn a_silent_channel_lives_on(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(3, 10));
    let mut task = rig.set_plan(plan.clone()).await;
    let first = task.from_worker.next().await.expect("load info's end");
    first.expect("load info's end");
    t.progress.made();
    let silence = tokio::time::timeout(Duration::from_secs(6), task.from_worker.next()).await;
    assert!(silence.is_err(), "the channel ended unasked");
    rig.execute(&task, 0..1)
        .await
        .read_all()
        .await
        .expect("clean ends");
    task.metrics().await;
}

fn unit(id: Uuid, partition: usize, number: u64, ballast: usize) -> WorkUnitMsg {
    let body = Unit {
        number,
        ballast: vec![7; ballast],
    };
    WorkUnitMsg {
        id,
        partition,
        body: MaybeEncoded::Encoded(body.encode_to_vec()),
        created_timestamp_unix_nanos: 1,
        sent_timestamp_unix_nanos: 2,
        received_timestamp_unix_nanos: 3,
        processed_timestamp_unix_nanos: 4,
    }
}

fn units(batch: Vec<WorkUnitMsg>) -> CoordinatorToWorkerMsg {
    CoordinatorToWorkerMsg::WorkUnitBatch(WorkUnitBatch { batch })
}

/// A task that gives back its work units, as many feeds as partitions.
async fn fed(
    rig: &Rig,
    id: Uuid,
    partitions: usize,
    messages: Vec<CoordinatorToWorkerMsg>,
) -> Task {
    let call = rig
        .plan(Arc::new(FeedExec::new(id, partitions)))
        .feed(id, partitions);
    let task = call.saying(stream::iter(messages)).send().await;
    task.expect("the plan is accepted")
}

/// Work units reach the partition they are for, in order, and all of them.
pub async fn work_units_arrive_in_order(t: Kit) {
    let rig = t.rig().await;
    let id = Uuid::new_v4();
    let batch = |i: u64| {
        units(
            (0..10)
                .map(|j| unit(id, (j % 3) as usize, i * 10 + j, 0))
                .collect(),
        )
    };
    let mut messages: Vec<_> = (0..100).map(batch).collect();
    messages.push(CoordinatorToWorkerMsg::WorkUnitEos);
    let task = fed(&rig, id, 3, messages).await;
    let parts = rig.execute(&task, 0..3).await.read_all().await;
    for (p, batches) in parts.expect("clean ends").iter().enumerate() {
        let expected = (0..1000).filter(|n| n % 10 % 3 == p as i64);
        assert!(values(batches).into_iter().eq(expected), "partition {p}");
    }
}

/// From none at all to megabytes.
pub async fn work_units_of_any_size_arrive(t: Kit) {
    let rig = t.rig().await;
    let id = Uuid::new_v4();
    let sizes = [0, 1, 1000, 3_000_000, 17];
    let mut messages: Vec<_> = sizes.map(|size| units(vec![unit(id, 0, 0, size)])).into();
    messages.push(units(vec![]));
    messages.push(CoordinatorToWorkerMsg::WorkUnitEos);
    let task = fed(&rig, id, 1, messages).await;
    let parts = rig
        .execute(&task, 0..1)
        .await
        .read_all()
        .await
        .expect("clean ends");
    assert_eq!(values(&parts[0]), sizes.map(|size| size as i64));
}

/// The end of work units ends the feeds, while the channel itself goes on.
pub async fn the_end_of_work_units_ends_their_feeds(t: Kit) {
    let rig = t.rig().await;
    let id = Uuid::new_v4();
    let messages = vec![
        units(vec![unit(id, 1, 5, 0)]),
        CoordinatorToWorkerMsg::WorkUnitEos,
    ];
    let mut task = fed(&rig, id, 2, messages).await;
    let parts = rig.execute(&task, 0..2).await.read_all();
    let parts = within("the feeds end", SOON, parts)
        .await
        .expect("clean ends");
    assert_eq!((values(&parts[0]), values(&parts[1])), (vec![], vec![5]));
    task.from_worker
        .next()
        .await
        .expect("load info's end")
        .expect("load info's end");
    assert!(
        task.from_worker.next().now_or_never().is_none(),
        "the channel ended"
    );
    task.metrics().await;
}

/// Every field of every message to the worker, in order, to the clean end.
pub async fn messages_to_the_worker_arrive_as_they_were_sent(t: Kit) {
    let script = Script::new(stream::empty());
    let rig = t.rig_of(script.clone()).await;
    let ids = [Uuid::new_v4(), Uuid::nil()];
    let body = vec![0, 255, 7];
    let mut batch: Vec<_> = (0..50).map(|i| unit(ids[i % 2], i, i as u64, i)).collect();
    batch[7].body = MaybeEncoded::Encoded(body.clone());
    batch[8].partition = u32::MAX as usize + 5;
    batch[9].created_timestamp_unix_nanos = 1_700_000_000_123_456_789;
    let messages = vec![units(batch), CoordinatorToWorkerMsg::WorkUnitEos];
    let plan = ProbeExec::new(schema(), 1, |_| counting(1, 1));
    let call = rig.plan(plan.clone()).saying(stream::iter(messages)).send();
    let mut task = call.await.expect("the plan is accepted");
    task.end();
    let heard = within("all is heard", SOON, script.heard())
        .await
        .expect("a clean end");
    let [
        CoordinatorToWorkerMsg::WorkUnitBatch(batch),
        CoordinatorToWorkerMsg::WorkUnitEos,
    ] = heard.as_slice()
    else {
        panic!("{} messages were heard", heard.len());
    };
    assert_eq!(batch.batch.len(), 50);
    for (i, got) in batch.batch.iter().enumerate() {
        assert_eq!(got.id, ids[i % 2]);
        let (partition, created) = match i {
            8 => (u32::MAX as usize + 5, 1),
            9 => (9, 1_700_000_000_123_456_789),
            i => (i, 1),
        };
        assert_eq!(
            (got.partition, got.created_timestamp_unix_nanos),
            (partition, created)
        );
        let times = (
            got.sent_timestamp_unix_nanos,
            got.received_timestamp_unix_nanos,
            got.processed_timestamp_unix_nanos,
        );
        assert_eq!(times, (2, 3, 4));
        let MaybeEncoded::Encoded(bytes) = &got.body else {
            panic!("a decoded body")
        };
        match i {
            7 => assert_eq!(bytes, &body),
            i => assert_eq!(
                Unit::decode(bytes.as_slice()).expect("a unit").number,
                i as u64
            ),
        }
    }
}

/// Load info in order, every field of it, its end after it.
pub async fn load_info_arrives_as_it_was_sent(t: Kit) {
    let info = |i: usize| LoadInfo {
        partition: i,
        rows_ready: i * 1_000_000_007,
        per_column_bytes_ready: (0..i % 5).map(|c| c << 40).collect(),
        per_column_ndv_percentage: (0..i % 5).map(|c| c as f32 / 7.0).collect(),
        per_column_null_percentage: vec![f32::MIN_POSITIVE; i % 3],
        rows_pulled_from_leaf: usize::MAX >> i,
        reached_eos: i.is_multiple_of(2),
    };
    let infos = (0..60).map(move |i| Ok(WorkerToCoordinatorMsg::LoadInfo(info(i))));
    let end = stream::once(async { Ok(WorkerToCoordinatorMsg::LoadInfoEos) });
    let rig = t.rig_of(Script::new(stream::iter(infos).chain(end))).await;
    let task = rig
        .set_plan(ProbeExec::new(schema(), 1, |_| counting(1, 1)))
        .await;
    let said = task.finish().await;
    assert_eq!(said.len(), 61);
    for (i, message) in said.iter().take(60).enumerate() {
        let WorkerToCoordinatorMsg::LoadInfo(got) = message else {
            panic!("no load info")
        };
        let sent = info(i);
        assert_eq!(
            (got.partition, got.rows_ready),
            (sent.partition, sent.rows_ready)
        );
        assert_eq!(got.per_column_bytes_ready, sent.per_column_bytes_ready);
        assert_eq!(
            got.per_column_ndv_percentage,
            sent.per_column_ndv_percentage
        );
        assert_eq!(
            got.per_column_null_percentage,
            sent.per_column_null_percentage
        );
        assert_eq!(
            (got.rows_pulled_from_leaf, got.reached_eos),
            (sent.rows_pulled_from_leaf, sent.reached_eos)
        );
    }
    assert!(matches!(said[60], WorkerToCoordinatorMsg::LoadInfoEos));
}

/// The dynamic planner waits for it: it comes while the query runs, and once.
pub async fn the_end_of_load_info_arrives_once(t: Kit) {
    let rig = t.rig().await;
    let mut task = rig
        .set_plan(ProbeExec::new(schema(), 1, |_| counting(1, 1)))
        .await;
    let first = within("load info's end", SOON, task.from_worker.next()).await;
    let first = first.expect("a message").expect("a message");
    assert!(matches!(first, WorkerToCoordinatorMsg::LoadInfoEos));
    let said = task.finish().await;
    let ends = said
        .iter()
        .filter(|m| matches!(m, WorkerToCoordinatorMsg::LoadInfoEos));
    assert_eq!(ends.count(), 0, "it came again");
}

/// A worker that has said its last still hears what the coordinator has to say.
pub async fn the_workers_end_leaves_the_coordinators_direction(t: Kit) {
    let script = Script::new(stream::empty());
    let rig = t.rig_of(script.clone()).await;
    let (say, said) = tokio::sync::mpsc::channel(1);
    let messages = stream::unfold(said, async |mut said| Some((said.recv().await?, said)));
    let call = rig
        .plan(ProbeExec::new(schema(), 1, |_| counting(1, 1)))
        .saying(messages);
    let mut task = call.send().await.expect("the plan is accepted");
    assert!(
        within("the worker's end", SOON, task.from_worker.next())
            .await
            .is_none()
    );
    say.send(CoordinatorToWorkerMsg::WorkUnitEos)
        .await
        .expect("somebody listens");
    drop(say);
    task.end();
    let heard = within("all is heard", SOON, script.heard())
        .await
        .expect("a clean end");
    assert_eq!(heard.len(), 1);
}

/// An error that the worker says is the channel's last word, as the variant it was.
pub async fn an_error_of_the_worker_ends_the_channel(t: Kit) {
    let said = [
        Ok(WorkerToCoordinatorMsg::LoadInfoEos),
        Err(DataFusionError::ResourcesExhausted("no memory".into())),
        Err(exec_datafusion_err!("never heard")),
    ];
    let rig = t.rig_of(Script::new(stream::iter(said))).await;
    let mut task = rig
        .set_plan(ProbeExec::new(schema(), 1, |_| counting(1, 1)))
        .await;
    let first = task.from_worker.try_next().await.expect("a message");
    assert!(matches!(first, Some(WorkerToCoordinatorMsg::LoadInfoEos)));
    let err = task
        .from_worker
        .try_next()
        .await
        .map(|_| ())
        .expect_err("an error");
    let same =
        matches!(err.find_root(), DataFusionError::ResourcesExhausted(text) if text == "no memory");
    assert!(same, "{err:?}");
    assert!(
        within("an end", SOON, task.from_worker.next())
            .await
            .is_none()
    );
}
