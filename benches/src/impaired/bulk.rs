//! How many bytes cross the link while all partitions are read.

#![allow(clippy::unwrap_used)]

use crate::scenario::{Texts, array_bytes, batch};
use datafusion_transport_tests::{ProbeExec, Rig};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PARTITIONS: usize = 16;
/// Small enough that a slow link shows progress.
const ROWS: usize = 1024;

/// MB/s of array bytes over `span`, after a fifth of it in which the connection finds its pace.
pub async fn measure(rig: &Rig, span: Duration) -> f64 {
    let batch = batch(ROWS, Texts::Plain);
    let endless = batch.clone();
    let plan = ProbeExec::new(batch.schema(), PARTITIONS, move |_| {
        stream::repeat(endless.clone()).map(Ok).boxed()
    });
    let task = rig.set_plan(Arc::clone(&plan) as _).await;
    let execution = rig.execute(&task, 0..PARTITIONS).await;
    let bytes = Arc::new(AtomicU64::new(0));
    let readers = execution.streams.into_iter().map(|mut stream| {
        let bytes = Arc::clone(&bytes);
        tokio::spawn(async move {
            while let Some(batch) = stream.next().await {
                let length = array_bytes(&batch.unwrap()) as u64;
                bytes.fetch_add(length, Ordering::Relaxed);
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    tokio::time::sleep(span / 5).await;
    let (before, start) = (bytes.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(span).await;
    let moved = bytes.load(Ordering::Relaxed) - before;
    let seconds = start.elapsed().as_secs_f64();
    for reader in readers {
        reader.abort();
        let _ = reader.await;
    }
    drop(task);
    moved as f64 / seconds / 1e6
}
