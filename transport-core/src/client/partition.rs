//! [`PartitionStream`]: the consumer's end of a partition, from the network to record batches.
//!
//! It is read and decoded by whoever polls it: no task stands between the socket and the consumer, and a partition that
//! nobody polls costs nobody anything.

use crate::client::channel::remote_error;
use crate::client::execute::{OpenPartition, Opening, Starter};
use crate::client::metrics::BoundaryMetrics;
use crate::client::queries::Query;
use crate::error::{ErrorKind, TransportError};
use crate::wire::batch::BatchDecoder;
use crate::wire::frame::{FLAG_WAITED_FOR_CREDIT, Frame, FrameKind, HEADER_BYTES};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::sync::oneshot;

/// The batches of one partition. Does nothing before the first poll, which starts its whole call. Fails as soon as a
/// coordinator channel of its query, held by this process, fails. Dropping it releases the partition on the worker, whether
/// it was started or not.
pub(super) struct PartitionStream {
    state: State,
    decoder: BatchDecoder,
    /// The reader has waited since the last batch.
    waited: bool,
    query: Arc<Query>,
    query_failed: BoxFuture<'static, ()>,
    metrics: Arc<BoundaryMetrics>,
    url: Arc<str>,
    starter: Option<Arc<Starter>>,
}

enum State {
    Waiting(oneshot::Receiver<Opening>),
    Open(Box<OpenPartition>),
    Done,
}

impl PartitionStream {
    pub(super) fn new(
        starter: Arc<Starter>,
        opening: oneshot::Receiver<Opening>,
        query: Arc<Query>,
        metrics: Arc<BoundaryMetrics>,
        url: Arc<str>,
    ) -> Self {
        Self {
            state: State::Waiting(opening),
            decoder: BatchDecoder::new(),
            waited: false,
            query_failed: Arc::clone(&query).failed().boxed(),
            query,
            metrics,
            url,
            starter: Some(starter),
        }
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            match &mut self.state {
                State::Done => return Poll::Ready(None),
                State::Waiting(opening) => {
                    if let Some(starter) = self.starter.take() {
                        starter.start();
                    }
                    let opened = ready!(opening.poll_unpin(cx)).unwrap_or_else(|_| {
                        Err(TransportError::new(
                            ErrorKind::Aborted,
                            "open partition of",
                            &*self.url,
                            "the transports of this process were shut down",
                        )
                        .into())
                    })?;
                    self.state = State::Open(Box::new(opened));
                }
                State::Open(partition) => {
                    // Credit that doesn't fit now goes with a later poll. A worker that is done no longer takes any.
                    let _ = partition.writer.poll_flush(cx);
                    let Poll::Ready(frame) = partition.reader.poll_frame(cx) else {
                        self.waited = true;
                        let arriving = partition.reader.pending_payload_bytes();
                        partition.window.arriving(arriving)?;
                        return Poll::Pending;
                    };
                    let frame = frame?.ok_or_else(|| partition.reader.ended_early())?;
                    return Poll::Ready(self.take_frame(&frame, cx).transpose());
                }
            }
        }
    }

    /// A batch, or `None` at the end.
    fn take_frame(&mut self, frame: &Frame, cx: &mut Context<'_>) -> Result<Option<RecordBatch>> {
        let State::Open(partition) = &mut self.state else {
            return Ok(None);
        };
        match frame.header.kind {
            FrameKind::Batch => {}
            FrameKind::End => return Ok(None),
            FrameKind::Error => return Err(remote_error(frame, &mut partition.reader)),
            _ => return Err(partition.reader.unexpected(&frame.header).into()),
        }
        let bytes = HEADER_BYTES + frame.payload.len();
        partition.window.arriving(bytes as u64)?;
        self.metrics.batch_received(bytes, frame.header.word);
        let held_up = frame.header.flags & FLAG_WAITED_FOR_CREDIT != 0;
        let starved = std::mem::take(&mut self.waited) && held_up;
        let grant = partition.window.consumed(bytes as u64, starved);
        if grant > 0 {
            partition.writer.put(FrameKind::Credit, grant, Vec::new());
            let _ = partition.writer.poll_flush(cx);
        }
        let batch = self.decoder.decode(frame.payload.clone());
        let batch = batch.map_err(|err| partition.reader.violation(&err))?;
        self.metrics.batch_decoded(self.decoder.was_compressed());
        Ok(Some(batch))
    }
}

impl Stream for PartitionStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let start = Instant::now();
        let mut poll = self.poll_batch(cx);
        if poll.is_pending() && self.query_failed.poll_unpin(cx).is_ready() {
            poll = Poll::Ready(self.query.failure().map(Err));
        }
        if !matches!(poll, Poll::Pending | Poll::Ready(Some(Ok(_)))) {
            self.state = State::Done;
        }
        self.metrics.elapsed_compute.add_elapsed(start);
        poll
    }
}
