//! What a call carries besides data.

use super::Kit;
use crate::feed::FeedExec;
use crate::probe::{PartitionProbe, ProbeExec};
use crate::rig::WORKER_VERSION;
use crate::rows::{counting, counting_from, counts, schema, values};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::Partitioning;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, GetWorkerInfoRequest, MaybeEncoded, ProducerHead,
};
use futures::{TryStreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use uuid::Uuid;

/// Exactly one stream per partition of the range, in the partitions' order, and no other partition is touched (`WorkerChannel`).
pub async fn a_call_gives_a_stream_per_partition_in_order(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 9, |p| counting_from(p * 1000, 2, 10));
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.execute(&task, 3..7).await;
    assert_eq!(run.streams.len(), 4);
    let parts = run.read_all().await.expect("clean ends");
    for (batches, p) in parts.iter().zip(3..) {
        assert!(
            counts(batches, p * 1000, 20),
            "partition {p}: {:?}",
            values(batches)
        );
    }
    assert_eq!(plan.total(PartitionProbe::executed), 4);
}

/// A range without partitions is a call without streams.
pub async fn an_empty_range_gives_no_streams(t: Kit) {
    let rig = t.rig().await;
    let task = rig
        .set_plan(ProbeExec::new(schema(), 2, |_| counting(1, 1)))
        .await;
    assert_eq!(rig.execute(&task, 1..1).await.streams.len(), 0);
}

/// The engine drops the channel while its streams live: streams own what they need. The registry may be dropped too.
pub async fn streams_outlive_their_channel(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(20, 1000));
    let task = rig.set_plan(plan.clone()).await;
    // The channel is dropped inside.
    let run = rig.execute(&task, 0..2).await;
    let parts = run.read_all().await.expect("clean ends");
    assert!(parts.iter().all(|batches| counts(batches, 0, 20_000)));
    task.metrics().await;
}

async fn headers_arrive(t: Kit, headers: HeaderMap) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(1, 1));
    let sent = rig.plan(plan.clone()).headers(headers.clone()).send().await;
    sent.expect("the plan is accepted").finish().await;
    let seen = rig.headers_seen();
    assert_eq!(seen.len(), 1, "one session for one plan");
    for name in headers.keys() {
        let values = |map: &HeaderMap| -> Vec<HeaderValue> {
            map.get_all(name).into_iter().cloned().collect()
        };
        assert!(
            values(&seen[0]) == values(&headers),
            "{name} arrived otherwise"
        );
    }
}

/// Headers carry configuration, credentials and trace ids to the session builder. A name may have several values, whose order means something,
/// and values may hold any byte that HTTP allows (dfd#340, #544).
pub async fn headers_arrive_as_they_were_sent(t: Kit) {
    let mut headers = HeaderMap::new();
    for value in ["first", "", "second", "first"] {
        headers.append("x-repeated", value.parse().expect("a value"));
    }
    let bytes = HeaderValue::from_bytes(b"gr\xc3\xb6\xc3\x9fe \xff\xfe").expect("a value");
    headers.insert("x-not-ascii", bytes);
    headers.insert("traceparent", HeaderValue::from_static("00-ab-cd-01"));
    headers_arrive(t, headers).await;
}

/// Up to 64 KiB of them (dfd#340).
pub async fn large_headers_arrive(t: Kit) {
    let mut headers = HeaderMap::new();
    for number in 0..15 {
        let name: HeaderName = format!("x-large-{number}").parse().expect("a name");
        let value = format!("{number:04096}");
        headers.insert(name, value.parse().expect("a value"));
    }
    headers_arrive(t, headers).await;
}

/// A newer coordinator may send options that an older worker does not know (dfd#380, #511).
pub async fn unknown_options_pass_through(t: Kit) {
    let mut headers = HeaderMap::new();
    for name in [
        "distributed.of_tomorrow",
        "transport.of_tomorrow",
        "unheard.of",
    ] {
        let name = format!("x-datafusion-distributed-config-{name}");
        let name: HeaderName = name.parse().expect("a name");
        headers.insert(name, HeaderValue::from_static("42"));
    }
    headers_arrive(t, headers).await;
}

/// A worker says who it is before it has any plan: that is how versions are told apart (dfd#380).
pub async fn worker_info_needs_no_plan(t: Kit) {
    let rig = t.rig().await;
    for _ in 0..3 {
        let mut channel = rig.channel().await;
        let info = channel.get_worker_info(GetWorkerInfoRequest {}).await;
        assert_eq!(info.expect("an answer").version, WORKER_VERSION);
    }
}

/// The head that the consumer asks for is put on the plan, with its expressions: a shuffle's partitions are made by the producer.
pub async fn heads_are_put_on_the_plan(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |p| counting_from(p * 5000, 5, 1000));
    let task = rig.set_plan(plan.clone()).await;
    let column = Arc::new(Column::new("n", 0));
    let partitioning = MaybeEncoded::Decoded(Partitioning::Hash(vec![column], 4));
    let head = ProducerHead::RepartitionExec { partitioning };
    let run = rig.call(task.key, 0..4).head(head).send().await;
    let parts = run.read_all().await.expect("clean ends");
    assert!(parts.iter().all(|batches| !values(batches).is_empty()));
    let mut all: Vec<_> = parts.iter().flat_map(|batches| values(batches)).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..10_000));
}

/// The plan crosses by the user's codec, both for nodes and for what they need.
pub async fn user_codecs_are_used(t: Kit) {
    let rig = t.rig().await;
    let id = Uuid::new_v4();
    let no_units = stream::iter([CoordinatorToWorkerMsg::WorkUnitEos]);
    let call = rig.plan(Arc::new(FeedExec::new(id, 1))).feed(id, 1);
    let task = call
        .saying(no_units)
        .send()
        .await
        .expect("the plan is accepted");
    let mut run = rig.execute(&task, 0..1).await;
    let rows = run
        .take(0)
        .try_collect::<Vec<_>>()
        .await
        .expect("a clean end");
    assert!(rows.is_empty());
}
