//! The worker's side of a coordinator channel (`docs/protocol.md`, K-1 to K-5).

use crate::framed::{FrameReader, FrameWriter};
use crate::server::ServerState;
use crate::server::call::{end_call, guarded, put_error};
use crate::server::tasks::TaskEntry;
use crate::wire::coordinator::{decode_to_worker, encode_to_coordinator};
use crate::wire::frame::FrameKind;
use datafusion::common::Result;
use datafusion_distributed::{CoordinatorToWorkerMsg, SetPlanRequest};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use tokio::sync::oneshot;

/// Sets the plan, then carries messages both ways until the worker has said its last.
pub(super) async fn serve_coordinator(
    headers: HeaderMap,
    plan: SetPlanRequest,
    mut writer: FrameWriter,
    reader: FrameReader,
    state: &ServerState,
) {
    let (returned, reader_back) = oneshot::channel();
    let inbound = Inbound {
        reader,
        returned,
        entry: state.tasks.insert(plan.task_key),
    };
    let from_coordinator = inbound.into_stream();
    let call = state
        .service
        .coordinator_channel(headers, plan, from_coordinator);
    let outcome = match guarded(call).await {
        Ok(to_coordinator) => send_all(to_coordinator, &mut writer).await,
        Err(err) => Err(err),
    };
    match outcome {
        Ok(true) => writer.put(FrameKind::End, 0, Vec::new()),
        Ok(false) => return,
        Err(err) => put_error(&mut writer, &err),
    }
    if writer.flush().await.is_err() {
        return;
    }
    writer.finish();
    // The coordinator may still have messages for the worker; then the call goes on.
    if let Ok(mut reader) = reader_back.await {
        end_call(&mut writer, &mut reader).await;
    }
}

/// Sends the acceptance and the worker's messages. False where the coordinator is gone.
async fn send_all(
    mut to_coordinator: BoxStream<'static, Result<datafusion_distributed::WorkerToCoordinatorMsg>>,
    writer: &mut FrameWriter,
) -> Result<bool> {
    let mut sent = writer.send(FrameKind::Accepted, 0, Vec::new()).await;
    while sent.is_ok() {
        let next = guarded(async { to_coordinator.next().await.transpose() }).await?;
        let Some(message) = next else { return Ok(true) };
        let payload = encode_to_coordinator(&message);
        sent = writer.send(FrameKind::ToCoordinator, 0, payload).await;
    }
    Ok(false)
}

/// What comes from the coordinator.
struct Inbound {
    reader: FrameReader,
    returned: oneshot::Sender<FrameReader>,
    entry: TaskEntry,
}

impl Inbound {
    /// The messages; clean end at the coordinator's end-of-query, one error where the link is lost.
    fn into_stream(self) -> BoxStream<'static, Result<CoordinatorToWorkerMsg>> {
        stream::unfold(Some(self), |inbound| async {
            let mut inbound = inbound?;
            match inbound.next().await {
                Ok(Some(message)) => Some((Ok(message), Some(inbound))),
                Ok(None) => {
                    inbound.entry.end();
                    let _ = inbound.returned.send(inbound.reader);
                    None
                }
                Err(err) => Some((Err(err), None)),
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<CoordinatorToWorkerMsg>> {
        let frame = self.reader.next().await?;
        let frame = frame.ok_or_else(|| self.reader.ended_early())?;
        match frame.header.kind {
            FrameKind::ToWorker => {
                let message = decode_to_worker(&frame.payload);
                Ok(Some(message.map_err(|err| self.reader.violation(&err))?))
            }
            FrameKind::End => Ok(None),
            _ => Err(self.reader.unexpected(&frame.header).into()),
        }
    }
}
