//! [`FeedExec`]: a leaf that gives back the work units that its coordinator feeds it.

use crate::rows::{numbers, schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_distributed::{WorkUnitFeed, WorkUnitFeedProto, WorkUnitFeedProvider};
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// One work unit: a number, and bytes that make it large.
#[derive(Clone, PartialEq, Message)]
pub struct Unit {
    /// Becomes a row.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Their count is added to the row's number.
    #[prost(bytes = "vec", tag = "2")]
    pub ballast: Vec<u8>,
}

/// Gives a row for each work unit: its number plus the size of its ballast.
#[derive(Debug)]
pub struct FeedExec {
    id: Uuid,
    feed: WorkUnitFeed<NoProvider>,
    properties: Arc<PlanProperties>,
}

/// The kit sends units by the coordinator channel; nothing of them is made on the coordinator.
#[derive(Debug)]
struct NoProvider;

impl WorkUnitFeedProvider for NoProvider {
    type WorkUnit = Unit;

    fn feed(
        &self,
        _partition: usize,
        _ctx: Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<Unit>>> {
        exec_err!("this feed is for workers")
    }
}

impl FeedExec {
    /// A leaf with a feed for each of `partitions`.
    pub fn new(id: Uuid, partitions: usize) -> Self {
        let proto = WorkUnitFeedProto {
            id: id.as_bytes().to_vec(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            id,
            feed: WorkUnitFeed::from_proto(proto).expect("16 bytes"),
            properties: Arc::new(properties),
        }
    }

    pub(crate) fn encode(&self, buf: &mut Vec<u8>) -> Result<()> {
        let partitions = self.properties.partitioning.partition_count();
        buf.extend_from_slice(self.id.as_bytes());
        buf.extend_from_slice(&(partitions as u64).to_le_bytes());
        Ok(())
    }

    pub(crate) fn decode(buf: &[u8]) -> Result<Self> {
        let Some((id, partitions)) = buf.split_first_chunk::<16>() else {
            return exec_err!("not a feed");
        };
        let Ok(partitions) = partitions.try_into().map(u64::from_le_bytes) else {
            return exec_err!("not a feed");
        };
        Ok(Self::new(Uuid::from_bytes(*id), partitions as usize))
    }
}

impl DisplayAs for FeedExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeedExec")
    }
}

impl ExecutionPlan for FeedExec {
    fn name(&self) -> &str {
        "FeedExec"
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
        ctx: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let units = self.feed.feed(partition, ctx)?;
        let rows = units
            .map(|unit| unit.map(|unit| numbers(unit.number as usize + unit.ballast.len(), 1)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema(), rows)))
    }
}
