//! Time that a user waits: one small call, a new connection, siblings of a partition that nobody reads.

#![allow(clippy::unwrap_used)]

use crate::rounds::{Runner, Stopwatch};
use crate::samples::Sample;
use crate::scenario::Scenario;
use crate::transfer::{Transfer, drain, end};
use async_trait::async_trait;
use datafusion_transport_tests::ChannelHarness;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;

/// One batch of 8 rows.
fn one_batch(name: &str) -> Scenario {
    Scenario::of_bytes(name, 1, 8, 1)
}

/// One partition with one small batch, from the call to the stream's end, over a connection that is there.
pub struct WarmCall(Transfer);

impl WarmCall {
    /// Starts a worker and a client.
    pub async fn start(harness: Arc<dyn ChannelHarness>) -> Self {
        Self(Transfer::start(harness, &one_batch("warm call")).await)
    }
}

#[async_trait]
impl Runner for WarmCall {
    fn subject(&self) -> &str {
        self.0.subject()
    }

    async fn run(&mut self) -> Sample {
        let task = self.0.set_plan().await;
        let stopwatch = Stopwatch::start();
        let streams = self.0.client().execute(task.key, 0..1).await;
        let batches: Vec<_> = streams
            .into_iter()
            .next()
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        let sample = stopwatch.stop();
        assert_eq!(batches.len(), 1);
        end(task).await;
        sample
    }
}

/// From a process that has no connection to its first row.
pub struct NewConnection(Transfer);

impl NewConnection {
    /// Starts a worker.
    pub async fn start(harness: Arc<dyn ChannelHarness>) -> Self {
        Self(Transfer::start(harness, &one_batch("new connection")).await)
    }
}

#[async_trait]
impl Runner for NewConnection {
    fn subject(&self) -> &str {
        self.0.subject()
    }

    async fn run(&mut self) -> Sample {
        let task = self.0.set_plan().await;
        let client = self.0.new_client();
        let stopwatch = Stopwatch::start();
        let mut streams = client.execute(task.key, 0..1).await;
        let batch = streams.first_mut().unwrap().next().await.unwrap();
        let sample = stopwatch.stop();
        batch.unwrap();
        drain(streams).await;
        end(task).await;
        sample
    }
}

/// Seven partitions are read, beside an eighth that is never polled, or alone.
pub struct Siblings {
    subject: String,
    transfer: Transfer,
    stalled: bool,
}

impl Siblings {
    /// Bytes of a partition.
    pub const PARTITION_BYTES: usize = 100_000_000;
    /// Partitions of the task.
    pub const PARTITIONS: usize = 8;

    /// Starts a worker and a client.
    pub async fn start(harness: Arc<dyn ChannelHarness>, stalled: bool) -> Self {
        let subject = match stalled {
            true => harness.name().to_owned(),
            false => alone(harness.name()),
        };
        let bytes = Self::PARTITIONS * Self::PARTITION_BYTES;
        let scenario = Scenario::of_bytes("stalled sibling", Self::PARTITIONS, 8192, bytes);
        let transfer = Transfer::start(harness, &scenario).await;
        Self {
            subject,
            transfer,
            stalled,
        }
    }
}

/// The name of a subject's run without the stalled partition.
pub fn alone(subject: &str) -> String {
    format!("{subject} alone")
}

#[async_trait]
impl Runner for Siblings {
    fn subject(&self) -> &str {
        &self.subject
    }

    async fn run(&mut self) -> Sample {
        let task = self.transfer.set_plan().await;
        let read = Self::PARTITIONS - 1;
        let called = read + usize::from(self.stalled);
        let stopwatch = Stopwatch::start();
        let mut streams = self.transfer.client().execute(task.key, 0..called).await;
        let unread = streams.split_off(read);
        let rows = drain(streams).await;
        let sample = stopwatch.stop();
        assert_eq!(rows, self.transfer.rows_of(read));
        drop(unread);
        end(task).await;
        sample
    }
}
