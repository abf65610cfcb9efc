//! Waits with a deadline, for tests.

use std::time::{Duration, Instant};

/// What should take moments: a limit that only a hang reaches, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(20);

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

/// Gives time to something that must not happen: there is no event to wait for.
///
/// # Panics
/// As soon as it happens.
pub async fn never(what: &str, time: Duration, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < time {
        assert!(!happened(), "it happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
