//! What the integration tests share: a worker on each transport, and a plan that tells what happens to it.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod harness;
mod probe;

pub use harness::{Execution, Harness, Kind, Task};
pub use probe::{PartitionProbe, ProbeExec};

use std::time::{Duration, Instant};

/// Waits until a condition holds.
///
/// # Panics
/// After `limit`, naming what was waited for.
pub async fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Awaits a future.
///
/// # Panics
/// After `limit`, naming what was waited for.
pub async fn within<T>(what: &str, limit: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}
