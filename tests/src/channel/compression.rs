//! Compression is the producer's session's choice.

use super::Kit;
use crate::probe::ProbeExec;
use crate::rig::compression;
use crate::rows::{counts, numbers, schema};
use futures::{StreamExt, TryStreamExt, stream};

const BATCHES: usize = 20;
const ROWS: usize = 8192;

/// Bytes on the wire per byte of data, for data that compresses well.
async fn ratio(t: &Kit, value: &str) -> f64 {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| {
        let batch = |i| Ok(numbers(i * ROWS, ROWS));
        stream::iter((0..BATCHES).map(batch)).boxed()
    });
    let call = rig.plan(plan.clone()).headers(compression(value)).send();
    let task = call.await.expect("the plan is accepted");
    let mut run = rig.execute(&task, 0..1).await;
    let batches = run
        .take(0)
        .try_collect::<Vec<_>>()
        .await
        .expect("a clean end");
    assert!(counts(&batches, 0, BATCHES * ROWS));
    run.metric("bytes_transferred") as f64 / (BATCHES * ROWS * 8) as f64
}

/// No compression where the session wants none: it may be the processor that is short (dfd#301).
pub async fn none_is_honoured(t: Kit) {
    let ratio = ratio(&t, "none").await;
    assert!((1.0..1.1).contains(&ratio), "{ratio}");
}

/// LZ4 (dfd#301).
pub async fn lz4_is_honoured(t: Kit) {
    let ratio = ratio(&t, "lz4").await;
    assert!(ratio < 0.7, "{ratio}");
}

/// Zstandard, which compresses these data better than LZ4 does (dfd#301).
pub async fn zstd_is_honoured(t: Kit) {
    let (lz4, zstd) = (ratio(&t, "lz4").await, ratio(&t, "zstd").await);
    assert!(zstd < lz4 * 0.9, "{zstd}, with LZ4 {lz4}");
}

/// A value that nobody knows is an error that names it, at the latest when data are asked for (dfd#301).
pub async fn an_unknown_value_is_an_error(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| {
        stream::once(async { Ok(numbers(0, 1)) }).boxed()
    });
    let call = rig.plan(plan.clone()).headers(compression("snappy")).send();
    let err = match call.await {
        Err(err) => err,
        Ok(task) => {
            let mut run = rig.execute(&task, 0..1).await;
            let outcome = run.take(0).try_collect::<Vec<_>>().await;
            outcome.expect_err("nobody knows it")
        }
    };
    assert!(err.to_string().contains("snappy"), "{err}");
}
