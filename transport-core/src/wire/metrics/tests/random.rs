//! Random metrics arrive as they were sent.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn number() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0),
        Just(usize::MAX),
        0..1_000usize,
        0..1usize << 40,
        any::<usize>()
    ]
}

fn text() -> impl Strategy<Value = Cow<'static, str>> {
    ".{0,12}".prop_map(Cow::Owned)
}

fn any_timestamp() -> impl Strategy<Value = Timestamp> {
    option::of((
        -8_000_000_000_000i64..8_000_000_000_000,
        0..1_000_000_000u32,
    ))
    .prop_map(|set| set.map_or_else(Timestamp::new, |(seconds, nanos)| timestamp(seconds, nanos)))
}

fn plain_value() -> impl Strategy<Value = MetricValue> {
    prop_oneof![
        number().prop_map(|n| MetricValue::OutputRows(count(n))),
        number().prop_map(|n| MetricValue::ElapsedCompute(time(n as u64))),
        number().prop_map(|n| MetricValue::SpillCount(count(n))),
        number().prop_map(|n| MetricValue::SpilledBytes(count(n))),
        number().prop_map(|n| MetricValue::OutputBytes(count(n))),
        number().prop_map(|n| MetricValue::OutputBatches(count(n))),
        number().prop_map(|n| MetricValue::SpilledRows(count(n))),
        number().prop_map(|n| MetricValue::CurrentMemoryUsage(gauge(n))),
        any_timestamp().prop_map(MetricValue::StartTimestamp),
        any_timestamp().prop_map(MetricValue::EndTimestamp),
    ]
}

fn pruning() -> impl Strategy<Value = PruningMetrics> {
    (0..usize::MAX / 2, 0..usize::MAX / 2, number()).prop_map(|(pruned, matched, fully)| {
        let pruning = PruningMetrics::new();
        pruning.add_pruned(pruned);
        pruning.add_matched(matched);
        pruning.add_fully_matched(fully);
        pruning
    })
}

fn ratio() -> impl Strategy<Value = RatioMetrics> {
    let strategy = prop_oneof![
        Just(RatioMergeStrategy::AddPartAddTotal),
        Just(RatioMergeStrategy::AddPartSetTotal),
        Just(RatioMergeStrategy::SetPartAddTotal),
    ];
    (number(), number(), strategy, any::<bool>()).prop_map(|(part, total, strategy, raw)| {
        let ratio = RatioMetrics::new()
            .with_merge_strategy(strategy)
            .with_display_raw_values(raw);
        ratio.set_part(part);
        ratio.set_total(total);
        ratio
    })
}

fn named_value() -> impl Strategy<Value = MetricValue> {
    (text(), number(), pruning(), ratio(), 0..6).prop_map(
        |(name, n, pruning_metrics, ratio_metrics, which)| match which {
            0 => MetricValue::Count {
                name,
                count: count(n),
            },
            1 => MetricValue::Gauge {
                name,
                gauge: gauge(n),
            },
            2 => MetricValue::PeakMemoryUsage {
                name,
                gauge: gauge(n),
            },
            3 => MetricValue::Time {
                name,
                time: time(n as u64),
            },
            4 => MetricValue::PruningMetrics {
                name,
                pruning_metrics,
            },
            _ => MetricValue::Ratio {
                name,
                ratio_metrics,
            },
        },
    )
}

macro_rules! percentile {
    ($metric:ty, $samples:expr) => {{
        let metric = <$metric>::default();
        $samples
            .into_iter()
            .for_each(|nanos| metric.add_nanos(nanos));
        Arc::new(metric)
    }};
}

fn custom_value() -> impl Strategy<Value = MetricValue> {
    (text(), number(), number(), vec(number(), 0..50), 0..11).prop_map(
        |(name, n, m, samples, which)| {
            let value: Arc<dyn CustomMetricValue> = match which {
                0 => Arc::new(BytesCounterMetric::from_value(n)),
                1 => Arc::new(MaxGaugeMetric::from_value(n)),
                2 => Arc::new(MinLatencyMetric::from_nanos(n)),
                3 => Arc::new(MaxLatencyMetric::from_nanos(n)),
                4 => Arc::new(AvgLatencyMetric::from_raw(n, m)),
                5 => Arc::new(FirstLatencyMetric::from_nanos(n)),
                6 => percentile!(P50LatencyMetric, samples),
                7 => percentile!(P75LatencyMetric, samples),
                8 => percentile!(P95LatencyMetric, samples),
                9 => percentile!(P99LatencyMetric, samples),
                _ => Arc::new(RemoteCustomMetric::new(format!("{n} °C"), m)),
            };
            MetricValue::Custom { name, value }
        },
    )
}

fn metric() -> impl Strategy<Value = Arc<Metric>> {
    let value = prop_oneof![plain_value(), named_value(), custom_value()];
    let category = prop_oneof![
        Just(None),
        Just(Some(MetricCategory::Rows)),
        Just(Some(MetricCategory::Bytes)),
        Just(Some(MetricCategory::Timing)),
        Just(Some(MetricCategory::Uncategorized)),
    ];
    let partition = option::of(number());
    let labels = vec((text(), text()), 0..4);
    (value, partition, labels, any::<bool>(), category).prop_map(
        |(value, partition, labels, summary, category)| {
            let labels = labels
                .into_iter()
                .map(|(name, value)| Label::new(name, value))
                .collect();
            let metric = Metric::new_with_labels(value, partition, labels).with_type(if summary {
                MetricType::Summary
            } else {
                MetricType::Dev
            });
            Arc::new(match category {
                Some(category) => metric.with_category(category),
                None => metric,
            })
        },
    )
}

fn metrics_set() -> impl Strategy<Value = MetricsSet> {
    vec(metric(), 0..8).prop_map(|metrics| metrics.into_iter().collect())
}

/// The serialized sketch of a percentile, which holds its count and all its quantiles.
fn sketch(value: &MetricValue) -> Option<Vec<u8>> {
    let MetricValue::Custom { value, .. } = value else {
        return None;
    };
    let any = value.as_any();
    let bytes = if let Some(metric) = any.downcast_ref::<P50LatencyMetric>() {
        metric.serialize_sketch()
    } else if let Some(metric) = any.downcast_ref::<P75LatencyMetric>() {
        metric.serialize_sketch()
    } else if let Some(metric) = any.downcast_ref::<P95LatencyMetric>() {
        metric.serialize_sketch()
    } else if let Some(metric) = any.downcast_ref::<P99LatencyMetric>() {
        metric.serialize_sketch()
    } else {
        return None;
    };
    Some(bytes.unwrap())
}

fn assert_same(received: &MetricsSet, sent: &MetricsSet) {
    assert_eq!(received.iter().count(), sent.iter().count());
    for (received, sent) in received.iter().zip(sent.iter()) {
        assert_eq!(received.to_string(), sent.to_string());
        assert_eq!(received.value(), sent.value());
        assert_eq!(received.value().as_usize(), sent.value().as_usize());
        assert_eq!(received.partition(), sent.partition());
        assert_eq!(received.labels(), sent.labels());
        assert_eq!(received.metric_type(), sent.metric_type());
        assert_eq!(received.metric_category(), sent.metric_category());
        assert_eq!(sketch(received.value()), sketch(sent.value()));
    }
}

proptest! {
    #[test]
    fn random_task_metrics_arrive_as_sent(nodes in vec(metrics_set(), 0..5), task in metrics_set()) {
        let sent = TaskMetrics {
            pre_order_plan_metrics: nodes,
            task_metrics: task,
        };
        let bytes = encode_task_metrics(&sent).encode_to_vec();
        let message = TaskMetricsMessage::decode(bytes.as_slice()).unwrap();
        let received = decode_task_metrics(message).unwrap();
        assert_eq!(
            received.pre_order_plan_metrics.len(),
            sent.pre_order_plan_metrics.len()
        );
        for (received, sent) in received
            .pre_order_plan_metrics
            .iter()
            .zip(&sent.pre_order_plan_metrics)
        {
            assert_same(received, sent);
        }
        assert_same(&received.task_metrics, &sent.task_metrics);
    }
}
