//! A task's plan with its work-unit feed declarations (`docs/protocol.md`, C-4).

use crate::wire::DecodeError;
use crate::wire::call::{
    TaskKeyMessage, decode_task_key, decode_uuid, encode_task_key, to_count, to_usize,
};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion_distributed::{MaybeEncoded, SetPlanRequest, WorkUnitFeedDeclaration};
use std::sync::Arc;
use url::Url;

/// A plan on the wire. The plan itself is opaque bytes, in whatever encoding the two engines share.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PlanMessage {
    #[prost(message, optional, tag = "1")]
    task_key: Option<TaskKeyMessage>,
    #[prost(uint64, tag = "2")]
    task_count: u64,
    #[prost(bytes, tag = "3")]
    plan: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    feeds: Vec<FeedMessage>,
    #[prost(string, tag = "5")]
    target_worker_url: String,
    #[prost(uint64, tag = "6")]
    query_start_unix_nanos: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FeedMessage {
    #[prost(bytes, tag = "1")]
    id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    partitions: u64,
}

/// Encodes the plan by the session's codecs unless it already is; returns it with the plan's length in bytes.
///
/// # Errors
/// A plan that the codecs can't encode.
pub fn encode_plan(
    request: SetPlanRequest,
    ctx: &Arc<TaskContext>,
) -> Result<(PlanMessage, usize)> {
    let plan = request.plan.encode(ctx)?;
    let plan_bytes = plan.len();
    let feeds = request
        .work_unit_feed_declarations
        .into_iter()
        .map(|feed| FeedMessage {
            id: feed.id.as_bytes().to_vec(),
            partitions: feed.partitions as u64,
        });
    let message = PlanMessage {
        task_key: Some(encode_task_key(request.task_key)),
        task_count: request.task_count as u64,
        plan,
        feeds: feeds.collect(),
        target_worker_url: request.target_worker_url.to_string(),
        query_start_unix_nanos: request.query_start_time_ns as u64,
    };
    Ok((message, plan_bytes))
}

/// Reads a plan, leaving the plan's bytes encoded.
///
/// # Errors
/// A field that is missing or out of range, named.
pub fn decode_plan(message: PlanMessage) -> Result<SetPlanRequest, DecodeError> {
    let key = message
        .task_key
        .ok_or_else(|| DecodeError::missing("Plan.task_key"))?;
    let url = &message.target_worker_url;
    let target_worker_url = Url::parse(url)
        .map_err(|err| DecodeError::new(format!("Plan.target_worker_url {url:?}: {err}")))?;
    let feeds = message.feeds.into_iter().map(|feed| {
        Ok(WorkUnitFeedDeclaration {
            id: decode_uuid(&feed.id, "Plan.feeds.id")?,
            partitions: to_count(feed.partitions, "Plan.feeds.partitions")?,
        })
    });
    Ok(SetPlanRequest {
        task_key: decode_task_key(key)?,
        task_count: to_usize(message.task_count, "Plan.task_count")?,
        plan: MaybeEncoded::Encoded(message.plan),
        work_unit_feed_declarations: feeds.collect::<Result<_, DecodeError>>()?,
        target_worker_url,
        query_start_time_ns: to_usize(
            message.query_start_unix_nanos,
            "Plan.query_start_unix_nanos",
        )?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;
    use datafusion::prelude::SessionContext;
    use datafusion_distributed::TaskKey;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn round_trip(request: SetPlanRequest) -> SetPlanRequest {
        let ctx = SessionContext::new().task_ctx();
        let (message, _) = encode_plan(request, &ctx).unwrap();
        let bytes = message.encode_to_vec();
        decode_plan(PlanMessage::decode(bytes.as_slice()).unwrap()).unwrap()
    }

    #[test]
    fn a_plan_round_trips() {
        let got = round_trip(SetPlanRequest {
            task_key: TaskKey {
                query_id: Uuid::from_u128(9),
                stage_id: 1,
                task_number: 4,
            },
            task_count: 5,
            plan: MaybeEncoded::Encoded(b"plan".to_vec()),
            work_unit_feed_declarations: vec![WorkUnitFeedDeclaration {
                id: Uuid::from_u128(3),
                partitions: 17,
            }],
            target_worker_url: "http://worker:8080/".parse().unwrap(),
            query_start_time_ns: 123,
        });
        assert_eq!(got.task_key.query_id, Uuid::from_u128(9));
        assert_eq!((got.task_key.stage_id, got.task_key.task_number), (1, 4));
        assert_eq!((got.task_count, got.query_start_time_ns), (5, 123));
        assert!(matches!(got.plan, MaybeEncoded::Encoded(bytes) if bytes == b"plan"));
        assert_eq!(got.work_unit_feed_declarations[0].id, Uuid::from_u128(3));
        assert_eq!(got.work_unit_feed_declarations[0].partitions, 17);
        assert_eq!(got.target_worker_url.as_str(), "http://worker:8080/");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = PlanMessage::decode(bytes.as_slice()) {
                let _ = decode_plan(message);
            }
        }
    }
}
