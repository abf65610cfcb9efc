//! [`Timeline`]: what siblings of a partition that nobody polls have received, as time goes on.

#![allow(clippy::unwrap_used)]

use crate::scenario::{Scenario, array_bytes};
use crate::transfer::Transfer;
use crate::waiting::Siblings;
use anyhow::{Context, Result};
use datafusion_transport_tests::ChannelHarness;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One subject's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timeline {
    /// The subject.
    pub subject: String,
    /// Seconds since the call, and bytes that the siblings have received by then.
    pub points: Vec<(f64, f64)>,
}

const EVERY: Duration = Duration::from_millis(20);
/// A subject that hangs is given up after this.
const LIMIT: Duration = Duration::from_secs(3);

const FILE: &str = "timeline/stalled-sibling.json";

impl Timeline {
    /// Takes one: seven partitions of 100 MB are read, an eighth is not.
    pub async fn take(harness: Arc<dyn ChannelHarness>) -> Self {
        let subject = harness.name().to_owned();
        let bytes = Siblings::PARTITIONS * Siblings::PARTITION_BYTES;
        let scenario = Scenario::of_bytes("stalled sibling", Siblings::PARTITIONS, 8192, bytes);
        let transfer = Transfer::start(harness, &scenario).await;
        let task = transfer.set_plan().await;
        let received = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let mut streams = transfer
            .client()
            .execute(task.key, 0..Siblings::PARTITIONS)
            .await;
        let unread = streams.pop();
        let readers = streams.into_iter().map(|mut stream| {
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                while let Some(batch) = stream.next().await {
                    let bytes = array_bytes(&batch.unwrap()) as u64;
                    received.fetch_add(bytes, Ordering::Relaxed);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        let mut points = vec![(0.0, 0.0)];
        while start.elapsed() < LIMIT && !readers.iter().all(|reader| reader.is_finished()) {
            tokio::time::sleep(EVERY).await;
            let bytes = received.load(Ordering::Relaxed);
            points.push((start.elapsed().as_secs_f64(), bytes as f64));
        }
        for reader in readers {
            reader.abort();
            let _ = reader.await;
        }
        drop((unread, task));
        Self { subject, points }
    }

    /// Keeps them below `dir`, in place of older ones.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub fn save(all: &[Self], dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        let text = serde_json::to_string(all)?;
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, text))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Those that are kept below `dir`; none where none were taken.
    ///
    /// # Errors
    /// Where the file is something else.
    pub fn load(dir: &Path) -> Result<Vec<Self>> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} has no time lines", path.display())),
            Err(_) => Ok(vec![]),
        }
    }
}
