#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod custom;
mod hostile;
mod random;

use std::borrow::Cow;
use std::time::Duration;

use chrono::DateTime;
use datafusion::physical_plan::metrics::{
    Count, CustomMetricValue, Gauge, MetricValue, PruningMetrics, RatioMergeStrategy, RatioMetrics,
    Time, Timestamp,
};
use datafusion_distributed::{
    AvgLatencyMetric, BytesCounterMetric, FirstLatencyMetric, MaxGaugeMetric, MaxLatencyMetric,
    MinLatencyMetric, P50LatencyMetric, P75LatencyMetric, P95LatencyMetric, P99LatencyMetric,
};
use prost::Message;

use super::*;

fn count(n: usize) -> Count {
    let count = Count::new();
    count.add(n);
    count
}

fn gauge(n: usize) -> Gauge {
    let gauge = Gauge::new();
    gauge.set(n);
    gauge
}

fn time(nanos: u64) -> Time {
    let time = Time::new();
    if nanos > 0 {
        time.add_duration(Duration::from_nanos(nanos));
    }
    time
}

fn timestamp(seconds: i64, nanos: u32) -> Timestamp {
    let timestamp = Timestamp::new();
    timestamp.set(DateTime::from_timestamp(seconds, nanos).unwrap());
    timestamp
}

fn custom(value: impl CustomMetricValue + 'static) -> MetricValue {
    MetricValue::Custom {
        name: "custom".into(),
        value: Arc::new(value),
    }
}

/// Sends metrics through bytes.
fn over_the_wire(metrics: Vec<Metric>) -> Vec<Arc<Metric>> {
    let set: MetricsSet = metrics.into_iter().map(Arc::new).collect();
    let bytes = encode_metrics_set(&set).encode_to_vec();
    let message = MetricsSetMessage::decode(bytes.as_slice()).unwrap();
    decode_metrics_set(message).unwrap().into_iter().collect()
}

fn value_over_the_wire(value: MetricValue) -> MetricValue {
    over_the_wire(vec![Metric::new(value, None)])[0]
        .value()
        .clone()
}

#[track_caller]
fn assert_kept(value: MetricValue) {
    let received = value_over_the_wire(value.clone());
    assert_eq!(received, value);
    assert_eq!(received.name(), value.name());
    assert_eq!(received.to_string(), value.to_string());
}

#[test]
fn counters_with_fixed_names_are_kept() {
    for n in [0, 1, 42, usize::MAX] {
        assert_kept(MetricValue::OutputRows(count(n)));
        assert_kept(MetricValue::SpillCount(count(n)));
        assert_kept(MetricValue::SpilledBytes(count(n)));
        assert_kept(MetricValue::OutputBytes(count(n)));
        assert_kept(MetricValue::OutputBatches(count(n)));
        assert_kept(MetricValue::SpilledRows(count(n)));
        assert_kept(MetricValue::CurrentMemoryUsage(gauge(n)));
    }
}

#[test]
fn named_counters_and_gauges_are_kept() {
    for name in ["", "matches", "größe"] {
        for n in [0, 1, usize::MAX] {
            assert_kept(MetricValue::Count {
                name: name.into(),
                count: count(n),
            });
            assert_kept(MetricValue::Gauge {
                name: name.into(),
                gauge: gauge(n),
            });
            assert_kept(MetricValue::PeakMemoryUsage {
                name: name.into(),
                gauge: gauge(n),
            });
        }
    }
}

#[test]
fn times_are_kept_and_zero_stays_zero() {
    for nanos in [0, 1, 1_042, u64::MAX] {
        assert_kept(MetricValue::ElapsedCompute(time(nanos)));
        assert_kept(MetricValue::Time {
            name: "join_time".into(),
            time: time(nanos),
        });
    }
    let received = value_over_the_wire(MetricValue::ElapsedCompute(Time::new()));
    assert_eq!(received.as_usize(), 0);
}

#[test]
fn timestamps_are_kept_set_and_unset() {
    let first = DateTime::<chrono::Utc>::MIN_UTC;
    let leap_second = timestamp(1_483_228_799, 1_500_000_000);
    for value in [
        Timestamp::new(),
        timestamp(0, 0),
        timestamp(-1, 999_999_999),
        timestamp(1_700_000_000, 123_456_789),
        timestamp(first.timestamp(), 0),
        leap_second,
    ] {
        assert_kept(MetricValue::StartTimestamp(value.clone()));
        assert_kept(MetricValue::EndTimestamp(value));
    }
}

#[test]
fn pruning_counters_are_kept() {
    let sent = PruningMetrics::new();
    sent.add_pruned(8);
    sent.add_matched(5);
    sent.add_fully_matched(3);
    let value = MetricValue::PruningMetrics {
        name: "row_groups_pruned_statistics".into(),
        pruning_metrics: sent,
    };
    assert_kept(value.clone());
    let MetricValue::PruningMetrics {
        pruning_metrics, ..
    } = value_over_the_wire(value)
    else {
        panic!("another kind")
    };
    assert_eq!(pruning_metrics.fully_matched(), 3);
}

#[test]
fn ratios_keep_merge_strategy_and_display() {
    for (strategy, merged) in [
        (RatioMergeStrategy::AddPartAddTotal, (30, 100)),
        (RatioMergeStrategy::AddPartSetTotal, (30, 60)),
        (RatioMergeStrategy::SetPartAddTotal, (20, 100)),
    ] {
        for display_raw_values in [true, false] {
            let ratio_metrics = RatioMetrics::new()
                .with_merge_strategy(strategy.clone())
                .with_display_raw_values(display_raw_values);
            ratio_metrics.set_part(10);
            ratio_metrics.set_total(40);
            let value = MetricValue::Ratio {
                name: "selectivity".into(),
                ratio_metrics,
            };
            assert_kept(value.clone());
            let MetricValue::Ratio { ratio_metrics, .. } = value_over_the_wire(value) else {
                panic!("another kind")
            };
            let later = RatioMetrics::new();
            later.set_part(20);
            later.set_total(60);
            ratio_metrics.merge(&later);
            assert_eq!((ratio_metrics.part(), ratio_metrics.total()), merged);
        }
    }
}

#[test]
fn partition_labels_level_and_category_are_kept() {
    let metric = |partition| Metric::new(MetricValue::OutputRows(count(1)), partition);
    let received = over_the_wire(vec![
        metric(None),
        metric(Some(0))
            .with_label(Label::new("task_id", "7"))
            .with_label(Label::new("", ""))
            .with_type(MetricType::Summary)
            .with_category(MetricCategory::Rows),
        metric(Some(usize::MAX)).with_category(MetricCategory::Bytes),
        metric(Some(3)).with_category(MetricCategory::Timing),
        metric(Some(4)).with_category(MetricCategory::Uncategorized),
    ]);
    let facts: Vec<_> = received
        .iter()
        .map(|metric| {
            (
                metric.partition(),
                metric.metric_type(),
                metric.metric_category(),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            (None, MetricType::Dev, None),
            (Some(0), MetricType::Summary, Some(MetricCategory::Rows)),
            (
                Some(usize::MAX),
                MetricType::Dev,
                Some(MetricCategory::Bytes)
            ),
            (Some(3), MetricType::Dev, Some(MetricCategory::Timing)),
            (
                Some(4),
                MetricType::Dev,
                Some(MetricCategory::Uncategorized)
            ),
        ]
    );
    assert!(received[0].labels().is_empty());
    assert_eq!(
        received[1].labels(),
        [Label::new("task_id", "7"), Label::new("", "")]
    );
}

#[test]
fn nodes_and_metrics_keep_their_order() {
    let node = |numbers: &[usize]| -> MetricsSet {
        numbers
            .iter()
            .map(|n| Arc::new(Metric::new(MetricValue::OutputRows(count(*n)), Some(*n))))
            .collect()
    };
    let sent = TaskMetrics {
        pre_order_plan_metrics: vec![node(&[]), node(&[2, 1, 3]), node(&[]), node(&[5, 4])],
        task_metrics: node(&[9, 8]),
    };
    let bytes = encode_task_metrics(&sent).encode_to_vec();
    let received =
        decode_task_metrics(TaskMetricsMessage::decode(bytes.as_slice()).unwrap()).unwrap();
    let text = |metrics: &TaskMetrics| -> Vec<String> {
        metrics
            .pre_order_plan_metrics
            .iter()
            .map(MetricsSet::to_string)
            .collect()
    };
    assert_eq!(text(&received), text(&sent));
    assert_eq!(
        received.task_metrics.to_string(),
        sent.task_metrics.to_string()
    );
}

#[test]
fn task_without_metrics_is_an_empty_message() {
    let received = decode_task_metrics(TaskMetricsMessage::default()).unwrap();
    assert!(received.pre_order_plan_metrics.is_empty());
    assert_eq!(received.task_metrics.iter().count(), 0);
}
