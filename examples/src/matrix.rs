//! `local-cluster --compare`: the same queries on a single node and over every transport.

use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets::ASCII_FULL_CONDENSED};
use datafusion::prelude::SessionContext;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use crate::{
    compare::compare,
    execution::{self, Execution},
    query::Request,
    traffic::display_ms,
    units::milliseconds,
};

/// A statement with the name that it's reported by.
#[derive(Debug, Clone)]
pub struct NamedQuery {
    /// `q1` to `q22`, or `sql`.
    pub name: String,
    /// One SQL statement.
    pub sql: String,
}

/// A way to run queries: its name and its session.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    pub(crate) session: SessionContext,
}

/// The outcome of a comparison.
pub(crate) struct Matrix {
    engines: Vec<&'static str>,
    rows: Vec<MatrixRow>,
}

struct MatrixRow {
    query: String,
    row_count: usize,
    /// One per engine, the reference first; none where the query failed.
    times: Vec<Option<Duration>>,
    /// What differed or failed.
    problems: Vec<String>,
    /// Whether any engine asked a worker.
    distributed: bool,
}

impl Matrix {
    /// Runs every query `repeat` times on every engine. The first engine is the reference that the
    /// others' results are compared with.
    pub(crate) async fn run(
        engines: &[Engine],
        queries: &[NamedQuery],
        repeat: usize,
        request: &Request,
        progress: &ProgressBar,
    ) -> Result<Self> {
        let mut rows = Vec::new();
        for query in queries {
            let mut row = MatrixRow::new(&query.name);
            let mut reference = None;
            for engine in engines {
                progress.set_message(format!("{} on {}", query.name, engine.name));
                match median(&engine.session, &query.sql, repeat, request, progress).await {
                    Ok((result, time)) => {
                        row.times.push(Some(time));
                        row.distributed |= result.shape().await?.stages > 0;
                        row.check(engine, &mut reference, result)?;
                    }
                    Err(error) => row.failed(engine, &error),
                }
            }
            rows.push(row);
        }
        Ok(Self {
            engines: engines.iter().map(|engine| engine.name).collect(),
            rows,
        })
    }

    /// What differed or failed, each with the query's name.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.rows
            .iter()
            .flat_map(|row| row.problems.iter().cloned())
            .collect()
    }

    /// The queries for which no engine asked a worker: nothing was compared there.
    pub(crate) fn not_distributed(&self) -> Vec<&str> {
        let local = self.rows.iter().filter(|row| !row.distributed);
        local.map(|row| row.query.as_str()).collect()
    }

    /// The comparison as a table with a line of totals.
    pub(crate) fn display(&self) -> String {
        let mut table = Table::new();
        let mut header = vec!["query".to_owned(), "rows".to_owned()];
        header.extend(self.engines.iter().map(|name| format!("{name} ms")));
        header.push("equal".to_owned());
        table.load_preset(ASCII_FULL_CONDENSED).set_header(header);
        for row in &self.rows {
            table.add_row(row.cells(&row.times));
        }
        let total = MatrixRow {
            query: "total".to_owned(),
            row_count: self.rows.iter().map(|row| row.row_count).sum(),
            times: self.totals(),
            problems: self.problems(),
            distributed: true,
        };
        table.add_row(total.cells(&total.times));
        for column in table.column_iter_mut().skip(1).take(1 + self.engines.len()) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// The comparison as CSV: no time where a query failed.
    pub(crate) fn to_csv(&self) -> String {
        let header = self.engines.iter().map(|name| format!(",{name}_ms"));
        let mut csv = format!("query,rows{},equal\n", header.collect::<String>());
        for row in &self.rows {
            let time = |time: &Option<Duration>| match time {
                Some(time) => format!(",{}", milliseconds(*time)),
                None => ",".to_owned(),
            };
            let times: String = row.times.iter().map(time).collect();
            let equal = row.problems.is_empty();
            csv += &format!("{},{}{times},{equal}\n", row.query, row.row_count);
        }
        csv
    }

    /// The comparison as one JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let times = |times: &[Option<Duration>]| -> Map<String, Value> {
            let times = times.iter().map(|time| json!(time.map(milliseconds)));
            self.engines
                .iter()
                .map(|name| (*name).to_owned())
                .zip(times)
                .collect()
        };
        let rows = self.rows.iter().map(|row| {
            json!({
                "query": row.query,
                "rows": row.row_count,
                "ms": times(&row.times),
                "equal": row.problems.is_empty(),
                "problems": row.problems,
                "distributed": row.distributed,
            })
        });
        json!({
            "queries": rows.collect::<Vec<_>>(),
            "total_ms": times(&self.totals()),
            "equal": self.problems().is_empty(),
        })
    }

    /// Per engine the sum over all queries; none if one of them failed there.
    fn totals(&self) -> Vec<Option<Duration>> {
        let total = |index: usize| {
            self.rows
                .iter()
                .map(|row| row.times.get(index).copied().flatten())
                .sum()
        };
        (0..self.engines.len()).map(total).collect()
    }
}

impl MatrixRow {
    fn new(query: &str) -> Self {
        Self {
            query: query.to_owned(),
            row_count: 0,
            times: Vec::new(),
            problems: Vec::new(),
            distributed: false,
        }
    }

    fn check(
        &mut self,
        engine: &Engine,
        reference: &mut Option<(&'static str, Execution)>,
        result: Execution,
    ) -> Result<()> {
        match reference {
            None => {
                self.row_count = result.row_count();
                *reference = Some((engine.name, result));
            }
            Some((name, expected)) => {
                if let Some(difference) = compare(expected, &result)? {
                    let query = &self.query;
                    let engine = engine.name;
                    self.problems.push(format!(
                        "{query}: {engine} differs from {name}: {difference}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, engine: &Engine, error: &anyhow::Error) {
        self.times.push(None);
        self.problems
            .push(format!("{}: {} failed: {error}", self.query, engine.name));
    }

    fn cells(&self, times: &[Option<Duration>]) -> Vec<String> {
        let mut cells = vec![self.query.clone(), self.row_count.to_string()];
        let time = |time: &Option<Duration>| time.map_or_else(|| "failed".to_owned(), display_ms);
        cells.extend(times.iter().map(time));
        cells.push(
            if self.problems.is_empty() {
                "yes"
            } else {
                "NO"
            }
            .to_owned(),
        );
        cells
    }
}

/// Runs a query `repeat` times; its last result, and the middle one of its times.
async fn median(
    session: &SessionContext,
    sql: &str,
    repeat: usize,
    request: &Request,
    progress: &ProgressBar,
) -> Result<(Execution, Duration)> {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..repeat.max(1) {
        let statement = execution::parse(sql)?.pop_front().context("no statement")?;
        let (result, _) = request.execute(session, statement).await?;
        times.push(result.elapsed());
        last = Some(result);
        progress.inc(1);
    }
    times.sort();
    last.zip(times.get(times.len() / 2).copied())
        .context("no run")
}
