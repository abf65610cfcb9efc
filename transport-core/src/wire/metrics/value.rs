//! [`MetricValue`] to [`Value`] and back.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use chrono::DateTime;
use datafusion::physical_plan::metrics::{
    Count, Gauge, MetricValue, PruningMetrics, RatioMergeStrategy, RatioMetrics, Time, Timestamp,
};

use super::custom;
use super::message::{
    MetricKind, PruningMessage, RatioMerge, RatioMessage, TimestampMessage, Value,
};
use crate::wire::DecodeError;

/// Characters of a peer's metric name that go into an error.
const MAX_NAME_IN_ERROR: usize = 64;

impl MetricKind {
    /// Whether the engine names metrics of this kind, and the operator does not.
    pub(super) fn has_fixed_name(self) -> bool {
        match self {
            Self::OutputRows
            | Self::ElapsedCompute
            | Self::SpillCount
            | Self::SpilledBytes
            | Self::OutputBytes
            | Self::OutputBatches
            | Self::SpilledRows
            | Self::CurrentMemoryUsage
            | Self::StartTimestamp
            | Self::EndTimestamp => true,
            Self::Unspecified
            | Self::Count
            | Self::Gauge
            | Self::PeakMemoryUsage
            | Self::Time
            | Self::Pruning
            | Self::Ratio
            | Self::BytesCounter
            | Self::MaxGauge
            | Self::MinLatency
            | Self::MaxLatency
            | Self::AvgLatency
            | Self::FirstLatency
            | Self::P50Latency
            | Self::P75Latency
            | Self::P95Latency
            | Self::P99Latency
            | Self::Text => false,
        }
    }
}

pub(super) fn encode_value(value: &MetricValue) -> (MetricKind, Value) {
    use MetricKind as Kind;
    match value {
        MetricValue::OutputRows(count) => (Kind::OutputRows, number(count.value())),
        MetricValue::ElapsedCompute(time) => (Kind::ElapsedCompute, number(time.value())),
        MetricValue::SpillCount(count) => (Kind::SpillCount, number(count.value())),
        MetricValue::SpilledBytes(count) => (Kind::SpilledBytes, number(count.value())),
        MetricValue::OutputBytes(count) => (Kind::OutputBytes, number(count.value())),
        MetricValue::OutputBatches(count) => (Kind::OutputBatches, number(count.value())),
        MetricValue::SpilledRows(count) => (Kind::SpilledRows, number(count.value())),
        MetricValue::CurrentMemoryUsage(gauge) => (Kind::CurrentMemoryUsage, number(gauge.value())),
        MetricValue::Count { count, .. } => (Kind::Count, number(count.value())),
        MetricValue::Gauge { gauge, .. } => (Kind::Gauge, number(gauge.value())),
        MetricValue::PeakMemoryUsage { gauge, .. } => {
            (Kind::PeakMemoryUsage, number(gauge.value()))
        }
        MetricValue::Time { time, .. } => (Kind::Time, number(time.value())),
        MetricValue::StartTimestamp(time) => (Kind::StartTimestamp, encode_timestamp(time)),
        MetricValue::EndTimestamp(time) => (Kind::EndTimestamp, encode_timestamp(time)),
        MetricValue::PruningMetrics {
            pruning_metrics, ..
        } => (Kind::Pruning, encode_pruning(pruning_metrics)),
        MetricValue::Ratio { ratio_metrics, .. } => (Kind::Ratio, encode_ratio(ratio_metrics)),
        MetricValue::Custom { value, .. } => custom::encode_custom(value.as_ref()),
    }
}

pub(super) fn number(value: usize) -> Value {
    Value::Number(value as u64)
}

fn encode_timestamp(timestamp: &Timestamp) -> Value {
    let time = timestamp.value();
    Value::Timestamp(TimestampMessage {
        seconds: time.map(|time| time.timestamp()),
        nanos: time.map_or(0, |time| time.timestamp_subsec_nanos()),
    })
}

fn encode_pruning(pruning: &PruningMetrics) -> Value {
    Value::Pruning(PruningMessage {
        pruned: pruning.pruned() as u64,
        matched: pruning.matched() as u64,
        fully_matched: pruning.fully_matched() as u64,
    })
}

fn encode_ratio(ratio: &RatioMetrics) -> Value {
    let merge = match ratio.merge_strategy() {
        RatioMergeStrategy::AddPartAddTotal => RatioMerge::AddPartAddTotal,
        RatioMergeStrategy::AddPartSetTotal => RatioMerge::AddPartSetTotal,
        RatioMergeStrategy::SetPartAddTotal => RatioMerge::SetPartAddTotal,
    };
    Value::Ratio(RatioMessage {
        part: ratio.part() as u64,
        total: ratio.total() as u64,
        merge: merge.into(),
        percentage_only: !ratio.display_raw_values(),
    })
}

pub(super) fn decode_value(payload: Payload<'_>) -> Result<MetricValue, DecodeError> {
    let name = Cow::Owned(payload.name.to_owned());
    Ok(match payload.kind {
        MetricKind::OutputRows => MetricValue::OutputRows(payload.count()?),
        MetricKind::ElapsedCompute => MetricValue::ElapsedCompute(payload.time()?),
        MetricKind::SpillCount => MetricValue::SpillCount(payload.count()?),
        MetricKind::SpilledBytes => MetricValue::SpilledBytes(payload.count()?),
        MetricKind::OutputBytes => MetricValue::OutputBytes(payload.count()?),
        MetricKind::OutputBatches => MetricValue::OutputBatches(payload.count()?),
        MetricKind::SpilledRows => MetricValue::SpilledRows(payload.count()?),
        MetricKind::CurrentMemoryUsage => MetricValue::CurrentMemoryUsage(payload.gauge()?),
        MetricKind::Count => MetricValue::Count {
            name,
            count: payload.count()?,
        },
        MetricKind::Gauge => MetricValue::Gauge {
            name,
            gauge: payload.gauge()?,
        },
        MetricKind::PeakMemoryUsage => MetricValue::PeakMemoryUsage {
            name,
            gauge: payload.gauge()?,
        },
        MetricKind::Time => MetricValue::Time {
            name,
            time: payload.time()?,
        },
        MetricKind::StartTimestamp => MetricValue::StartTimestamp(payload.timestamp()?),
        MetricKind::EndTimestamp => MetricValue::EndTimestamp(payload.timestamp()?),
        MetricKind::Pruning => MetricValue::PruningMetrics {
            name,
            pruning_metrics: payload.pruning()?,
        },
        MetricKind::Ratio => MetricValue::Ratio {
            name,
            ratio_metrics: payload.ratio()?,
        },
        _ => MetricValue::Custom {
            name,
            value: custom::decode_custom(payload)?,
        },
    })
}

/// A received value, with what errors about it must name.
pub(super) struct Payload<'a> {
    pub(super) kind: MetricKind,
    pub(super) name: &'a str,
    pub(super) value: Option<Value>,
}

impl Payload<'_> {
    pub(super) fn error(&self, field: &str, found: impl Display) -> DecodeError {
        let name: String = self.name.chars().take(MAX_NAME_IN_ERROR).collect();
        let kind = self.kind;
        DecodeError::new(format!("metric {kind:?} {name:?}: field {field}: {found}"))
    }

    /// The error for an enumeration's number that has no meaning.
    pub(super) fn unknown(&self, field: &str, number: i32) -> DecodeError {
        self.error(field, format_args!("unknown number {number}"))
    }

    /// The error for a value that is absent or belongs to another kind.
    pub(super) fn mismatch(&self) -> DecodeError {
        self.error("value", "missing, or of another kind")
    }

    pub(super) fn to_usize(&self, field: &str, value: u64) -> Result<usize, DecodeError> {
        usize::try_from(value)
            .map_err(|_| self.error(field, format_args!("{value} does not fit usize")))
    }

    pub(super) fn number(&self) -> Result<usize, DecodeError> {
        match self.value {
            Some(Value::Number(number)) => self.to_usize("number", number),
            _ => Err(self.mismatch()),
        }
    }

    fn count(&self) -> Result<Count, DecodeError> {
        let count = Count::new();
        count.add(self.number()?);
        Ok(count)
    }

    fn gauge(&self) -> Result<Gauge, DecodeError> {
        let gauge = Gauge::new();
        gauge.set(self.number()?);
        Ok(gauge)
    }

    fn time(&self) -> Result<Time, DecodeError> {
        let time = Time::new();
        let nanos = self.number()?;
        // Adding even an empty duration would record a nanosecond.
        if nanos > 0 {
            time.add_duration(Duration::from_nanos(nanos as u64));
        }
        Ok(time)
    }

    fn timestamp(&self) -> Result<Timestamp, DecodeError> {
        let Some(Value::Timestamp(TimestampMessage { seconds, nanos })) = self.value else {
            return Err(self.mismatch());
        };
        let timestamp = Timestamp::new();
        if let Some(seconds) = seconds {
            let time = DateTime::from_timestamp(seconds, nanos).ok_or_else(|| {
                self.error(
                    "seconds",
                    format_args!("no time at {seconds} s, {nanos} ns"),
                )
            })?;
            timestamp.set(time);
        }
        Ok(timestamp)
    }

    fn pruning(&self) -> Result<PruningMetrics, DecodeError> {
        let Some(Value::Pruning(message)) = &self.value else {
            return Err(self.mismatch());
        };
        let pruned = self.to_usize("pruned", message.pruned)?;
        let matched = self.to_usize("matched", message.matched)?;
        // The metric adds the two when it is displayed.
        if pruned.checked_add(matched).is_none() {
            return Err(self.error("matched", "with pruned, the total does not fit usize"));
        }
        let pruning = PruningMetrics::new();
        pruning.add_pruned(pruned);
        pruning.add_matched(matched);
        pruning.add_fully_matched(self.to_usize("fully_matched", message.fully_matched)?);
        Ok(pruning)
    }

    fn ratio(&self) -> Result<RatioMetrics, DecodeError> {
        let Some(Value::Ratio(message)) = &self.value else {
            return Err(self.mismatch());
        };
        let strategy = match RatioMerge::try_from(message.merge) {
            Ok(RatioMerge::AddPartAddTotal) => RatioMergeStrategy::AddPartAddTotal,
            Ok(RatioMerge::AddPartSetTotal) => RatioMergeStrategy::AddPartSetTotal,
            Ok(RatioMerge::SetPartAddTotal) => RatioMergeStrategy::SetPartAddTotal,
            Err(_) => return Err(self.unknown("merge", message.merge)),
        };
        let ratio = RatioMetrics::new()
            .with_merge_strategy(strategy)
            .with_display_raw_values(!message.percentage_only);
        ratio.set_part(self.to_usize("part", message.part)?);
        ratio.set_total(self.to_usize("total", message.total)?);
        Ok(ratio)
    }
}
