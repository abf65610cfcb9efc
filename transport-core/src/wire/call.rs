//! The request that opens every stream (`docs/protocol.md`, C-1 to C-9).

use crate::wire::DecodeError;
use crate::wire::headers::{HeaderMessage, decode_headers, encode_headers};
use crate::wire::plan::{PlanMessage, decode_plan, encode_plan};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion_distributed::{
    ExecuteTaskRequest, MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey,
};
use http::HeaderMap;
use prost::Message;
use std::ops::Range;
use std::sync::Arc;
use uuid::Uuid;

/// What a stream's opener asks for.
pub enum Call {
    /// Sets a task's plan and stays open for the query's life.
    Coordinator {
        /// Headers for the worker's session.
        headers: HeaderMap,
        /// The plan, encoded, and its surroundings.
        plan: SetPlanRequest,
    },
    /// Streams one partition of a task.
    Partition {
        /// Headers for the worker.
        headers: HeaderMap,
        /// A range of exactly one partition.
        request: ExecuteTaskRequest,
        /// C-6: credit in bytes before the first [`Credit`](crate::wire::frame::FrameKind::Credit) frame.
        initial_credit_bytes: u64,
    },
    /// Starts and drops partitions that nobody will read, so that the worker doesn't wait for a reader (C-7).
    Release {
        /// Headers for the worker.
        headers: HeaderMap,
        /// The partitions.
        request: ExecuteTaskRequest,
    },
    /// Asks who the worker is.
    WorkerInfo,
}

/// A call on the wire.
#[derive(Clone, PartialEq, Message)]
pub struct CallMessage {
    #[prost(message, repeated, tag = "1")]
    headers: Vec<HeaderMessage>,
    #[prost(oneof = "Method", tags = "2, 3, 4, 5")]
    method: Option<Method>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Method {
    #[prost(message, tag = "2")]
    Coordinator(PlanMessage),
    #[prost(message, tag = "3")]
    Partition(PartitionMessage),
    #[prost(message, tag = "4")]
    Release(TaskMessage),
    #[prost(message, tag = "5")]
    WorkerInfo(WorkerInfoMessage),
}

#[derive(Clone, PartialEq, Message)]
struct PartitionMessage {
    #[prost(message, optional, tag = "1")]
    task: Option<TaskMessage>,
    #[prost(uint64, tag = "2")]
    initial_credit_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WorkerInfoMessage {}

#[derive(Clone, PartialEq, Message)]
struct TaskMessage {
    #[prost(message, optional, tag = "1")]
    key: Option<TaskKeyMessage>,
    #[prost(uint64, tag = "2")]
    partition_start: u64,
    #[prost(uint64, tag = "3")]
    partition_end: u64,
    #[prost(oneof = "HeadMessage", tags = "4, 5, 6")]
    head: Option<HeadMessage>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum HeadMessage {
    #[prost(message, tag = "4")]
    None(NoHead),
    #[prost(uint64, tag = "5")]
    BroadcastPartitions(u64),
    #[prost(bytes, tag = "6")]
    Repartition(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
struct NoHead {}

/// A task's key on the wire.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskKeyMessage {
    #[prost(bytes, tag = "1")]
    query_id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    stage_id: u64,
    #[prost(uint64, tag = "3")]
    task_number: u64,
}

/// Encodes the call that sets a plan; returns it with the number of bytes of the plan itself.
///
/// # Errors
/// A plan that the session's codecs can't encode.
pub fn encode_coordinator_call(
    headers: &HeaderMap,
    plan: SetPlanRequest,
    ctx: &Arc<TaskContext>,
) -> Result<(Vec<u8>, usize)> {
    let (plan, plan_bytes) = encode_plan(plan, ctx)?;
    let call = CallMessage {
        headers: encode_headers(headers),
        method: Some(Method::Coordinator(plan)),
    };
    Ok((call.encode_to_vec(), plan_bytes))
}

/// The call that asks for worker information.
pub fn encode_worker_info_call() -> Vec<u8> {
    let call = CallMessage {
        headers: vec![],
        method: Some(Method::WorkerInfo(WorkerInfoMessage {})),
    };
    call.encode_to_vec()
}

/// The calls of one `execute_task`: the parts they share are encoded once.
pub struct TaskCalls {
    headers: Vec<HeaderMessage>,
    task: TaskMessage,
}

impl TaskCalls {
    /// Encodes what all partitions of the request share.
    ///
    /// # Errors
    /// A partitioning that the session's codecs can't encode.
    pub fn try_new(
        headers: &HeaderMap,
        request: ExecuteTaskRequest,
        ctx: &Arc<TaskContext>,
    ) -> Result<Self> {
        let head = match request.producer_head {
            ProducerHead::None => HeadMessage::None(NoHead {}),
            ProducerHead::BroadcastExec { output_partitions } => {
                HeadMessage::BroadcastPartitions(output_partitions as u64)
            }
            ProducerHead::RepartitionExec { partitioning } => {
                HeadMessage::Repartition(partitioning.encode(ctx)?)
            }
        };
        let task = TaskMessage {
            key: Some(encode_task_key(request.task_key)),
            partition_start: request.target_partition_start as u64,
            partition_end: request.target_partition_end as u64,
            head: Some(head),
        };
        Ok(Self {
            headers: encode_headers(headers),
            task,
        })
    }

    /// The call for one partition.
    pub fn partition(&self, partition: usize, initial_credit_bytes: u64) -> Vec<u8> {
        let task = self.task_for(partition..partition + 1);
        self.encode(Method::Partition(PartitionMessage {
            task: Some(task),
            initial_credit_bytes,
        }))
    }

    /// The call that releases a range of partitions.
    pub fn release(&self, partitions: Range<usize>) -> Vec<u8> {
        self.encode(Method::Release(self.task_for(partitions)))
    }

    fn task_for(&self, partitions: Range<usize>) -> TaskMessage {
        TaskMessage {
            partition_start: partitions.start as u64,
            partition_end: partitions.end as u64,
            ..self.task.clone()
        }
    }

    fn encode(&self, method: Method) -> Vec<u8> {
        let call = CallMessage {
            headers: self.headers.clone(),
            method: Some(method),
        };
        call.encode_to_vec()
    }
}

/// Reads a call.
///
/// # Errors
/// A method this version doesn't know, or a field that is missing or out of range, named.
pub fn decode_call(bytes: &[u8]) -> Result<Call, DecodeError> {
    let CallMessage { headers, method } = CallMessage::decode(bytes)?;
    let headers = decode_headers(headers)?;
    let method = method.ok_or_else(|| {
        DecodeError::new("the call's method is missing or unknown: is the peer a newer version?")
    })?;
    Ok(match method {
        Method::Coordinator(plan) => Call::Coordinator {
            headers,
            plan: decode_plan(plan)?,
        },
        Method::Partition(message) => {
            let task = message
                .task
                .ok_or_else(|| DecodeError::missing("Partition.task"))?;
            let request = decode_task(task)?;
            let partitions = request.target_partition_end - request.target_partition_start;
            if partitions != 1 {
                return Err(DecodeError::new(format!(
                    "a partition call is for one partition, not for {partitions} (C-5)"
                )));
            }
            Call::Partition {
                headers,
                request,
                initial_credit_bytes: message.initial_credit_bytes,
            }
        }
        Method::Release(task) => Call::Release {
            headers,
            request: decode_task(task)?,
        },
        Method::WorkerInfo(_) => Call::WorkerInfo,
    })
}

fn decode_task(task: TaskMessage) -> Result<ExecuteTaskRequest, DecodeError> {
    let start = to_usize(task.partition_start, "Task.partition_start")?;
    let end = to_usize(task.partition_end, "Task.partition_end")?;
    if start > end {
        return Err(DecodeError::new(format!(
            "partition range {start}..{end} ends before it starts (C-5)"
        )));
    }
    let head = task.head.ok_or_else(|| DecodeError::missing("Task.head"))?;
    let producer_head = match head {
        HeadMessage::None(_) => ProducerHead::None,
        HeadMessage::BroadcastPartitions(partitions) => ProducerHead::BroadcastExec {
            output_partitions: to_count(partitions, "Task.broadcast_partitions")?,
        },
        HeadMessage::Repartition(bytes) => ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Encoded(bytes),
        },
    };
    let key = task.key.ok_or_else(|| DecodeError::missing("Task.key"))?;
    Ok(ExecuteTaskRequest {
        task_key: decode_task_key(key)?,
        target_partition_start: start,
        target_partition_end: end,
        producer_head,
    })
}

pub(crate) fn encode_task_key(key: TaskKey) -> TaskKeyMessage {
    TaskKeyMessage {
        query_id: key.query_id.as_bytes().to_vec(),
        stage_id: key.stage_id as u64,
        task_number: key.task_number as u64,
    }
}

pub(crate) fn decode_task_key(key: TaskKeyMessage) -> Result<TaskKey, DecodeError> {
    Ok(TaskKey {
        query_id: decode_uuid(&key.query_id, "TaskKey.query_id")?,
        stage_id: to_usize(key.stage_id, "TaskKey.stage_id")?,
        task_number: to_usize(key.task_number, "TaskKey.task_number")?,
    })
}

pub(crate) fn decode_uuid(bytes: &[u8], field: &'static str) -> Result<Uuid, DecodeError> {
    Uuid::from_slice(bytes).map_err(|_| {
        DecodeError::new(format!(
            "field {field} has {} bytes, a UUID has 16",
            bytes.len()
        ))
    })
}

/// The most partitions that a plan may have: for each the engine makes a channel before it looks at anything else.
const MAX_PARTITIONS: u64 = 1 << 20;

/// A number of partitions.
pub(crate) fn to_count(value: u64, field: &'static str) -> Result<usize, DecodeError> {
    if value > MAX_PARTITIONS {
        let detail = format!("field {field} is {value}, the limit is {MAX_PARTITIONS} partitions");
        return Err(DecodeError::new(detail));
    }
    to_usize(value, field)
}

pub(crate) fn to_usize(value: u64, field: &'static str) -> Result<usize, DecodeError> {
    usize::try_from(value).map_err(|_| {
        DecodeError::new(format!(
            "field {field} is {value}, too large for this machine"
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use datafusion::prelude::SessionContext;
    use proptest::prelude::*;

    fn request(start: usize, end: usize, head: ProducerHead) -> ExecuteTaskRequest {
        ExecuteTaskRequest {
            task_key: TaskKey {
                query_id: Uuid::from_u128(7),
                stage_id: 3,
                task_number: 2,
            },
            target_partition_start: start,
            target_partition_end: end,
            producer_head: head,
        }
    }

    #[test]
    fn a_partition_call_round_trips() {
        let ctx = SessionContext::new().task_ctx();
        let head = ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Encoded(vec![1, 2, 3]),
        };
        let mut headers = HeaderMap::new();
        headers.append("x-trace", "1".parse().unwrap());
        let calls = TaskCalls::try_new(&headers, request(4, 8, head), &ctx).unwrap();
        let Call::Partition {
            headers: got,
            request,
            initial_credit_bytes,
        } = decode_call(&calls.partition(5, 77)).unwrap()
        else {
            panic!("not a partition call");
        };
        assert_eq!(got, headers);
        assert_eq!(initial_credit_bytes, 77);
        assert_eq!(
            (request.target_partition_start, request.target_partition_end),
            (5, 6)
        );
        assert_eq!(request.task_key.stage_id, 3);
        let ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Encoded(bytes),
        } = request.producer_head
        else {
            panic!("wrong head");
        };
        assert_eq!(bytes, [1, 2, 3]);
    }

    #[test]
    fn a_release_call_round_trips() {
        let ctx = SessionContext::new().task_ctx();
        let head = ProducerHead::BroadcastExec {
            output_partitions: 9,
        };
        let calls = TaskCalls::try_new(&HeaderMap::new(), request(4, 8, head), &ctx).unwrap();
        let Call::Release { request, .. } = decode_call(&calls.release(4..8)).unwrap() else {
            panic!("not a release call");
        };
        assert_eq!(
            (request.target_partition_start, request.target_partition_end),
            (4, 8)
        );
        assert!(matches!(
            request.producer_head,
            ProducerHead::BroadcastExec {
                output_partitions: 9
            }
        ));
    }

    #[test]
    fn a_partition_call_for_a_range_is_refused() {
        let ctx = SessionContext::new().task_ctx();
        let calls =
            TaskCalls::try_new(&HeaderMap::new(), request(4, 8, ProducerHead::None), &ctx).unwrap();
        let message = CallMessage {
            headers: vec![],
            method: Some(Method::Partition(PartitionMessage {
                task: Some(calls.task_for(4..8)),
                initial_credit_bytes: 0,
            })),
        };
        let err = decode_call(&message.encode_to_vec()).err().unwrap();
        assert!(err.to_string().contains("C-5"), "{err}");
    }

    /// The engine would make a channel for each.
    #[test]
    fn too_many_partitions_are_refused() {
        let release = |partitions| {
            let key = TaskKey {
                query_id: Uuid::from_u128(7),
                stage_id: 3,
                task_number: 2,
            };
            let task = TaskMessage {
                key: Some(encode_task_key(key)),
                partition_start: 0,
                partition_end: 1,
                head: Some(HeadMessage::BroadcastPartitions(partitions)),
            };
            let call = CallMessage {
                headers: vec![],
                method: Some(Method::Release(task)),
            };
            decode_call(&call.encode_to_vec()).map(drop)
        };
        release(MAX_PARTITIONS).unwrap();
        let err = release(MAX_PARTITIONS + 1).unwrap_err().to_string();
        assert!(err.contains("1048577") && err.contains("1048576"), "{err}");
    }

    #[test]
    fn an_unknown_method_is_named_as_such() {
        let err = decode_call(&[]).err().unwrap();
        assert!(err.to_string().contains("method"), "{err}");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_call(&bytes);
        }
    }
}
