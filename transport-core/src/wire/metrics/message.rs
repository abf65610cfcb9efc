//! The messages. Every enumeration's zero is what most metrics have, so that it costs no bytes.

/// The metrics of one task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskMetricsMessage {
    /// One set per plan node, in pre-order. The position names the node, so a node without metrics has an empty set.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<MetricsSetMessage>,
    /// Metrics of the task as a whole. Absent means none.
    #[prost(message, optional, tag = "2")]
    pub task: Option<MetricsSetMessage>,
}

/// The metrics of one plan node or of one task, in the order in which they were registered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricsSetMessage {
    /// The metrics.
    #[prost(message, repeated, tag = "1")]
    pub metrics: Vec<MetricMessage>,
}

/// One metric.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricMessage {
    /// What is measured, and so which `value` to expect. A number that the receiver does not know is a metric of a
    /// newer peer: the receiver leaves the metric out.
    #[prost(enumeration = "MetricKind", tag = "1")]
    pub kind: i32,
    /// The operator's name for the metric. Empty where the kind alone gives the name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The partition that was measured. Absent means all partitions.
    #[prost(uint64, optional, tag = "3")]
    pub partition: Option<u64>,
    /// Labels, in order.
    #[prost(message, repeated, tag = "4")]
    pub labels: Vec<LabelMessage>,
    /// For whom the metric is shown.
    #[prost(enumeration = "Level", tag = "5")]
    pub level: i32,
    /// What kind of quantity the metric declares to be.
    #[prost(enumeration = "Category", tag = "6")]
    pub category: i32,
    /// The measured value.
    #[prost(oneof = "Value", tags = "7, 8, 9, 10, 11, 12, 13")]
    pub value: Option<Value>,
}

/// One label of a metric.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LabelMessage {
    /// The label's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The label's value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A measured value. Which one a metric carries follows from its [`MetricKind`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// A count, a number of bytes, or a number of nanoseconds.
    #[prost(uint64, tag = "7")]
    Number(u64),
    /// A point in time, which may be unset.
    #[prost(message, tag = "8")]
    Timestamp(TimestampMessage),
    /// Counters of a pruning step.
    #[prost(message, tag = "9")]
    Pruning(PruningMessage),
    /// A part of a total.
    #[prost(message, tag = "10")]
    Ratio(RatioMessage),
    /// The samples behind an average.
    #[prost(message, tag = "11")]
    Average(AverageMessage),
    /// The samples behind a percentile. Boxed: ten times the size of the others and rare.
    #[prost(message, boxed, tag = "12")]
    Sketch(Box<SketchMessage>),
    /// A value of which only the displayed text is known.
    #[prost(message, tag = "13")]
    Text(TextMessage),
}

/// A point in time in UTC.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TimestampMessage {
    /// Whole seconds since 1970. Absent if the timestamp was never recorded.
    #[prost(sint64, optional, tag = "1")]
    pub seconds: Option<i64>,
    /// Nanoseconds after `seconds`; a leap second reaches into the second billion.
    #[prost(uint32, tag = "2")]
    pub nanos: u32,
}

/// How much a pruning step left out and kept.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PruningMessage {
    /// Items left out.
    #[prost(uint64, tag = "1")]
    pub pruned: u64,
    /// Items kept.
    #[prost(uint64, tag = "2")]
    pub matched: u64,
    /// Items kept that are known to match as a whole.
    #[prost(uint64, tag = "3")]
    pub fully_matched: u64,
}

/// A part of a total.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RatioMessage {
    /// The numerator.
    #[prost(uint64, tag = "1")]
    pub part: u64,
    /// The denominator.
    #[prost(uint64, tag = "2")]
    pub total: u64,
    /// How two ratios become one.
    #[prost(enumeration = "RatioMerge", tag = "3")]
    pub merge: i32,
    /// Show the percentage alone, without numerator and denominator.
    #[prost(bool, tag = "4")]
    pub percentage_only: bool,
}

/// The samples behind an average.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AverageMessage {
    /// Sum of all samples, in nanoseconds.
    #[prost(uint64, tag = "1")]
    pub sum_nanos: u64,
    /// Number of samples.
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

/// A sketch of latencies with the default configuration of the sketch library, in nanoseconds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SketchMessage {
    /// Samples above zero. Absent if there are none.
    #[prost(message, optional, tag = "1")]
    pub positive: Option<BinsMessage>,
    /// Samples below zero. Absent if there are none.
    #[prost(message, optional, tag = "2")]
    pub negative: Option<BinsMessage>,
    /// Samples too close to zero for a bin.
    #[prost(uint64, tag = "3")]
    pub zero_count: u64,
    /// The smallest sample, infinity if there are none.
    #[prost(double, tag = "4")]
    pub min: f64,
    /// The largest sample, negative infinity if there are none.
    #[prost(double, tag = "5")]
    pub max: f64,
    /// Sum of all samples.
    #[prost(double, tag = "6")]
    pub sum: f64,
}

/// The bins of one side of a sketch. A bin's key is about the logarithm of the samples in it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BinsMessage {
    /// Samples per bin.
    #[prost(uint64, repeated, tag = "1")]
    pub counts: Vec<u64>,
    /// The key of the first bin.
    #[prost(sint32, tag = "2")]
    pub first_key: i32,
    /// The lowest key in use.
    #[prost(sint32, tag = "3")]
    pub min_key: i32,
    /// The highest key in use.
    #[prost(sint32, tag = "4")]
    pub max_key: i32,
    /// Whether the lowest keys were folded into one bin because there were too many.
    #[prost(bool, tag = "5")]
    pub collapsed: bool,
}

/// A value of which only the displayed text is known.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TextMessage {
    /// The value as the sender displays it.
    #[prost(string, tag = "1")]
    pub text: String,
    /// The value as a number, zero if it has none.
    #[prost(uint64, tag = "2")]
    pub number: u64,
}

/// What a metric measures. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MetricKind {
    /// Not a metric: no peer sends it.
    Unspecified = 0,
    /// Rows produced.
    OutputRows = 1,
    /// Nanoseconds of computing.
    ElapsedCompute = 2,
    /// Number of spills.
    SpillCount = 3,
    /// Bytes spilled.
    SpilledBytes = 4,
    /// Bytes produced.
    OutputBytes = 5,
    /// Batches produced.
    OutputBatches = 6,
    /// Rows spilled.
    SpilledRows = 7,
    /// Bytes of memory in use.
    CurrentMemoryUsage = 8,
    /// A named counter.
    Count = 9,
    /// A named gauge.
    Gauge = 10,
    /// A named peak of memory, in bytes.
    PeakMemoryUsage = 11,
    /// A named duration, in nanoseconds.
    Time = 12,
    /// When execution began.
    StartTimestamp = 13,
    /// When execution ended.
    EndTimestamp = 14,
    /// A named pruning step.
    Pruning = 15,
    /// A named ratio.
    Ratio = 16,
    /// A named counter of bytes.
    BytesCounter = 32,
    /// A named gauge that merges to the larger value.
    MaxGauge = 33,
    /// The smallest latency.
    MinLatency = 34,
    /// The largest latency.
    MaxLatency = 35,
    /// The average latency.
    AvgLatency = 36,
    /// The first latency recorded.
    FirstLatency = 37,
    /// The median latency.
    P50Latency = 38,
    /// The 75th percentile of latencies.
    P75Latency = 39,
    /// The 95th percentile of latencies.
    P95Latency = 40,
    /// The 99th percentile of latencies.
    P99Latency = 41,
    /// A named metric of a type that this protocol does not know.
    Text = 64,
}

/// For whom a metric is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Level {
    /// For those who look into an operator.
    Dev = 0,
    /// For everyone.
    Summary = 1,
}

/// What kind of quantity a metric declares to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Category {
    /// Nothing declared.
    Undeclared = 0,
    /// Rows and other counts.
    Rows = 1,
    /// Bytes.
    Bytes = 2,
    /// Durations and points in time.
    Timing = 3,
    /// Declared to be none of the others.
    Uncategorized = 4,
}

/// How two ratios become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RatioMerge {
    /// Both parts and both totals are added.
    AddPartAddTotal = 0,
    /// Parts are added, the later total stands.
    AddPartSetTotal = 1,
    /// The later part stands, totals are added.
    SetPartAddTotal = 2,
}
