//! One call: reads its request on the I/O runtime and hands it to the query runtime.

use crate::connection::{BiStream, StreamClass, StreamCode};
use crate::error::TransportError;
use crate::framed::{FrameReader, FrameWriter, MAX_CONTROL_BYTES};
use crate::server::ServerState;
use crate::server::coordinator::serve_coordinator;
use crate::server::link::Link;
use crate::server::partition::{PartitionCall, serve_partition, serve_release};
use crate::wire::batch::panic_text;
use crate::wire::call::{Call, decode_call};
use crate::wire::error::encode_error;
use crate::wire::frame::FrameKind;
use crate::wire::worker_info::encode_worker_info;
use datafusion::common::{DataFusionError, Result};
use futures::FutureExt;
use prost::Message;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// How long a finished call waits for its peer's end of the stream. The peer has read the terminal message once it
/// arrives, so that closing the connection afterwards loses nothing.
const LINGER: Duration = Duration::from_secs(10);

/// A call that was read, to be run on the query runtime.
pub(super) struct Received {
    call: Call,
    writer: FrameWriter,
    reader: FrameReader,
}

/// Reads a call. One that is refused, or that needs no query thread, is answered here, and nothing is returned.
pub(super) async fn receive(
    stream: BiStream,
    peer: Arc<str>,
    state: Arc<ServerState>,
) -> Option<Received> {
    let mut writer = FrameWriter::new(stream.send);
    let mut reader = FrameReader::new(stream.recv, "serve call from", peer);
    let request = tokio::time::timeout(state.request_timeout, read_call(&mut reader)).await;
    let call = match request {
        Ok(Ok(call)) => call,
        Ok(Err(err)) => {
            state.refused.warn(format_args!("refused a call: {err}"));
            fail(&mut writer, &mut reader, &err.into()).await;
            return None;
        }
        Err(_) => {
            let (peer, limit) = (reader.peer(), state.request_timeout);
            let late = format_args!("a call's request from {peer} did not arrive within {limit:?}");
            state.late.warn(late);
            writer.reset(StreamCode::CANCELLED);
            return None;
        }
    };
    if state.draining.is_cancelled() && !belongs_to_running_query(&call, &state) {
        writer.reset(StreamCode::REFUSED);
        return None;
    }
    if matches!(call, Call::WorkerInfo) {
        serve_worker_info(&mut writer, &mut reader, &state).await;
        return None;
    }
    Some(Received {
        call,
        writer,
        reader,
    })
}

/// A worker that drains refuses new queries, and serves those that it has a part in to their end.
fn belongs_to_running_query(call: &Call, state: &ServerState) -> bool {
    match call {
        // Stages may be planned one after the other: a later one belongs to the same query.
        Call::Coordinator { plan, .. } => state.tasks.contains_query(&plan.task_key.query_id),
        // Of a query whose plan is here, or came another way. They can't begin one.
        Call::Partition { .. } | Call::Release { .. } | Call::WorkerInfo => true,
    }
}

async fn read_call(reader: &mut FrameReader) -> Result<Call, TransportError> {
    let frame = reader.next().await?.ok_or_else(|| reader.ended_early())?;
    if frame.header.kind != FrameKind::Call {
        return Err(reader.unexpected(&frame.header));
    }
    decode_call(&frame.payload).map_err(|err| reader.violation(&err))
}

/// Serves a call to its end. Dropping the future aborts the call.
pub(super) async fn run_call(received: Received, link: Arc<Link>, state: Arc<ServerState>) {
    let Received {
        call,
        mut writer,
        reader,
    } = received;
    match call {
        Call::Coordinator { headers, plan } => {
            writer.set_class(StreamClass::Control);
            serve_coordinator(headers, plan, writer, reader, &state).await;
        }
        Call::Partition {
            headers,
            request,
            initial_credit_bytes,
        } => {
            let call = PartitionCall {
                headers,
                request,
                initial_credit_bytes,
            };
            serve_partition(call, writer, reader, &link, &state).await;
        }
        Call::Release { headers, request } => {
            serve_release(headers, request, writer, reader, &state).await;
        }
        Call::WorkerInfo => {}
    }
}

async fn serve_worker_info(
    writer: &mut FrameWriter,
    reader: &mut FrameReader,
    state: &ServerState,
) {
    writer.set_class(StreamClass::Control);
    match guarded(state.service.worker_info()).await {
        Ok(info) => {
            writer.put(FrameKind::Reply, 0, encode_worker_info(&info.version));
            end_call(writer, reader).await;
        }
        Err(err) => fail(writer, reader, &err).await,
    }
}

/// How the message of a panic begins; the client puts the worker's URL into it.
pub(crate) const PANICKED: &str = "the worker panicked: ";

/// Awaits code of the worker: a panic becomes an error.
pub(super) async fn guarded<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| {
            let text = panic_text(panic.as_ref());
            Err(DataFusionError::Execution(format!("{PANICKED}{text}")))
        })
}

/// Sends an error as the call's terminal frame.
pub(super) async fn fail(
    writer: &mut FrameWriter,
    reader: &mut FrameReader,
    err: &DataFusionError,
) {
    put_error(writer, err);
    end_call(writer, reader).await;
}

/// Queues an error frame. An error too large for one (F-7) is cut to what it is.
pub(super) fn put_error(writer: &mut FrameWriter, err: &DataFusionError) {
    let mut message = encode_error(err);
    if message.encoded_len() as u64 > MAX_CONTROL_BYTES {
        let text = "the worker failed with an error too large to send; its log has it".into();
        tracing::error!(%err, "an error is too large to send");
        message = encode_error(&DataFusionError::Execution(text));
    }
    writer.put(FrameKind::Error, 0, message.encode_to_vec());
}

/// Sends what is queued, finishes, and lingers until the peer has read it.
pub(super) async fn end_call(writer: &mut FrameWriter, reader: &mut FrameReader) {
    let end = async {
        if writer.flush().await.is_ok() {
            writer.finish();
            while let Ok(Some(_)) = reader.next().await {}
        }
    };
    let _ = tokio::time::timeout(LINGER, end).await;
}
