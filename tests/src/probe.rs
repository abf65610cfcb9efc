//! [`ProbeExec`]: a leaf that produces what a test says and counts what is done to it.

use crate::feed::FeedExec;
use crate::rows::schema;
use arrow_schema::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Metric, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

/// Makes the batches of a partition.
type Source = Arc<dyn Fn(usize) -> BoxStream<'static, Result<RecordBatch>> + Send + Sync>;

/// What happened to one partition.
#[derive(Debug, Default)]
pub struct PartitionProbe {
    executed: AtomicUsize,
    polled: AtomicUsize,
    produced: AtomicUsize,
    dropped: AtomicUsize,
}

impl PartitionProbe {
    /// Times the partition was executed.
    pub fn executed(&self) -> usize {
        self.executed.load(Ordering::SeqCst)
    }

    /// Times its stream was polled.
    pub fn polled(&self) -> usize {
        self.polled.load(Ordering::SeqCst)
    }

    /// Batches it produced.
    pub fn produced(&self) -> usize {
        self.produced.load(Ordering::SeqCst)
    }

    /// Streams of it that were dropped.
    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

/// Plans by number, so that one can be sent to a worker of this process and be the same plan there, as long as the test keeps it.
static PLANS: Mutex<BTreeMap<u64, Weak<ProbeExec>>> = Mutex::new(BTreeMap::new());

/// The number of the next one.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A leaf with any number of partitions.
pub struct ProbeExec {
    number: u64,
    source: Source,
    probes: Vec<Arc<PartitionProbe>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    fails_to_start: OnceLock<&'static str>,
}

impl ProbeExec {
    /// A plan of `partitions`, each with the batches that `source` makes for its number.
    pub fn new(
        schema: SchemaRef,
        partitions: usize,
        source: impl Fn(usize) -> BoxStream<'static, Result<RecordBatch>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|_, plan| plan.strong_count() > 0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let plan = Arc::new(Self {
            number,
            source: Arc::new(source),
            probes: (0..partitions).map(|_| Arc::default()).collect(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            fails_to_start: OnceLock::new(),
        });
        plans.insert(number, Arc::downgrade(&plan));
        plan
    }

    /// A plan whose partition can't start, for this reason.
    pub fn failing_to_start(reason: &'static str) -> Arc<Self> {
        let plan = Self::new(schema(), 1, |_| futures::stream::empty().boxed());
        plan.fails_to_start.get_or_init(|| reason);
        plan
    }

    /// Makes that no worker knows it.
    pub fn unknown_to_workers(self: Arc<Self>) -> Arc<Self> {
        let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
        plans.remove(&self.number);
        self
    }

    /// Adds a metric to those that it reports.
    pub fn register_metric(&self, metric: Metric) {
        self.metrics.register(Arc::new(metric));
    }

    /// True where every stream that was begun is gone, and there was one.
    pub fn is_released(&self) -> bool {
        let executed = self.total(PartitionProbe::executed);
        executed > 0 && self.total(PartitionProbe::dropped) == executed
    }

    /// What happened to a partition.
    pub fn probe(&self, partition: usize) -> Arc<PartitionProbe> {
        Arc::clone(&self.probes[partition])
    }

    /// A count over all partitions.
    pub fn total(&self, count: impl Fn(&PartitionProbe) -> usize) -> usize {
        self.probes.iter().map(|probe| count(probe)).sum()
    }
}

impl fmt::Debug for ProbeExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeExec")
            .field("probes", &self.probes)
            .finish()
    }
}

impl DisplayAs for ProbeExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProbeExec")
    }
}

impl ExecutionPlan for ProbeExec {
    fn name(&self) -> &str {
        "ProbeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _ctx: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if let Some(reason) = self.fails_to_start.get() {
            return exec_err!("{reason}");
        }
        let probe = self.probe(partition);
        probe.executed.fetch_add(1, Ordering::SeqCst);
        let stream = Probed {
            rows: MetricBuilder::new(&self.metrics).output_rows(partition),
            inner: (self.source)(partition),
            probe,
        };
        let schema = self.schema();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

struct Probed {
    inner: BoxStream<'static, Result<RecordBatch>>,
    probe: Arc<PartitionProbe>,
    rows: Count,
}

impl Stream for Probed {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.probe.polled.fetch_add(1, Ordering::SeqCst);
        let poll = self.inner.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Ok(batch))) = &poll {
            self.probe.produced.fetch_add(1, Ordering::SeqCst);
            self.rows.add(batch.num_rows());
        }
        poll
    }
}

impl Drop for Probed {
    fn drop(&mut self) {
        self.probe.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Encodes a [`ProbeExec`] as its number, and a [`FeedExec`] as its feed.
#[derive(Debug)]
pub struct ProbeCodec;

impl PhysicalExtensionCodec for ProbeCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _ctx: &TaskContext,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(feed) = buf.strip_prefix(b"feed") {
            return Ok(Arc::new(FeedExec::decode(feed)?));
        }
        let Some(number) = buf.strip_prefix(b"probe").and_then(|n| n.try_into().ok()) else {
            return internal_err!("not a probe");
        };
        let plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = plans.get(&u64::from_le_bytes(number));
        match plan.and_then(Weak::upgrade) {
            Some(plan) => Ok(plan),
            None => plan_err!("no such probe in this process"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if let Some(feed) = node.downcast_ref::<FeedExec>() {
            buf.extend_from_slice(b"feed");
            return feed.encode(buf);
        }
        let Some(probe) = node.downcast_ref::<ProbeExec>() else {
            return internal_err!("not a probe");
        };
        buf.extend_from_slice(b"probe");
        buf.extend_from_slice(&probe.number.to_le_bytes());
        Ok(())
    }
}
