//! What flows on a coordinator channel after the plan: work units one way, load info and task metrics the other
//! (`docs/protocol.md`, K-1 to K-5).

use crate::wire::DecodeError;
use crate::wire::call::{decode_uuid, to_usize};
use crate::wire::metrics::{TaskMetricsMessage, decode_task_metrics, encode_task_metrics};
use datafusion_distributed::{
    CoordinatorToWorkerMsg, LoadInfo, MaybeEncoded, WorkUnitBatch, WorkUnitMsg,
    WorkerToCoordinatorMsg,
};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct ToWorkerMessage {
    #[prost(oneof = "ToWorker", tags = "1, 2")]
    inner: Option<ToWorker>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ToWorker {
    #[prost(message, tag = "1")]
    WorkUnits(WorkUnitsMessage),
    #[prost(message, tag = "2")]
    WorkUnitsEnd(Marker),
}

#[derive(Clone, PartialEq, Message)]
struct WorkUnitsMessage {
    #[prost(message, repeated, tag = "1")]
    units: Vec<WorkUnitMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct WorkUnitMessage {
    #[prost(bytes, tag = "1")]
    id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    partition: u64,
    #[prost(bytes, tag = "3")]
    body: Vec<u8>,
    #[prost(uint64, tag = "4")]
    created_unix_nanos: u64,
    #[prost(uint64, tag = "5")]
    sent_unix_nanos: u64,
    #[prost(uint64, tag = "6")]
    received_unix_nanos: u64,
    #[prost(uint64, tag = "7")]
    processed_unix_nanos: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Marker {}

#[derive(Clone, PartialEq, Message)]
struct ToCoordinatorMessage {
    #[prost(oneof = "ToCoordinator", tags = "1, 2, 3")]
    inner: Option<ToCoordinator>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ToCoordinator {
    #[prost(message, tag = "1")]
    TaskMetrics(TaskMetricsMessage),
    #[prost(message, tag = "2")]
    LoadInfo(LoadInfoMessage),
    #[prost(message, tag = "3")]
    LoadInfoEnd(Marker),
}

#[derive(Clone, PartialEq, Message)]
struct LoadInfoMessage {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(uint64, tag = "2")]
    rows_ready: u64,
    #[prost(uint64, repeated, tag = "3")]
    per_column_bytes_ready: Vec<u64>,
    #[prost(float, repeated, tag = "4")]
    per_column_ndv_percentage: Vec<f32>,
    #[prost(float, repeated, tag = "5")]
    per_column_null_percentage: Vec<f32>,
    #[prost(uint64, tag = "6")]
    rows_pulled_from_leaf: u64,
    #[prost(bool, tag = "7")]
    reached_eos: bool,
}

/// Encodes a message from coordinator to worker; decoded work units are encoded here.
pub fn encode_to_worker(msg: CoordinatorToWorkerMsg) -> Vec<u8> {
    let inner = match msg {
        CoordinatorToWorkerMsg::WorkUnitBatch(batch) => ToWorker::WorkUnits(WorkUnitsMessage {
            units: batch.batch.into_iter().map(encode_work_unit).collect(),
        }),
        CoordinatorToWorkerMsg::WorkUnitEos => ToWorker::WorkUnitsEnd(Marker {}),
    };
    ToWorkerMessage { inner: Some(inner) }.encode_to_vec()
}

/// Reads a message from coordinator to worker; work units stay encoded.
///
/// # Errors
/// A field that is missing or out of range, named.
pub fn decode_to_worker(bytes: &[u8]) -> Result<CoordinatorToWorkerMsg, DecodeError> {
    let message = ToWorkerMessage::decode(bytes)?;
    let inner = message
        .inner
        .ok_or_else(|| DecodeError::missing("ToWorker.inner"))?;
    Ok(match inner {
        ToWorker::WorkUnits(units) => {
            let batch = units.units.into_iter().map(decode_work_unit);
            CoordinatorToWorkerMsg::WorkUnitBatch(WorkUnitBatch {
                batch: batch.collect::<Result<_, _>>()?,
            })
        }
        ToWorker::WorkUnitsEnd(_) => CoordinatorToWorkerMsg::WorkUnitEos,
    })
}

/// Encodes a message from worker to coordinator.
pub fn encode_to_coordinator(msg: &WorkerToCoordinatorMsg) -> Vec<u8> {
    let inner = match msg {
        WorkerToCoordinatorMsg::TaskMetrics(metrics) => {
            ToCoordinator::TaskMetrics(encode_task_metrics(metrics))
        }
        WorkerToCoordinatorMsg::LoadInfo(info) => ToCoordinator::LoadInfo(encode_load_info(info)),
        WorkerToCoordinatorMsg::LoadInfoEos => ToCoordinator::LoadInfoEnd(Marker {}),
    };
    ToCoordinatorMessage { inner: Some(inner) }.encode_to_vec()
}

/// Reads a message from worker to coordinator.
///
/// # Errors
/// A field that is missing or out of range, named.
pub fn decode_to_coordinator(bytes: &[u8]) -> Result<WorkerToCoordinatorMsg, DecodeError> {
    let message = ToCoordinatorMessage::decode(bytes)?;
    let inner = message
        .inner
        .ok_or_else(|| DecodeError::missing("ToCoordinator.inner"))?;
    Ok(match inner {
        ToCoordinator::TaskMetrics(metrics) => {
            WorkerToCoordinatorMsg::TaskMetrics(decode_task_metrics(metrics)?)
        }
        ToCoordinator::LoadInfo(info) => WorkerToCoordinatorMsg::LoadInfo(decode_load_info(info)?),
        ToCoordinator::LoadInfoEnd(_) => WorkerToCoordinatorMsg::LoadInfoEos,
    })
}

fn encode_work_unit(unit: WorkUnitMsg) -> WorkUnitMessage {
    WorkUnitMessage {
        id: unit.id.as_bytes().to_vec(),
        partition: unit.partition as u64,
        body: match unit.body {
            MaybeEncoded::Encoded(bytes) => bytes,
            MaybeEncoded::Decoded(unit) => unit.encode_to_bytes(),
        },
        created_unix_nanos: unit.created_timestamp_unix_nanos as u64,
        sent_unix_nanos: unit.sent_timestamp_unix_nanos as u64,
        received_unix_nanos: unit.received_timestamp_unix_nanos as u64,
        processed_unix_nanos: unit.processed_timestamp_unix_nanos as u64,
    }
}

fn decode_work_unit(unit: WorkUnitMessage) -> Result<WorkUnitMsg, DecodeError> {
    Ok(WorkUnitMsg {
        id: decode_uuid(&unit.id, "WorkUnit.id")?,
        partition: to_usize(unit.partition, "WorkUnit.partition")?,
        body: MaybeEncoded::Encoded(unit.body),
        created_timestamp_unix_nanos: to_usize(unit.created_unix_nanos, "WorkUnit.created")?,
        sent_timestamp_unix_nanos: to_usize(unit.sent_unix_nanos, "WorkUnit.sent")?,
        received_timestamp_unix_nanos: to_usize(unit.received_unix_nanos, "WorkUnit.received")?,
        processed_timestamp_unix_nanos: to_usize(unit.processed_unix_nanos, "WorkUnit.processed")?,
    })
}

fn encode_load_info(info: &LoadInfo) -> LoadInfoMessage {
    LoadInfoMessage {
        partition: info.partition as u64,
        rows_ready: info.rows_ready as u64,
        per_column_bytes_ready: info
            .per_column_bytes_ready
            .iter()
            .map(|b| *b as u64)
            .collect(),
        per_column_ndv_percentage: info.per_column_ndv_percentage.clone(),
        per_column_null_percentage: info.per_column_null_percentage.clone(),
        rows_pulled_from_leaf: info.rows_pulled_from_leaf as u64,
        reached_eos: info.reached_eos,
    }
}

fn decode_load_info(info: LoadInfoMessage) -> Result<LoadInfo, DecodeError> {
    let bytes_ready = info.per_column_bytes_ready.into_iter();
    let bytes_ready = bytes_ready.map(|b| to_usize(b, "LoadInfo.per_column_bytes_ready"));
    Ok(LoadInfo {
        partition: to_usize(info.partition, "LoadInfo.partition")?,
        rows_ready: to_usize(info.rows_ready, "LoadInfo.rows_ready")?,
        per_column_bytes_ready: bytes_ready.collect::<Result<_, _>>()?,
        per_column_ndv_percentage: info.per_column_ndv_percentage,
        per_column_null_percentage: info.per_column_null_percentage,
        rows_pulled_from_leaf: to_usize(
            info.rows_pulled_from_leaf,
            "LoadInfo.rows_pulled_from_leaf",
        )?,
        reached_eos: info.reached_eos,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    proptest! {
        #[test]
        fn work_units_round_trip(units in prop::collection::vec(
            (any::<u128>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..50), any::<[u32; 4]>()), 0..8,
        )) {
            let batch = units.iter().map(|(id, partition, body, times)| WorkUnitMsg {
                id: Uuid::from_u128(*id),
                partition: *partition as usize,
                body: MaybeEncoded::Encoded(body.clone()),
                created_timestamp_unix_nanos: times[0] as usize,
                sent_timestamp_unix_nanos: times[1] as usize,
                received_timestamp_unix_nanos: times[2] as usize,
                processed_timestamp_unix_nanos: times[3] as usize,
            }).collect();
            let bytes = encode_to_worker(CoordinatorToWorkerMsg::WorkUnitBatch(WorkUnitBatch { batch }));
            let CoordinatorToWorkerMsg::WorkUnitBatch(got) = decode_to_worker(&bytes).unwrap() else {
                panic!("not a batch");
            };
            prop_assert_eq!(got.batch.len(), units.len());
            for (got, (id, partition, body, times)) in got.batch.into_iter().zip(units) {
                prop_assert_eq!(got.id, Uuid::from_u128(id));
                prop_assert_eq!(got.partition, partition as usize);
                prop_assert!(matches!(got.body, MaybeEncoded::Encoded(b) if b == body));
                prop_assert_eq!([
                    got.created_timestamp_unix_nanos, got.sent_timestamp_unix_nanos,
                    got.received_timestamp_unix_nanos, got.processed_timestamp_unix_nanos,
                ], times.map(|t| t as usize));
            }
        }

        #[test]
        fn load_info_round_trips(
            numbers: [u32; 3], bytes in prop::collection::vec(any::<u32>(), 0..9),
            ratios in prop::collection::vec(any::<f32>(), 0..9), reached_eos: bool,
        ) {
            let info = LoadInfo {
                partition: numbers[0] as usize,
                rows_ready: numbers[1] as usize,
                per_column_bytes_ready: bytes.iter().map(|b| *b as usize).collect(),
                per_column_ndv_percentage: ratios.clone(),
                per_column_null_percentage: ratios.iter().rev().copied().collect(),
                rows_pulled_from_leaf: numbers[2] as usize,
                reached_eos,
            };
            let message = encode_load_info(&info);
            let encoded = encode_to_coordinator(&WorkerToCoordinatorMsg::LoadInfo(info));
            let WorkerToCoordinatorMsg::LoadInfo(got) = decode_to_coordinator(&encoded).unwrap() else {
                panic!("not load info");
            };
            let bits = |v: &[f32]| v.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
            let again = encode_load_info(&got);
            prop_assert_eq!(bits(&again.per_column_ndv_percentage), bits(&message.per_column_ndv_percentage));
            prop_assert_eq!(bits(&again.per_column_null_percentage), bits(&message.per_column_null_percentage));
            prop_assert_eq!(again.per_column_bytes_ready, message.per_column_bytes_ready);
            prop_assert_eq!((again.partition, again.rows_ready, again.rows_pulled_from_leaf, again.reached_eos),
                (message.partition, message.rows_ready, message.rows_pulled_from_leaf, message.reached_eos));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_to_worker(&bytes);
            let _ = decode_to_coordinator(&bytes);
        }
    }

    #[test]
    fn markers_round_trip() {
        let bytes = encode_to_worker(CoordinatorToWorkerMsg::WorkUnitEos);
        assert!(matches!(
            decode_to_worker(&bytes).unwrap(),
            CoordinatorToWorkerMsg::WorkUnitEos
        ));
        let bytes = encode_to_coordinator(&WorkerToCoordinatorMsg::LoadInfoEos);
        assert!(matches!(
            decode_to_coordinator(&bytes).unwrap(),
            WorkerToCoordinatorMsg::LoadInfoEos
        ));
    }

    #[test]
    fn an_unset_message_is_an_error() {
        assert!(decode_to_worker(&[]).is_err());
        assert!(decode_to_coordinator(&[]).is_err());
    }
}
