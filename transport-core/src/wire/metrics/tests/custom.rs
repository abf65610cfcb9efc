//! The engine's custom metrics, and those of others.

use std::any::Any;
use std::fmt;

use sketches_ddsketch::{Config, DDSketch};

use super::*;

fn custom_over_the_wire<T: CustomMetricValue + Clone + 'static>(value: T) -> T {
    match value_over_the_wire(custom(value)) {
        MetricValue::Custom { name, value } => {
            assert_eq!(name, "custom");
            value.as_any().downcast_ref::<T>().unwrap().clone()
        }
        other => panic!("not custom: {other:?}"),
    }
}

#[test]
fn custom_counters_and_gauges_are_kept() {
    for n in [0, 7, usize::MAX] {
        assert_kept(custom(BytesCounterMetric::from_value(n)));
        assert_kept(custom(MaxGaugeMetric::from_value(n)));
    }
}

#[test]
fn latencies_are_kept_recorded_and_empty() {
    for nanos in [0, 1, 1_500_000, usize::MAX] {
        assert_kept(custom(MinLatencyMetric::from_nanos(nanos)));
        assert_kept(custom(MaxLatencyMetric::from_nanos(nanos)));
        assert_kept(custom(FirstLatencyMetric::from_nanos(nanos)));
    }
    assert_kept(custom(MinLatencyMetric::default()));
    let received = custom_over_the_wire(AvgLatencyMetric::from_raw(1_001, 4));
    assert_eq!((received.nanos_sum(), received.count()), (1_001, 4));
    let received = custom_over_the_wire(AvgLatencyMetric::default());
    assert_eq!((received.nanos_sum(), received.count()), (0, 0));
}

#[test]
fn percentiles_are_kept_bit_for_bit() {
    macro_rules! check {
        ($metric:ty) => {
            for samples in [&[][..], &[0], &[5], &[1, 20, 300, 4_000, 1 << 40]] {
                let sent = <$metric>::default();
                samples.iter().for_each(|nanos| sent.add_nanos(*nanos));
                let received = custom_over_the_wire(sent.clone());
                assert_eq!(received.count(), samples.len());
                assert_eq!(received.value(), sent.value());
                assert_eq!(
                    received.serialize_sketch().unwrap(),
                    sent.serialize_sketch().unwrap()
                );
            }
        };
    }
    check!(P50LatencyMetric);
    check!(P75LatencyMetric);
    check!(P95LatencyMetric);
    check!(P99LatencyMetric);
}

#[test]
fn received_percentiles_merge() {
    let sent = P99LatencyMetric::default();
    (1..=1_000).for_each(|micros| sent.add_nanos(micros * 1_000));
    let received = custom_over_the_wire(sent.clone());
    let merged = received.new_empty();
    merged.aggregate(Arc::new(received));
    merged.aggregate(Arc::new(sent.clone()));
    assert_eq!(merged.as_usize(), sent.value());
}

#[test]
fn percentile_of_another_configuration_travels_as_text() {
    let mut sketch = DDSketch::new(Config::new(0.05, 512, 1.0));
    sketch.add(2_000_000.0);
    let sent = custom(P50LatencyMetric::from_sketch(sketch));
    let received = value_over_the_wire(sent.clone());
    assert_eq!(received.to_string(), sent.to_string());
    assert_eq!(received.as_usize(), sent.as_usize());
}

#[derive(Debug)]
struct Temperature(usize);

impl fmt::Display for Temperature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} °C", self.0)
    }
}

impl CustomMetricValue for Temperature {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Self(0))
    }

    fn aggregate(&self, _other: Arc<dyn CustomMetricValue>) {}

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_usize(&self) -> usize {
        self.0
    }

    fn is_eq(&self, _other: &Arc<dyn CustomMetricValue>) -> bool {
        false
    }
}

#[test]
fn custom_metric_of_another_type_keeps_text_and_number() {
    let received = value_over_the_wire(custom(Temperature(21)));
    assert_eq!(received.name(), "custom");
    assert_eq!(received.to_string(), "21 °C");
    assert_eq!(received.as_usize(), 21);
    // A second hop changes nothing.
    assert_kept(received);
}

#[test]
fn remote_custom_metrics_merge_to_a_list_of_different_texts() {
    let mut merged = custom(RemoteCustomMetric::default());
    for n in [3, 1, 3] {
        merged.aggregate(&custom(RemoteCustomMetric::new(format!("{n} °C"), n)));
    }
    merged.aggregate(&custom(RemoteCustomMetric::default()));
    assert_eq!(merged.to_string(), "3 °C, 1 °C");
    assert_eq!(merged.as_usize(), 3);
    for n in 0..1_000 {
        merged.aggregate(&custom(RemoteCustomMetric::new(n.to_string(), n)));
    }
    assert_eq!(merged.to_string(), "3 °C, 1 °C, 0, 1, 2, 3, 4, 5, …");
}
