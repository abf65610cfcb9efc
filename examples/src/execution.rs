//! Running one SQL statement and keeping what there is to know about it.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, LogicalPlan},
    physical_plan::{ExecutionPlan, execute_stream},
    prelude::SessionContext,
    sql::{
        parser::{DFParser, Statement},
        sqlparser::ast,
    },
};
use datafusion_distributed::{
    DistributedConfig, DistributedMetricsFormat, NetworkBoundaryExt, display_plan_ascii,
    explain_analyze, rewrite_distributed_plan_with_metrics,
};
use futures::TryStreamExt;

use crate::{
    session::check_transport,
    show,
    units::{display_count, milliseconds},
};

/// A statement that ran to its end, with all its rows.
#[derive(Debug)]
pub struct Execution {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    elapsed: Duration,
    plan: Arc<dyn ExecutionPlan>,
    sort_columns: Vec<usize>,
    dynamic: bool,
    is_query: bool,
}

/// The operator that reads a table's files.
const SCAN: &str = "DataSourceExec";

/// How far a plan was distributed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanShape {
    /// Stages that ran on workers: one per network boundary.
    pub stages: usize,
    /// Tasks in those stages.
    pub tasks: usize,
}

/// Splits SQL text into its statements.
///
/// # Errors
/// When the text is not valid SQL, or holds no statement.
pub fn parse(sql: &str) -> Result<VecDeque<Statement>> {
    let statements = DFParser::parse_sql(sql).context("cannot parse the SQL")?;
    if statements.is_empty() {
        bail!("the SQL holds no statement");
    }
    Ok(statements)
}

/// Runs SQL that must be a single statement.
///
/// # Errors
/// As [`parse`] and [`run_statement`].
pub async fn run(session: &SessionContext, sql: &str) -> Result<Execution> {
    let mut statements = parse(sql)?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => run_statement(session, statement).await,
        _ => bail!("expected one SQL statement, found several: run them one by one"),
    }
}

/// Plans and runs one statement, and collects its rows.
///
/// Dropping the future cancels the query, on the workers too.
///
/// # Errors
/// When the statement cannot be planned, or fails while it runs.
pub async fn run_statement(session: &SessionContext, statement: Statement) -> Result<Execution> {
    let started = Instant::now();
    let is_query = is_query(&statement);
    let (plan, sort_columns) = plan(session, statement).await?;
    let dynamic = dynamic_task_count(session);
    let stream = execute_stream(Arc::clone(&plan), session.task_ctx())?;
    let schema = stream.schema();
    let batches = stream.try_collect().await?;
    Ok(Execution {
        schema,
        batches,
        elapsed: started.elapsed(),
        plan,
        sort_columns,
        dynamic,
        is_query,
    })
}

/// The plan of one statement as text, without running it.
///
/// # Errors
/// When the statement cannot be planned.
pub async fn explain(session: &SessionContext, statement: Statement) -> Result<String> {
    let (plan, _) = plan(session, statement).await?;
    Ok(display_plan_ascii(plan.as_ref(), false))
}

async fn plan(
    session: &SessionContext,
    statement: Statement,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<usize>)> {
    let statement = match show::query(&statement, session.state().config_options())? {
        Some(query) => query,
        None => statement,
    };
    let logical = session.state().statement_to_plan(statement).await?;
    let sort_columns = sort_columns(&logical);
    // Runs a SET, so the check comes after it.
    let frame = session.execute_logical_plan(logical).await?;
    check_transport(session.state().config_options())?;
    Ok((frame.create_physical_plan().await?, sort_columns))
}

impl Execution {
    /// The result's columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The result's rows.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// From the start of planning to the last row.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Positions of the output columns that the statement's outermost `ORDER BY` sorts by, up to
    /// the first one that is not an output column.
    pub fn sort_columns(&self) -> &[usize] {
        &self.sort_columns
    }

    /// The executed plan with the metrics of all tasks, as `EXPLAIN ANALYZE` shows it.
    ///
    /// # Errors
    /// When the metrics cannot be put into the plan.
    pub async fn analyze(&self) -> Result<String> {
        Ok(explain_analyze(Arc::clone(&self.plan), DistributedMetricsFormat::Aggregated).await?)
    }

    /// How far the executed plan was distributed; all zero on a single node.
    ///
    /// # Errors
    /// When the plan cannot be walked.
    pub async fn shape(&self) -> Result<PlanShape> {
        let plan = match self.dynamic {
            // Such a plan gets its stages while it runs; they are in the rewritten plan only.
            true => {
                let format = DistributedMetricsFormat::Aggregated;
                rewrite_distributed_plan_with_metrics(Arc::clone(&self.plan), format).await?
            }
            false => Arc::clone(&self.plan),
        };
        let mut shape = PlanShape::default();
        plan.apply(|node| {
            if let Some(boundary) = node.as_network_boundary() {
                shape.stages += 1;
                shape.tasks += boundary.input_stage().task_count();
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(shape)
    }

    /// One line: how many rows, how long it took, how far it was distributed.
    ///
    /// # Errors
    /// As [`Execution::shape`].
    pub async fn summary(&self) -> Result<String> {
        let PlanShape { stages, tasks } = self.shape().await?;
        let rows = display_count(self.row_count(), "row");
        let ms = milliseconds(self.elapsed);
        let (tasks, stages) = (display_count(tasks, "task"), display_count(stages, "stage"));
        Ok(format!("{rows} in {ms} ms; {tasks} in {stages} on workers"))
    }

    /// If a query with `workers` asked none of them: a line that says why, and what to do.
    ///
    /// # Errors
    /// As [`Execution::shape`].
    pub async fn local_warning(&self, workers: usize) -> Result<Option<String>> {
        if !self.is_query || self.shape().await?.stages > 0 {
            return Ok(None);
        }
        let reason = match (self.plan.exists(|node| Ok(node.name() == SCAN))?, workers) {
            (false, _) => "its answer needs no rows of a table (constants or statistics hold it)",
            (true, ..=1) => "one worker is not worth it: name two or more",
            (true, _) => {
                "its tables are too small to be worth it: to distribute it all the same, add \
                 --set distributed.file_scan_config_bytes_per_partition=1"
            }
        };
        Ok(Some(format!(
            "warning: no worker was asked, so none need be there: the query ran in this process, \
             because {reason}"
        )))
    }
}

/// Whether a statement is a `SELECT` or the like, as opposed to `SET`, `SHOW`, `EXPLAIN`.
fn is_query(statement: &Statement) -> bool {
    let Statement::Statement(statement) = statement else {
        return false;
    };
    matches!(statement.as_ref(), ast::Statement::Query(_))
}

fn dynamic_task_count(session: &SessionContext) -> bool {
    let config = session.copied_config();
    DistributedConfig::from_session_config(&config).is_ok_and(|config| config.dynamic_task_count)
}

fn sort_columns(plan: &LogicalPlan) -> Vec<usize> {
    match plan {
        LogicalPlan::Limit(limit) => sort_columns(&limit.input),
        LogicalPlan::Sort(sort) => sort
            .expr
            .iter()
            .map_while(|key| match &key.expr {
                Expr::Column(column) => plan.schema().maybe_index_of_column(column),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn knows_the_sort_columns() -> Result<()> {
        let session = SessionContext::new();
        let sql = "select * from (values (1, 2), (3, 4)) as t(a, b) order by b desc, a limit 1";
        let result = run(&session, sql).await?;
        assert_eq!(result.sort_columns(), [1, 0]);
        assert_eq!(result.row_count(), 1);
        assert_eq!(result.shape().await?, PlanShape::default());
        let unsorted = run(&session, "select 1 as a").await?;
        assert!(unsorted.sort_columns().is_empty());
        Ok(())
    }

    #[tokio::test]
    async fn refuses_several_or_none() {
        let session = SessionContext::new();
        assert!(run(&session, "select 1; select 2").await.is_err());
        assert!(run(&session, " ;").await.is_err());
        assert!(run(&session, "selec 1").await.is_err());
    }
}
