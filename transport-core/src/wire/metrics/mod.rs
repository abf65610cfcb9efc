//! Metrics of a task: [`TaskMetrics`] to a message and back.
//!
//! Everything that the engine lets read and set arrives as it was sent: names, values, partitions, labels, levels,
//! categories, and the order of nodes and of metrics. A custom metric of a type that is not the engine's own arrives as
//! a [`RemoteCustomMetric`], which shows what the sender shows.
//!
//! Metrics inform and do not decide, so a newer peer's metric must not fail a query: a metric of an unknown kind is left
//! out. Everything else that is not as agreed is an error that names the metric and the field.
//!
//! Encoding reads live counters one after the other; a task that still runs gives numbers of slightly different moments.

mod custom;
mod message;
mod remote_custom;
mod sketch;
#[cfg(test)]
mod tests;
mod value;

use std::sync::Arc;

use datafusion::physical_plan::metrics::{Label, Metric, MetricCategory, MetricType, MetricsSet};
use datafusion_distributed::TaskMetrics;

use self::value::Payload;
use super::DecodeError;

pub use self::message::{
    AverageMessage, BinsMessage, Category, LabelMessage, Level, MetricKind, MetricMessage,
    MetricsSetMessage, PruningMessage, RatioMerge, RatioMessage, SketchMessage, TaskMetricsMessage,
    TextMessage, TimestampMessage, Value,
};
pub use self::remote_custom::RemoteCustomMetric;

/// The message for a task's metrics.
pub fn encode_task_metrics(metrics: &TaskMetrics) -> TaskMetricsMessage {
    TaskMetricsMessage {
        nodes: metrics
            .pre_order_plan_metrics
            .iter()
            .map(encode_metrics_set)
            .collect(),
        task: Some(encode_metrics_set(&metrics.task_metrics)),
    }
}

/// The metrics in a message. Every node keeps its position, even if all its metrics are of unknown kinds.
pub fn decode_task_metrics(message: TaskMetricsMessage) -> Result<TaskMetrics, DecodeError> {
    let decode_node = |(index, set)| {
        decode_metrics_set(set).map_err(|err| DecodeError::new(format!("node {index}: {err}")))
    };
    let nodes = message.nodes.into_iter().enumerate();
    Ok(TaskMetrics {
        pre_order_plan_metrics: nodes.map(decode_node).collect::<Result<_, _>>()?,
        task_metrics: decode_metrics_set(message.task.unwrap_or_default())
            .map_err(|err| DecodeError::new(format!("task: {err}")))?,
    })
}

/// The message for the metrics of one node.
pub fn encode_metrics_set(metrics: &MetricsSet) -> MetricsSetMessage {
    MetricsSetMessage {
        metrics: metrics.iter().map(|metric| encode_metric(metric)).collect(),
    }
}

/// The metrics of one node in a message, without those of unknown kinds.
pub fn decode_metrics_set(message: MetricsSetMessage) -> Result<MetricsSet, DecodeError> {
    let metrics = message.metrics.into_iter();
    metrics
        .filter_map(|metric| decode_metric(metric).transpose())
        .map(|metric| metric.map(Arc::new))
        .collect()
}

fn encode_metric(metric: &Metric) -> MetricMessage {
    let (kind, value) = value::encode_value(metric.value());
    let name = if kind.has_fixed_name() {
        String::new()
    } else {
        metric.value().name().to_owned()
    };
    MetricMessage {
        kind: kind.into(),
        name,
        partition: metric.partition().map(|partition| partition as u64),
        labels: metric.labels().iter().map(encode_label).collect(),
        level: encode_level(metric.metric_type()).into(),
        category: encode_category(metric.metric_category()).into(),
        value: Some(value),
    }
}

/// `None` for a metric of an unknown kind.
fn decode_metric(message: MetricMessage) -> Result<Option<Metric>, DecodeError> {
    let Ok(kind) = MetricKind::try_from(message.kind) else {
        tracing::debug!(kind = message.kind, name = %message.name, "left out a metric of an unknown kind");
        return Ok(None);
    };
    let payload = Payload {
        kind,
        name: &message.name,
        value: message.value,
    };
    let partition = match message.partition {
        Some(partition) => Some(payload.to_usize("partition", partition)?),
        None => None,
    };
    let Some(level) = decode_level(message.level) else {
        return Err(payload.unknown("level", message.level));
    };
    let Some(category) = decode_category(message.category) else {
        return Err(payload.unknown("category", message.category));
    };
    let labels = message.labels.into_iter().map(decode_label).collect();
    let value = value::decode_value(payload)?;
    let metric = Metric::new_with_labels(value, partition, labels).with_type(level);
    Ok(Some(match category {
        Some(category) => metric.with_category(category),
        None => metric,
    }))
}

fn encode_label(label: &Label) -> LabelMessage {
    LabelMessage {
        name: label.name().to_owned(),
        value: label.value().to_owned(),
    }
}

fn decode_label(message: LabelMessage) -> Label {
    Label::new(message.name, message.value)
}

fn encode_level(level: MetricType) -> Level {
    match level {
        MetricType::Dev => Level::Dev,
        MetricType::Summary => Level::Summary,
    }
}

fn decode_level(level: i32) -> Option<MetricType> {
    match Level::try_from(level).ok()? {
        Level::Dev => Some(MetricType::Dev),
        Level::Summary => Some(MetricType::Summary),
    }
}

fn encode_category(category: Option<MetricCategory>) -> Category {
    match category {
        None => Category::Undeclared,
        Some(MetricCategory::Rows) => Category::Rows,
        Some(MetricCategory::Bytes) => Category::Bytes,
        Some(MetricCategory::Timing) => Category::Timing,
        Some(MetricCategory::Uncategorized) => Category::Uncategorized,
    }
}

/// The inner `None` is a metric that declares no category.
fn decode_category(category: i32) -> Option<Option<MetricCategory>> {
    Some(match Category::try_from(category).ok()? {
        Category::Undeclared => None,
        Category::Rows => Some(MetricCategory::Rows),
        Category::Bytes => Some(MetricCategory::Bytes),
        Category::Timing => Some(MetricCategory::Timing),
        Category::Uncategorized => Some(MetricCategory::Uncategorized),
    })
}
