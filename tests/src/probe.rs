//! [`ProbeExec`]: a leaf that produces what a test says and counts what is done to it.

use arrow_schema::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use futures::Stream;
use futures::stream::BoxStream;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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

/// Plans by number, so that one can be sent to a worker of this process and be the same plan there.
static PLANS: Mutex<BTreeMap<u64, Arc<ProbeExec>>> = Mutex::new(BTreeMap::new());

/// A leaf with any number of partitions.
pub struct ProbeExec {
    number: u64,
    source: Source,
    probes: Vec<Arc<PartitionProbe>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
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
        let mut plans = PLANS.lock().unwrap();
        let number = plans.last_key_value().map_or(0, |(last, _)| last + 1);
        let plan = Arc::new(Self {
            number,
            source: Arc::new(source),
            probes: (0..partitions).map(|_| Arc::default()).collect(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        });
        plans.insert(number, Arc::clone(&plan));
        plan
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
    rows: datafusion::physical_plan::metrics::Count,
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

/// Encodes a [`ProbeExec`] as its number.
#[derive(Debug)]
pub(crate) struct ProbeCodec;

impl PhysicalExtensionCodec for ProbeCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _ctx: &TaskContext,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(number) = buf.strip_prefix(b"probe").and_then(|n| n.try_into().ok()) else {
            return internal_err!("not a probe");
        };
        let plan = PLANS
            .lock()
            .unwrap()
            .get(&u64::from_le_bytes(number))
            .cloned();
        Ok(plan.expect("a plan of this process"))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(probe) = node.downcast_ref::<ProbeExec>() else {
            return internal_err!("not a probe");
        };
        buf.extend_from_slice(b"probe");
        buf.extend_from_slice(&probe.number.to_le_bytes());
        Ok(())
    }
}
