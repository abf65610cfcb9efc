//! What `local-cluster` prints.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::Result;
use serde_json::{Value, json};

use super::{args::LocalClusterArgs, differences};
use crate::{
    execution::Execution,
    matrix::{Matrix, NamedQuery},
    output::{Format, rows_as_json, write_result},
    traffic::{self, Peer},
    units::milliseconds,
};

/// Collects what is printed at the end. Rows for people and CSV are printed as they come; JSON is
/// one document at the end.
pub(super) struct Report {
    queries: Vec<Value>,
    query_count: usize,
    query_time: Duration,
    matrix: Option<Matrix>,
    pub(super) peers: Vec<Peer>,
}

impl Report {
    pub(super) fn new() -> Self {
        Self {
            queries: Vec::new(),
            query_count: 0,
            query_time: Duration::ZERO,
            matrix: None,
            peers: Vec::new(),
        }
    }

    pub(super) fn of_matrix(matrix: Matrix) -> Self {
        Self {
            matrix: Some(matrix),
            ..Self::new()
        }
    }

    /// One query has ended.
    pub(super) async fn add(
        &mut self,
        args: &LocalClusterArgs,
        query: &NamedQuery,
        result: &Execution,
        plan: Option<String>,
    ) -> Result<()> {
        if let Some(warning) = result.local_warning(args.workers.get()).await? {
            args.note(&format!("{}: {warning}", query.name));
        }
        self.query_count += 1;
        self.query_time += result.elapsed();
        match (args.format, &plan) {
            (Format::Json, plan) => {
                let shape = result.shape().await?;
                let rows: Value = serde_json::from_str(&rows_as_json(result)?)?;
                self.queries.push(json!({
                    "query": query.name,
                    "row_count": result.row_count(),
                    "ms": milliseconds(result.elapsed()),
                    "stages": shape.stages,
                    "tasks": shape.tasks,
                    "rows": plan.is_none().then_some(rows),
                    "plan": plan,
                }));
                return Ok(());
            }
            (_, Some(plan)) => writeln!(io::stdout(), "{}", plan.trim_end())?,
            (format, None) => write_result(&mut io::stdout().lock(), format, result)?,
        }
        args.say(&format!("{}: {}", query.name, result.summary().await?))
    }

    /// One plan was asked for instead of a query's rows.
    pub(super) fn add_plan(
        &mut self,
        args: &LocalClusterArgs,
        query: &NamedQuery,
        plan: &str,
    ) -> Result<()> {
        match args.format {
            Format::Json => self
                .queries
                .push(json!({ "query": query.name, "plan": plan })),
            _ => writeln!(io::stdout(), "{}", plan.trim_end())?,
        }
        Ok(())
    }

    /// Everything has ended: prints what is left to print, and fails if results differ.
    pub(super) fn finish(self, args: &LocalClusterArgs) -> Result<()> {
        let mut stdout = io::stdout().lock();
        if let Some(matrix) = &self.matrix {
            match args.format {
                Format::Json => writeln!(stdout, "{:#}", matrix.to_json())?,
                Format::Csv => write!(stdout, "{}", matrix.to_csv())?,
                Format::Table => writeln!(stdout, "{}", matrix.display())?,
            }
            return differences(&matrix.problems());
        }
        if args.format == Format::Json {
            let peers: Vec<_> = self.peers.iter().map(Peer::to_json).collect();
            let report = json!({
                "transport": args.transport.name(),
                "workers": args.workers,
                "queries": self.queries,
                "total_ms": milliseconds(self.query_time),
                "peers": peers,
            });
            match args.serve {
                true => writeln!(stdout, "{report}")?,
                false => writeln!(stdout, "{report:#}")?,
            }
            return Ok(());
        }
        drop(stdout);
        if args.explain {
            return Ok(());
        }
        if self.query_count > 1 {
            let time = milliseconds(self.query_time);
            args.say(&format!("total: {} queries in {time} ms", self.query_count))?;
        }
        args.say(&format!(
            "\nWhat the transport ({}) did:\n{}",
            args.transport,
            traffic::display(&self.peers)
        ))
    }
}

impl LocalClusterArgs {
    /// Prints something that belongs to the results when people read them, but would spoil CSV.
    fn say(&self, text: &str) -> Result<()> {
        match (self.quiet, self.format) {
            (true, _) => {}
            (false, Format::Table) => writeln!(io::stdout(), "{text}")?,
            (false, _) => writeln!(io::stderr(), "{text}")?,
        }
        Ok(())
    }
}
