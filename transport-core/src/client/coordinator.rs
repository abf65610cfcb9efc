//! The coordinator's side of a coordinator channel (`docs/protocol.md`, K-1 to K-5).

use crate::client::channel::remote_error;
use crate::client::pool::{Lease, Pool};
use crate::client::queries::Query;
use crate::connection::BiStream;
use crate::framed::{FrameReader, FrameWriter};
use crate::wire::coordinator::{decode_to_coordinator, encode_to_worker};
use crate::wire::frame::FrameKind;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion_distributed::{CoordinatorToWorkerMsg, WorkerToCoordinatorMsg};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use std::sync::Arc;
use tokio::sync::oneshot;
use url::Url;

/// Sends the plan and waits until the worker accepted it. Dropping the future, or the stream it returns, cuts the link:
/// the worker takes the query for cancelled.
///
/// # Errors
/// What the worker reports about the plan, or what went wrong on the way.
pub(super) async fn open_coordinator_channel(
    pool: &Arc<Pool>,
    query: Arc<Query>,
    stream: BiStream,
    lease: Lease,
    url: &Url,
    call: Vec<u8>,
    to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
    let mut writer = FrameWriter::new(stream.send);
    let mut reader = FrameReader::new(stream.recv, "coordinator channel", url.to_string());
    // A worker that refused may have stopped reading: its answer tells more than the failed write.
    let _ = writer.send(FrameKind::Call, 0, call).await;
    let frame = reader.next().await?.ok_or_else(|| reader.ended_early())?;
    match frame.header.kind {
        FrameKind::Accepted => {}
        FrameKind::Error => return Err(remote_error(&frame, &mut reader)),
        _ => return Err(reader.unexpected(&frame.header).into()),
    }
    let (done, worker_done) = oneshot::channel();
    let link = Link {
        reader,
        pump: SpawnedTask::spawn(pump(writer, lease, to_worker, worker_done)),
        done,
        query,
        pool: Arc::clone(pool),
    };
    Ok(stream::unfold(Some(link), next_message).boxed())
}

/// A live coordinator channel. Dropping it aborts the pump, which cuts the link.
struct Link {
    reader: FrameReader,
    pump: SpawnedTask<()>,
    done: oneshot::Sender<()>,
    query: Arc<Query>,
    pool: Arc<Pool>,
}

impl Link {
    /// The worker has said its last. What the coordinator still has for it goes on until that ends too.
    fn worker_is_done(self) {
        let _ = self.done.send(());
        let pump = self.pump;
        self.pool.spawn(async move {
            let _ = pump.join().await;
        });
    }
}

/// Sends what the coordinator has for the worker. A failed write is not reported here: the reader meets the same
/// lost link and reports it. This direction is finished only after the worker's last message arrived (K-5), which
/// tells the worker that it may close the connection.
async fn pump(
    mut writer: FrameWriter,
    _lease: Lease,
    mut to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
    worker_done: oneshot::Receiver<()>,
) {
    while let Some(message) = to_worker.next().await {
        let payload = encode_to_worker(message);
        if writer.send(FrameKind::ToWorker, 0, payload).await.is_err() {
            return;
        }
    }
    if writer.send(FrameKind::End, 0, Vec::new()).await.is_ok() && worker_done.await.is_ok() {
        writer.finish();
    }
}

/// The next message and the link to go on with; the link is dropped after the end or an error.
async fn next_message(
    link: Option<Link>,
) -> Option<(Result<WorkerToCoordinatorMsg>, Option<Link>)> {
    let mut link = link?;
    match read_message(&mut link.reader).await {
        Ok(Some(message)) => Some((Ok(message), Some(link))),
        Ok(None) => {
            link.worker_is_done();
            None
        }
        Err(err) => Some((Err(link.query.fail(err)), None)),
    }
}

async fn read_message(reader: &mut FrameReader) -> Result<Option<WorkerToCoordinatorMsg>> {
    let frame = reader.next().await?.ok_or_else(|| reader.ended_early())?;
    match frame.header.kind {
        FrameKind::ToCoordinator => {
            let message = decode_to_coordinator(&frame.payload);
            Ok(Some(message.map_err(|err| reader.violation(&err))?))
        }
        FrameKind::End => Ok(None),
        FrameKind::Error => Err(remote_error(&frame, reader)),
        _ => Err(reader.unexpected(&frame.header).into()),
    }
}
