//! The metrics of a network boundary, under the names and units of the reference transport, so that EXPLAIN ANALYZE and
//! what is built on it read the same.

use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Gauge, Label, MetricBuilder, MetricValue, Time,
};
use datafusion_distributed::{
    BytesCounterMetric, BytesMetricExt, DISTRIBUTED_DATAFUSION_TASK_ID_LABEL, FirstLatencyMetric,
    LatencyMetricExt, MaxLatencyMetric, MinLatencyMetric, P50LatencyMetric, P95LatencyMetric,
};
use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Metrics of one execute-task call.
pub(crate) struct BoundaryMetrics {
    set: ExecutionPlanMetricsSet,
    /// Peak of the memory reserved for the call, in bytes.
    pub(crate) max_mem_used: Gauge,
    /// Bytes of batch frames received.
    pub(crate) bytes_transferred: BytesCounterMetric,
    /// Batch frames received.
    pub(crate) msg_count: Count,
    /// Time spent reading and decoding.
    pub(crate) elapsed_compute: Time,
    latency: OnceLock<Latency>,
    /// Where the worker decides: batches that arrived compressed, and others.
    compressed: Option<[Count; 2]>,
}

struct Latency {
    min: MinLatencyMetric,
    max: MaxLatencyMetric,
    p50: P50LatencyMetric,
    p95: P95LatencyMetric,
    first: FirstLatencyMetric,
    sum: Time,
    count: Count,
}

impl BoundaryMetrics {
    pub(crate) fn new(set: &ExecutionPlanMetricsSet, compression: &str) -> Self {
        let names = ["batches_compressed", "batches_uncompressed"];
        let counters = || names.map(|name| MetricBuilder::new(set).global_counter(name));
        let elapsed_compute = Time::new();
        let value = MetricValue::ElapsedCompute(elapsed_compute.clone());
        MetricBuilder::new(set).build(value);
        Self {
            set: set.clone(),
            max_mem_used: MetricBuilder::new(set).global_gauge("max_mem_used"),
            bytes_transferred: MetricBuilder::new(set).bytes_counter("bytes_transferred"),
            msg_count: MetricBuilder::new(set).global_counter("msg_count"),
            elapsed_compute,
            latency: OnceLock::new(),
            compressed: (compression == "auto").then(counters),
        }
    }

    /// Counts a batch that was decoded.
    pub(crate) fn batch_decoded(&self, compressed: bool) {
        if let Some([yes, no]) = &self.compressed {
            if compressed { yes } else { no }.add(1);
        }
    }

    /// Counts a batch frame of `bytes`, sent at `sent_unix_nanos` by the worker's clock.
    pub(crate) fn batch_received(&self, bytes: usize, sent_unix_nanos: u64) {
        self.msg_count.add(1);
        self.bytes_transferred.add_bytes(bytes);
        let sent = UNIX_EPOCH + Duration::from_nanos(sent_unix_nanos);
        // A clock that runs behind the worker's gives no latency rather than a wrong one.
        if sent_unix_nanos > 0
            && let Ok(latency) = SystemTime::now().duration_since(sent)
        {
            let values = self.latency.get_or_init(|| Latency::new(&self.set));
            values.add(latency);
        }
    }
}

impl Latency {
    fn new(set: &ExecutionPlanMetricsSet) -> Self {
        let builder = || MetricBuilder::new(set);
        let sum = Time::new();
        builder().build(MetricValue::Time {
            name: Cow::Borrowed("network_latency_sum"),
            time: sum.clone(),
        });
        Self {
            min: builder().min_latency("network_latency_min"),
            max: builder().max_latency("network_latency_max"),
            p50: builder().p50_latency("network_latency_p50"),
            p95: builder().p95_latency("network_latency_p95"),
            first: builder().first_latency("network_latency_first"),
            sum,
            count: builder().counter("network_latency_count", 0),
        }
    }

    fn add(&self, latency: Duration) {
        self.min.add_duration(latency);
        self.max.add_duration(latency);
        self.p50.add_duration(latency);
        self.p95.add_duration(latency);
        self.first.add_duration(latency);
        self.sum.add_duration(latency);
        self.count.add(1);
    }
}

/// Reports the length of a plan sent to a worker.
pub(crate) fn plan_sent(set: &ExecutionPlanMetricsSet, plan_bytes: usize) {
    MetricBuilder::new(set)
        .with_label(Label::new(DISTRIBUTED_DATAFUSION_TASK_ID_LABEL, "0"))
        .bytes_counter("plan_bytes_sent")
        .add_bytes(plan_bytes);
}
