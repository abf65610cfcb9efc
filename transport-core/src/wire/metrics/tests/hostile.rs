//! What a peer must not send, and what it may send that this side does not know.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn message(kind: MetricKind, value: Value) -> MetricMessage {
    MetricMessage {
        kind: kind.into(),
        name: "m".to_owned(),
        value: Some(value),
        ..MetricMessage::default()
    }
}

fn decode(metrics: Vec<MetricMessage>) -> Result<MetricsSet, DecodeError> {
    decode_metrics_set(MetricsSetMessage { metrics })
}

#[track_caller]
fn assert_refused(metric: MetricMessage, error: &str) {
    assert_eq!(decode(vec![metric]).unwrap_err().to_string(), error);
}

fn bins(counts: Vec<u64>, first_key: i32, min_key: i32, max_key: i32) -> BinsMessage {
    BinsMessage {
        counts,
        first_key,
        min_key,
        max_key,
        collapsed: false,
    }
}

fn sketch(positive: BinsMessage) -> Value {
    Value::Sketch(Box::new(SketchMessage {
        positive: Some(positive),
        ..SketchMessage::default()
    }))
}

#[test]
fn metric_of_an_unknown_kind_is_left_out() {
    let newer = MetricMessage {
        kind: 1_000,
        category: 77,
        ..MetricMessage::default()
    };
    let known = message(MetricKind::OutputRows, Value::Number(5));
    let set = decode(vec![newer.clone(), known, newer.clone()]).unwrap();
    assert_eq!(set.to_string(), "output_rows=5");

    let set = MetricsSetMessage {
        metrics: vec![newer],
    };
    let task = decode_task_metrics(TaskMetricsMessage {
        nodes: vec![set.clone(), set],
        task: None,
    });
    assert_eq!(task.unwrap().pre_order_plan_metrics.len(), 2);
}

#[test]
fn error_names_node_metric_and_field() {
    let bad = MetricMessage {
        level: 9,
        ..message(MetricKind::Count, Value::Number(5))
    };
    let message = TaskMetricsMessage {
        nodes: vec![
            MetricsSetMessage::default(),
            MetricsSetMessage { metrics: vec![bad] },
        ],
        task: None,
    };
    assert_eq!(
        decode_task_metrics(message).unwrap_err().to_string(),
        "node 1: metric Count \"m\": field level: unknown number 9"
    );
}

#[test]
fn missing_or_foreign_fields_are_refused() {
    let metric = message(MetricKind::Count, Value::Number(5));
    assert_refused(
        MetricMessage {
            value: None,
            ..metric.clone()
        },
        "metric Count \"m\": field value: missing, or of another kind",
    );
    assert_refused(
        message(MetricKind::Ratio, Value::Number(5)),
        "metric Ratio \"m\": field value: missing, or of another kind",
    );
    assert_refused(
        message(MetricKind::Unspecified, Value::Number(5)),
        "metric Unspecified \"m\": field kind: not a metric",
    );
    assert_refused(
        MetricMessage {
            category: -1,
            ..metric
        },
        "metric Count \"m\": field category: unknown number -1",
    );
}

#[test]
fn impossible_values_are_refused() {
    assert_refused(
        message(
            MetricKind::StartTimestamp,
            Value::Timestamp(TimestampMessage {
                seconds: Some(i64::MAX),
                nanos: 0,
            }),
        ),
        "metric StartTimestamp \"m\": field seconds: no time at 9223372036854775807 s, 0 ns",
    );
    assert_refused(
        message(
            MetricKind::Pruning,
            Value::Pruning(PruningMessage {
                pruned: u64::MAX,
                matched: 1,
                fully_matched: 0,
            }),
        ),
        "metric Pruning \"m\": field matched: with pruned, the total does not fit usize",
    );
    assert_refused(
        message(
            MetricKind::Ratio,
            Value::Ratio(RatioMessage {
                merge: 3,
                ..RatioMessage::default()
            }),
        ),
        "metric Ratio \"m\": field merge: unknown number 3",
    );
}

#[test]
fn sketches_that_would_panic_later_are_refused() {
    for (bins, found) in [
        (
            bins(vec![1], 0, 0, 5),
            "keys 0 to 5 do not lie in 1 bins from 0",
        ),
        (
            bins(vec![1, 1], 0, 1, 0),
            "keys 1 to 0 do not lie in 2 bins from 0",
        ),
        (
            bins(vec![1], 5, 4, 5),
            "keys 4 to 5 do not lie in 1 bins from 5",
        ),
        (
            bins(vec![1], i32::MIN, 0, 0),
            "a key of -2147483648, 0, 0 is out of range",
        ),
        (bins(vec![1; 2_049], 0, 0, 1), "2049 bins are too many"),
        (
            bins(vec![], 0, 0, 0),
            "keys 0 to 0 do not lie in 0 bins from 0",
        ),
        (
            bins(vec![0], 0, 0, 0),
            "the bins hold no samples, or too many",
        ),
        (
            bins(vec![u64::MAX, 1], 0, 0, 0),
            "the bins hold no samples, or too many",
        ),
    ] {
        assert_refused(
            message(MetricKind::P95Latency, sketch(bins)),
            &format!("metric P95Latency \"m\": field sketch: positive: {found}"),
        );
    }
    assert_refused(
        message(MetricKind::P50Latency, sketch(bins(vec![1 << 49], 0, 0, 0))),
        "metric P50Latency \"m\": field sketch: 562949953421312 samples are more than 281474976710656",
    );
}

#[test]
fn long_name_is_cut_in_the_error() {
    let metric = MetricMessage {
        name: "ä".repeat(100_000),
        value: None,
        ..message(MetricKind::Count, Value::Number(0))
    };
    assert!(decode(vec![metric]).unwrap_err().to_string().len() < 300);
}

/// Does with a metric what a coordinator does.
fn use_metric(metric: &Metric) {
    let _ = (metric.to_string(), metric.value().as_usize());
    let mut merged = metric.value().new_empty();
    merged.aggregate(metric.value());
    let _ = (merged.to_string(), merged.as_usize());
}

fn key() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => -40..40i32,
        2 => -3_000..3_000i32,
        1 => -140_000..140_000i32,
        1 => any::<i32>()
    ]
}

fn any_bins() -> impl Strategy<Value = BinsMessage> {
    let sample_count = prop_oneof![8 => 0..5u64, 1 => any::<u64>()];
    let counts = prop_oneof![
        vec(sample_count, 0..200),
        (0..2_100usize).prop_map(|len| vec![1; len])
    ];
    (counts, key(), key(), key(), any::<bool>()).prop_map(|(counts, first, min, max, collapsed)| {
        BinsMessage {
            collapsed,
            ..bins(counts, first, min, max)
        }
    })
}

/// Bins that pass the check although no library made them.
fn plausible_bins() -> impl Strategy<Value = BinsMessage> {
    (
        prop_oneof![1..=2_048usize, Just(2_048), Just(128), Just(1)],
        prop_oneof![
            -40..40i32,
            -5_000..5_000i32,
            Just(131_072 - 4_096),
            Just(-131_072)
        ],
        any::<[prop::sample::Index; 3]>(),
        any::<bool>(),
    )
        .prop_map(|(len, first, [low, high, sample], collapsed)| {
            let (low, high) = (low.index(len) as i32, high.index(len) as i32);
            let mut counts = vec![0; len];
            counts[sample.index(len)] = 3;
            BinsMessage {
                collapsed,
                ..bins(counts, first, first + low.min(high), first + low.max(high))
            }
        })
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::Number),
        (any::<Option<i64>>(), any::<u32>())
            .prop_map(|(seconds, nanos)| Value::Timestamp(TimestampMessage { seconds, nanos })),
        any::<[u64; 3]>().prop_map(|[pruned, matched, fully_matched]| {
            Value::Pruning(PruningMessage {
                pruned,
                matched,
                fully_matched,
            })
        }),
        (any::<[u64; 2]>(), -1..4i32, any::<bool>()).prop_map(
            |([part, total], merge, percentage_only)| {
                Value::Ratio(RatioMessage {
                    part,
                    total,
                    merge,
                    percentage_only,
                })
            }
        ),
        any::<[u64; 2]>()
            .prop_map(|[sum_nanos, count]| Value::Average(AverageMessage { sum_nanos, count })),
        (".{0,9}", any::<u64>())
            .prop_map(|(text, number)| Value::Text(TextMessage { text, number })),
        (
            option::of(any_bins()),
            option::of(any_bins()),
            any::<[f64; 3]>(),
            0..9u64
        )
            .prop_map(|(positive, negative, [min, max, sum], zero_count)| {
                Value::Sketch(Box::new(SketchMessage {
                    positive,
                    negative,
                    zero_count,
                    min,
                    max,
                    sum,
                }))
            }),
    ]
}

proptest! {
    #[test]
    fn garbage_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(message) = TaskMetricsMessage::decode(bytes.as_slice()) {
            let _ = decode_task_metrics(message);
        }
    }

    #[test]
    fn damaged_bytes_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let sent = P99LatencyMetric::default();
        (1..50).for_each(|n| sent.add_nanos(n * n * n));
        let set: MetricsSet = [Arc::new(Metric::new(custom(sent), Some(1)))].into_iter().collect();
        let mut bytes = encode_metrics_set(&set).encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Ok(set)) = MetricsSetMessage::decode(bytes.as_slice()).map(decode_metrics_set) {
            set.iter().for_each(|metric| use_metric(metric));
        }
    }

    #[test]
    fn decoded_metrics_can_be_shown_and_merged(kind in 0..70i32, value in any_value()) {
        let metric = MetricMessage { kind, value: Some(value), ..MetricMessage::default() };
        if let Ok(set) = decode(vec![metric]) {
            set.iter().for_each(|metric| use_metric(metric));
        }
    }

    #[test]
    fn accepted_sketches_merge_and_grow(
        sketches in vec(plausible_bins(), 1..5),
        samples in vec(any::<usize>(), 0..5),
    ) {
        let merged = P50LatencyMetric::default();
        for bins in sketches {
            let set = decode(vec![message(MetricKind::P50Latency, sketch(bins))]).unwrap();
            let MetricValue::Custom { value, .. } = set.iter().next().unwrap().value() else {
                panic!("not custom")
            };
            let received = value.as_any().downcast_ref::<P50LatencyMetric>().unwrap();
            merged.aggregate(Arc::clone(value));
            received.aggregate(Arc::new(merged.clone()));
            samples.iter().for_each(|nanos| received.add_nanos(*nanos));
            let _ = (received.to_string(), merged.to_string());
        }
    }
}
