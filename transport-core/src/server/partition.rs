//! The worker's end of a partition: from the plan to the network.

use crate::error::{ErrorKind, TransportError};
use crate::framed::{FrameReader, FrameWriter};
use crate::server::ServerState;
use crate::server::batches::Batches;
use crate::server::call::{end_call, fail, guarded};
use crate::server::compress::Compressor;
use crate::server::link::Link;
use crate::server::tasks::{Lookup, TaskEnd, TaskWatch};
use crate::wire::DecodeError;
use crate::wire::batch::BatchEncoder;
use crate::wire::frame::{FLAG_WAITED_FOR_CREDIT, FrameHeader, FrameKind, HEADER_BYTES};
use crate::worker::PRESENT_LIMIT;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::{ExecuteTaskRequest, TaskKey};
use http::HeaderMap;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a release waits for its task's plan, which may be on its way still. Within five seconds of a query's end nothing of
/// it is to be left.
const RELEASE_WAIT: Duration = Duration::from_secs(3);

/// A request for one partition.
pub(super) struct PartitionCall {
    pub(super) headers: HeaderMap,
    pub(super) request: ExecuteTaskRequest,
    pub(super) initial_credit_bytes: u64,
}

/// Why a partition's stream ends before its data does.
enum Stop {
    /// The reader is gone: nobody is there to be told.
    Unwanted,
    /// To be sent to the reader.
    Failed(DataFusionError),
}

impl From<DataFusionError> for Stop {
    fn from(err: DataFusionError) -> Self {
        Self::Failed(err)
    }
}

/// Streams one partition. The plan's stream is dropped as soon as the reader is gone, whatever it was waiting for.
pub(super) async fn serve_partition(
    call: PartitionCall,
    mut writer: FrameWriter,
    reader: FrameReader,
    link: &Link,
    state: &ServerState,
) {
    let mut demand = Demand {
        reader,
        task: None,
        credit_bytes: i128::from(call.initial_credit_bytes),
    };
    match stream_partition(call, &mut writer, &mut demand, link, state).await {
        Ok(()) => {
            writer.put(FrameKind::End, 0, Vec::new());
            end_call(&mut writer, &mut demand.reader).await;
        }
        Err(Stop::Failed(err)) => fail(&mut writer, &mut demand.reader, &err).await,
        Err(Stop::Unwanted) => {}
    }
}

/// Starts partitions and drops them (C-7): a shared repartition stops producing for them.
pub(super) async fn serve_release(
    headers: HeaderMap,
    request: ExecuteTaskRequest,
    mut writer: FrameWriter,
    mut reader: FrameReader,
    state: &ServerState,
) {
    let key = request.task_key;
    while_task_lives(&key, state, release_each(headers, request, state)).await;
    writer.put(FrameKind::End, 0, Vec::new());
    end_call(&mut writer, &mut reader).await;
}

/// Does `work` with a task unless it is over. Asking the engine for one that is would make it wait for a plan, and keep an
/// entry for it.
async fn while_task_lives(key: &TaskKey, state: &ServerState, work: impl Future<Output = ()>) {
    tokio::pin!(work);
    match tokio::time::timeout(RELEASE_WAIT, state.tasks.wait_for(key)).await {
        Ok(true) => {
            let Lookup::Here(mut task) = state.tasks.find(key) else {
                return;
            };
            tokio::select! {
                () = &mut work => {}
                // It ended meanwhile: the engine may wait for it anew.
                _ = task.ended() => {
                    let _ = tokio::time::timeout(PRESENT_LIMIT, work).await;
                }
            }
        }
        Ok(false) => {}
        // Its plan may have come another way: by gRPC, or from a coordinator in this process.
        Err(_) => {
            let _ = tokio::time::timeout(PRESENT_LIMIT, work).await;
        }
    }
}

/// One by one, until one fails: a range that no plan has must cost nothing.
async fn release_each(headers: HeaderMap, request: ExecuteTaskRequest, state: &ServerState) {
    for partition in request.target_partition_start..request.target_partition_end {
        let one = ExecuteTaskRequest {
            task_key: request.task_key,
            target_partition_start: partition,
            target_partition_end: partition + 1,
            producer_head: request.producer_head.clone(),
        };
        let started = guarded(state.service.execute_task(headers.clone(), one)).await;
        let Ok(output) = started else { return };
        for batches in output.partitions {
            Batches::new(batches).release().await;
        }
    }
}

async fn stream_partition(
    call: PartitionCall,
    writer: &mut FrameWriter,
    demand: &mut Demand,
    link: &Link,
    state: &ServerState,
) -> Result<(), Stop> {
    let key = call.request.task_key;
    if let Lookup::Here(task) = state.tasks.find(&key) {
        demand.task = Some(task);
    }
    let execute = guarded(state.service.execute_task(call.headers, call.request));
    tokio::pin!(execute);
    let output = match demand.during(&mut execute).await {
        Ok(output) => output?,
        Err(stop) => {
            // C-7: executed all the same, so that the task has metrics and a shared repartition learns of the drop.
            let release = async {
                for batches in execute.await.map_or(vec![], |output| output.partitions) {
                    Batches::new(batches).release().await;
                }
            };
            while_task_lives(&key, state, release).await;
            return Err(stop);
        }
    };
    let [batches] =
        <[SendableRecordBatchStream; 1]>::try_from(output.partitions).map_err(|got| {
            internal_datafusion_err!("the worker made {} streams for one partition", got.len())
        })?;
    demand.task = match (demand.task.take(), state.tasks.find(&key)) {
        (Some(task), _) | (None, Lookup::Here(task)) => Some(task),
        (None, Lookup::Unknown) => None,
        // It came after the request and is over already: how it ended is not known any more.
        (None, Lookup::Over) => return Err(lost_coordinator().into()),
    };
    let mut batches = Batches::new(batches);
    let mut compressor = Compressor::new(output.compression, link);
    let mut encoder = BatchEncoder::try_new(&batches.schema(), compressor.initial())?;
    let sent = send_all(&mut batches, &mut encoder, &mut compressor, writer, demand).await;
    if sent.is_err() {
        batches.release().await;
    }
    sent
}

/// Sends batches to the end.
async fn send_all(
    batches: &mut Batches,
    encoder: &mut BatchEncoder,
    compressor: &mut Compressor<'_>,
    writer: &mut FrameWriter,
    demand: &mut Demand,
) -> Result<(), Stop> {
    while let Some(batch) = demand.during(batches.next()).await?? {
        send_batch(&batch, encoder, compressor, writer, demand).await?;
    }
    // An end that came while the link broke may be that of a feed which was cut.
    match &demand.task {
        Some(task) if task.is_coordinator_lost() => Err(lost_coordinator().into()),
        _ => Ok(()),
    }
}

fn lost_coordinator() -> DataFusionError {
    TransportError::new(
        ErrorKind::ConnectionLost,
        "run task for",
        "its coordinator",
        "the coordinator's channel ended before the query: the partition may be incomplete",
    )
    .into()
}

/// Sends one batch, once there is credit: a positive balance lets a whole batch go, whatever its size.
async fn send_batch(
    batch: &RecordBatch,
    encoder: &mut BatchEncoder,
    compressor: &mut Compressor<'_>,
    writer: &mut FrameWriter,
    demand: &mut Demand,
) -> Result<(), Stop> {
    let mut payload = VecDeque::new();
    let payload_bytes = compressor.encode(encoder, batch, &mut payload)?;
    if payload_bytes > FrameHeader::MAX_PAYLOAD_BYTES {
        let err = internal_datafusion_err!("a batch of {payload_bytes} bytes can't be framed");
        return Err(err.into());
    }
    let waited = demand.wait_for_credit().await?;
    demand.credit_bytes -= i128::from(payload_bytes) + HEADER_BYTES as i128;
    let header = FrameHeader {
        flags: if waited { FLAG_WAITED_FOR_CREDIT } else { 0 },
        word: unix_nanos(),
        ..FrameHeader::new(FrameKind::Batch, payload_bytes)
    };
    writer.put_chunks(header, &mut payload);
    demand
        .during(compressor.flush(writer))
        .await?
        .map_err(|_| Stop::Unwanted)
}

/// What the reader wants: its credit, and whether it is still there.
struct Demand {
    reader: FrameReader,
    /// None for a task that came another way than by this server.
    task: Option<TaskWatch>,
    /// Negative after a batch that overdrew. Wide, so that no sum of 64-bit grants can overflow it.
    credit_bytes: i128,
}

impl Demand {
    /// Awaits `work` while taking in credit; gives up as soon as the reader is gone or the task is over.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                more = self.more_credit() => more?,
                done = &mut work => return Ok(done),
            }
        }
    }

    /// True where it had to wait.
    async fn wait_for_credit(&mut self) -> Result<bool, Stop> {
        let waited = self.credit_bytes <= 0;
        while self.credit_bytes <= 0 {
            self.more_credit().await?;
        }
        Ok(waited)
    }

    /// Takes in the next grant. Cancel safe.
    async fn more_credit(&mut self) -> Result<(), Stop> {
        let end = async {
            match &mut self.task {
                Some(task) => task.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            end = end => Err(match end {
                TaskEnd::InOrder => Stop::Unwanted,
                TaskEnd::CoordinatorLost => lost_coordinator().into(),
            }),
            more = next_credit(&mut self.reader) => {
                self.credit_bytes += i128::from(more?);
                Ok(())
            }
        }
    }
}

/// The next grant. Any end of the reader's direction means that it wants no more. Cancel safe.
async fn next_credit(reader: &mut FrameReader) -> Result<u64, Stop> {
    let Ok(Some(frame)) = reader.next().await else {
        return Err(Stop::Unwanted);
    };
    if frame.header.kind != FrameKind::Credit {
        let err = DecodeError::new(format!("a {:?} frame is not credit", frame.header.kind));
        return Err(Stop::Failed(reader.violation(&err).into()));
    }
    Ok(frame.header.word)
}

fn unix_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
