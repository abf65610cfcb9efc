//! How long one small call takes over a warm connection.

#![allow(clippy::unwrap_used)]

use crate::scenario::{Texts, batch};
use crate::targets::quantile;
use crate::transfer::{drain, end};
use datafusion_transport_tests::{ProbeExec, Rig};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Median and 99th percentile in milliseconds, of as many calls as fit into `span`: from the call to the stream's end.
pub async fn measure(rig: &Rig, span: Duration) -> (f64, f64) {
    let batch = batch(8, Texts::Plain);
    let one = batch.clone();
    let plan = ProbeExec::new(batch.schema(), 1, move |_| {
        stream::iter([Ok(one.clone())]).boxed()
    });
    let mut taken = vec![];
    let start = Instant::now();
    while start.elapsed() < span {
        let task = rig.set_plan(Arc::clone(&plan) as _).await;
        let called = Instant::now();
        let streams = rig.execute(&task, 0..1).await.streams;
        assert_eq!(drain(streams).await, 8);
        taken.push(called.elapsed().as_secs_f64() * 1e3);
        end(task).await;
    }
    (quantile(taken.clone(), 0.5), quantile(taken, 0.99))
}
