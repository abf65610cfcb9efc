//! Custom metrics: the engine's own by type, all others as text.

use std::sync::Arc;

use datafusion::common::Result as EngineResult;
use datafusion::physical_plan::metrics::CustomMetricValue;
use datafusion_distributed::{
    AvgLatencyMetric, BytesCounterMetric, FirstLatencyMetric, MaxGaugeMetric, MaxLatencyMetric,
    MinLatencyMetric, P50LatencyMetric, P75LatencyMetric, P95LatencyMetric, P99LatencyMetric,
};
use sketches_ddsketch::DDSketch;

use super::message::{AverageMessage, MetricKind, TextMessage, Value};
use super::remote_custom::RemoteCustomMetric;
use super::sketch;
use super::value::{Payload, number};
use crate::wire::DecodeError;

pub(super) fn encode_custom(value: &dyn CustomMetricValue) -> (MetricKind, Value) {
    encode_number(value)
        .or_else(|| encode_average(value))
        .or_else(|| encode_percentile(value))
        .unwrap_or_else(|| encode_text(value))
}

fn encode_number(value: &dyn CustomMetricValue) -> Option<(MetricKind, Value)> {
    let any = value.as_any();
    let (kind, value) = if let Some(metric) = any.downcast_ref::<BytesCounterMetric>() {
        (MetricKind::BytesCounter, metric.value())
    } else if let Some(metric) = any.downcast_ref::<MaxGaugeMetric>() {
        (MetricKind::MaxGauge, metric.value())
    } else if let Some(metric) = any.downcast_ref::<MinLatencyMetric>() {
        (MetricKind::MinLatency, metric.value())
    } else if let Some(metric) = any.downcast_ref::<MaxLatencyMetric>() {
        (MetricKind::MaxLatency, metric.value())
    } else if let Some(metric) = any.downcast_ref::<FirstLatencyMetric>() {
        (MetricKind::FirstLatency, metric.value())
    } else {
        return None;
    };
    Some((kind, number(value)))
}

fn encode_average(value: &dyn CustomMetricValue) -> Option<(MetricKind, Value)> {
    let metric = value.as_any().downcast_ref::<AvgLatencyMetric>()?;
    let message = AverageMessage {
        sum_nanos: metric.nanos_sum() as u64,
        count: metric.count() as u64,
    };
    Some((MetricKind::AvgLatency, Value::Average(message)))
}

/// `None` also for a percentile whose sketch the peer would not accept: that one travels as text.
fn encode_percentile(value: &dyn CustomMetricValue) -> Option<(MetricKind, Value)> {
    let any = value.as_any();
    let (kind, serialized): (_, EngineResult<Vec<u8>>) =
        if let Some(metric) = any.downcast_ref::<P50LatencyMetric>() {
            (MetricKind::P50Latency, metric.serialize_sketch())
        } else if let Some(metric) = any.downcast_ref::<P75LatencyMetric>() {
            (MetricKind::P75Latency, metric.serialize_sketch())
        } else if let Some(metric) = any.downcast_ref::<P95LatencyMetric>() {
            (MetricKind::P95Latency, metric.serialize_sketch())
        } else if let Some(metric) = any.downcast_ref::<P99LatencyMetric>() {
            (MetricKind::P99Latency, metric.serialize_sketch())
        } else {
            return None;
        };
    let message = sketch::encode_sketch(&serialized.ok()?)?;
    Some((kind, Value::Sketch(Box::new(message))))
}

fn encode_text(value: &dyn CustomMetricValue) -> (MetricKind, Value) {
    let message = TextMessage {
        text: value.to_string(),
        number: value.as_usize() as u64,
    };
    (MetricKind::Text, Value::Text(message))
}

pub(super) fn decode_custom(
    payload: Payload<'_>,
) -> Result<Arc<dyn CustomMetricValue>, DecodeError> {
    Ok(match payload.kind {
        MetricKind::BytesCounter => Arc::new(BytesCounterMetric::from_value(payload.number()?)),
        MetricKind::MaxGauge => Arc::new(MaxGaugeMetric::from_value(payload.number()?)),
        MetricKind::MinLatency => Arc::new(MinLatencyMetric::from_nanos(payload.number()?)),
        MetricKind::MaxLatency => Arc::new(MaxLatencyMetric::from_nanos(payload.number()?)),
        MetricKind::FirstLatency => Arc::new(FirstLatencyMetric::from_nanos(payload.number()?)),
        MetricKind::AvgLatency => Arc::new(decode_average(&payload)?),
        MetricKind::P50Latency => Arc::new(P50LatencyMetric::from_sketch(decode_sketch(payload)?)),
        MetricKind::P75Latency => Arc::new(P75LatencyMetric::from_sketch(decode_sketch(payload)?)),
        MetricKind::P95Latency => Arc::new(P95LatencyMetric::from_sketch(decode_sketch(payload)?)),
        MetricKind::P99Latency => Arc::new(P99LatencyMetric::from_sketch(decode_sketch(payload)?)),
        MetricKind::Text => Arc::new(decode_text(payload)?),
        _ => return Err(payload.error("kind", "not a metric")),
    })
}

fn decode_average(payload: &Payload<'_>) -> Result<AvgLatencyMetric, DecodeError> {
    let Some(Value::Average(message)) = &payload.value else {
        return Err(payload.mismatch());
    };
    Ok(AvgLatencyMetric::from_raw(
        payload.to_usize("sum_nanos", message.sum_nanos)?,
        payload.to_usize("count", message.count)?,
    ))
}

fn decode_sketch(mut payload: Payload<'_>) -> Result<DDSketch, DecodeError> {
    let Some(Value::Sketch(message)) = payload.value.take() else {
        return Err(payload.mismatch());
    };
    sketch::decode_sketch(*message).map_err(|found| payload.error("sketch", found))
}

fn decode_text(mut payload: Payload<'_>) -> Result<RemoteCustomMetric, DecodeError> {
    let Some(Value::Text(message)) = payload.value.take() else {
        return Err(payload.mismatch());
    };
    let number = payload.to_usize("number", message.number)?;
    Ok(RemoteCustomMetric::new(message.text, number))
}
