//! Whether a lost packet of one partition delays the others.
//!
//! Every partition sends a message of about one packet at a steady pace. Of the messages of one tick, a lost packet takes
//! one or two: the delay of the median partition is that of partitions that lost nothing.

#![allow(clippy::unwrap_used)]

use crate::targets::quantile;
use arrow_array::{Int64Array, RecordBatch, StringArray, cast::AsArray, types::Int64Type};
use datafusion_transport_tests::{ProbeExec, Rig};
use futures::future::join_all;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PARTITIONS: usize = 9;
const PACE: Duration = Duration::from_millis(20);
/// With its headers a message fills most of a packet of 1500 bytes, and shares it with no other.
const TEXT_BYTES: usize = 700;

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as i64
}

fn message(tick: i64) -> RecordBatch {
    let text = "x".repeat(TEXT_BYTES);
    RecordBatch::try_from_iter([
        ("tick", Arc::new(Int64Array::from(vec![tick])) as _),
        ("sent", Arc::new(Int64Array::from(vec![now_ns()])) as _),
        ("text", Arc::new(StringArray::from(vec![text])) as _),
    ])
    .unwrap()
}

/// Median and 99th percentile in milliseconds, over the ticks of `span`, of the time that the median partition's message took.
pub async fn measure(rig: &Rig, span: Duration) -> (f64, f64) {
    let ticks = (span.as_millis() / PACE.as_millis()) as i64;
    let start = tokio::time::Instant::from_std(Instant::now() + Duration::from_millis(500));
    let plan = ProbeExec::new(message(0).schema(), PARTITIONS, move |_| {
        let pace = tokio::time::interval_at(start, PACE);
        let sent = stream::unfold((pace, 0), move |(mut pace, tick)| async move {
            pace.tick().await;
            (tick < ticks).then(|| (Ok(message(tick)), (pace, tick + 1)))
        });
        sent.boxed()
    });
    let task = rig.set_plan(Arc::clone(&plan) as _).await;
    let streams = rig.execute(&task, 0..PARTITIONS).await.streams;
    let readers = streams.into_iter().map(|mut stream| async move {
        let mut delays = vec![];
        while let Some(batch) = stream.next().await {
            let (batch, now) = (batch.unwrap(), now_ns());
            let ticks = batch.column(0).as_primitive::<Int64Type>();
            let sent = batch.column(1).as_primitive::<Int64Type>();
            let rows = ticks.values().iter().zip(sent.values());
            delays.extend(rows.map(|(tick, sent)| (*tick, (now - sent) as f64 / 1e6)));
        }
        delays
    });
    let readers: Vec<_> = readers.map(tokio::spawn).collect();
    let mut by_tick: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for delays in join_all(readers).await {
        for (tick, delay) in delays.unwrap() {
            by_tick.entry(tick).or_default().push(delay);
        }
    }
    drop(task);
    let medians = by_tick.into_values().map(|delays| quantile(delays, 0.5));
    let medians: Vec<_> = medians.collect();
    (quantile(medians.clone(), 0.5), quantile(medians, 0.99))
}
