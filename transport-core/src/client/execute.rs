//! [`ExecuteCall`]: one `execute_task`, which is one stream per partition (`docs/protocol.md`, C-5 to C-7).
//!
//! Nothing leaves this process before some partition of the call is polled. Then the streams of them all are opened, by whoever polls as far
//! as that needs no waiting, each with its own request. Partitions that were dropped by then are released on the worker instead, and if all are
//! dropped unpolled, one release call stands for the whole range.

use crate::client::credit::{CallMemory, Window};
use crate::client::metrics::BoundaryMetrics;
use crate::client::partition::PartitionStream;
use crate::client::pool::{Lease, Pool};
use crate::client::queries::Query;
use crate::connection::StreamClass;
use crate::error::TransportError;
use crate::framed::{FrameReader, FrameWriter};
use crate::wire::call::TaskCalls;
use crate::wire::frame::FrameKind;
use datafusion::common::Result;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use url::Url;

/// How long a release may take: the worker waits some seconds for a plan that is still under way.
const RELEASE_LIMIT: Duration = Duration::from_secs(15);

/// A partition's stream, opened, its request sent.
pub(super) struct OpenPartition {
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
    pub(super) window: Window,
    pub(super) _lease: Lease,
}

impl Drop for OpenPartition {
    /// Finishing rather than resetting lets the request arrive even if it is still under way: the worker must start and
    /// drop a partition that nobody wants any more (C-7). The dropped reader tells the worker to stop.
    fn drop(&mut self) {
        self.writer.finish();
    }
}

/// What an opener hands to a partition's reader.
pub(super) type Opening = Result<OpenPartition>;

/// A call that is ready to start.
pub(super) struct ExecuteCall {
    pub(super) pool: Arc<Pool>,
    pub(super) url: Url,
    pub(super) limit: Duration,
    pub(super) calls: TaskCalls,
    pub(super) partitions: Range<usize>,
    pub(super) memory: CallMemory,
}

/// Starts a call once, at the first poll of any partition; or releases it if it is dropped unstarted.
pub(super) struct Starter(Mutex<Option<(ExecuteCall, Vec<oneshot::Sender<Opening>>)>>);

impl ExecuteCall {
    /// The call's streams, in partition order. Sends nothing.
    pub(super) fn into_streams(
        self,
        query: Arc<Query>,
        metrics: Arc<BoundaryMetrics>,
    ) -> Vec<PartitionStream> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            self.partitions.clone().map(|_| oneshot::channel()).unzip();
        let url: Arc<str> = self.url.as_str().into();
        let starter = Arc::new(Starter(Mutex::new(Some((self, senders)))));
        let stream = |receiver| {
            let (starter, metrics) = (Arc::clone(&starter), Arc::clone(&metrics));
            let query = Arc::clone(&query);
            PartitionStream::new(starter, receiver, query, metrics, Arc::clone(&url))
        };
        receivers.into_iter().map(stream).collect()
    }

    /// Opens the partitions that somebody still wants, releases the others.
    async fn open_all(self, slots: Vec<oneshot::Sender<Opening>>) {
        let peer: Arc<str> = self.url.as_str().into();
        let mut lease = Ok(None);
        let mut unwanted = vec![];
        for (partition, slot) in self.partitions.clone().zip(slots) {
            if slot.is_closed() {
                unwanted.push(partition);
                continue;
            }
            let opening = self.open(partition, &peer, &mut lease).await;
            if opening.is_err() {
                unwanted.push(partition);
            }
            let _ = slot.send(opening);
        }
        if lease.is_err() {
            return;
        }
        let releases = contiguous(&unwanted).into_iter();
        futures::future::join_all(releases.map(|partitions| self.release(partitions))).await;
    }

    /// Opens one partition's stream and sends its request. The first one chooses the connection for all.
    /// If that fails, it fails for all: a worker that can't be reached is not dialled once per partition.
    async fn open(
        &self,
        partition: usize,
        peer: &Arc<str>,
        chosen: &mut Result<Option<Lease>, TransportError>,
    ) -> Opening {
        let window = self.memory.window()?;
        let (stream, lease) = match chosen {
            Err(err) => return Err(err.clone().into()),
            Ok(Some(lease)) => {
                let (opened, lease) = (lease.open(StreamClass::Bulk).await, lease.clone());
                // The next one would wait as long for a stream.
                if let Err(err) = &opened {
                    *chosen = Err(err.clone());
                }
                (opened?, lease)
            }
            Ok(None) => {
                let opened = self.pool.open(&self.url, StreamClass::Bulk, self.limit);
                let opened = opened.await;
                *chosen = opened
                    .as_ref()
                    .map(|(_, lease)| Some(lease.clone()))
                    .map_err(Clone::clone);
                opened?
            }
        };
        let mut opened = OpenPartition {
            reader: FrameReader::new(stream.recv, "read partition from", Arc::clone(peer))
                .with_batches(),
            writer: FrameWriter::new(stream.send),
            window,
            _lease: lease,
        };
        let call = self.calls.partition(partition, opened.window.size());
        // A worker that refused may have stopped reading: its answer tells more than the failed write.
        let _ = opened.writer.send(FrameKind::Call, 0, call).await;
        Ok(opened)
    }

    /// Tells the worker to start and drop partitions. A failure has nobody to go to: a lost connection releases them too.
    async fn release(&self, partitions: Range<usize>) {
        let release = async {
            let opened = self.pool.open(&self.url, StreamClass::Control, self.limit);
            let Ok((stream, _lease)) = opened.await else {
                return;
            };
            let mut writer = FrameWriter::new(stream.send);
            let mut reader = FrameReader::new(stream.recv, "release", self.url.to_string());
            let call = self.calls.release(partitions);
            if writer.send(FrameKind::Call, 0, call).await.is_ok() {
                let _ = reader.next().await;
                writer.finish();
            }
        };
        let _ = tokio::time::timeout(RELEASE_LIMIT, release).await;
    }
}

impl Starter {
    /// Opens the call's streams, the first time it is called.
    pub(super) fn start(&self) {
        if let Some((call, slots)) = self.take() {
            let pool = Arc::clone(&call.pool);
            pool.begin(call.open_all(slots));
        }
    }

    fn take(&self) -> Option<(ExecuteCall, Vec<oneshot::Sender<Opening>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        if let Some((call, _)) = self.take() {
            let pool = Arc::clone(&call.pool);
            pool.spawn(async move { call.release(call.partitions.clone()).await });
        }
    }
}

/// Groups ascending numbers into ranges.
fn contiguous(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = vec![];
    for number in numbers {
        match ranges.last_mut() {
            Some(range) if range.end == *number => range.end += 1,
            _ => ranges.push(*number..*number + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_released_together() {
        assert!(contiguous(&[]).is_empty());
        assert_eq!(contiguous(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
    }
}
