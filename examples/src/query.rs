//! The `query` program.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Read, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use datafusion::{prelude::SessionContext, sql::parser::Statement};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use url::Url;

use crate::{
    execution::{self, Execution},
    kind::Kind,
    output::{Format, write_result},
    program::{Signals, spawn_on, usage},
    session::SessionOptions,
    tables::Table,
    tls::TlsOptions,
    traffic,
    transports::Network,
    units::parse_duration,
    workers::parse_worker_url,
};

const EXAMPLES: &str = "\
Examples:
  Count rows by a column of a Parquet file with two workers:
    query --workers 127.0.0.1:8081,127.0.0.1:8082 \\
          --set distributed.file_scan_config_bytes_per_partition=1 \\
          --table trips=/data/trips.parquet \\
          'select vendor, count(*) from trips group by vendor'

  Run SQL from a file over the reference transport, and show where the time went:
    query --workers 127.0.0.1:8081,127.0.0.1:8082 --transport grpc --table t=/data/t/ \\
          --file report.sql --explain-analyze

  Change the transport between two queries of one session:
    echo \"select 1; set transport.kind = 'grpc'; select 2\" | query --workers 127.0.0.1:8081

Small tables are not worth distributing, so the planner leaves them on this node, and so it does
with one worker, or where statistics hold the answer: then no worker is asked, a worker that can't
be reached is no error, and a warning says so. The first example shows how to distribute a small
table all the same; --stats says on how many workers a query ran.

--format json prints one line per statement that has rows: an array of objects, or with --explain
and --explain-analyze an object with the plan.

Exit codes: 0 done, 1 a query failed, 2 wrong use, 130 interrupted.";

/// Run SQL on a set of workers
///
/// This program plans the queries and coordinates the workers. Results go to standard output,
/// everything else to standard error. The workers read the tables themselves: the files must be at
/// the same path on every worker as on this machine.
#[derive(Parser, Debug)]
#[command(name = "query", version, after_long_help = EXAMPLES)]
pub struct QueryArgs {
    /// SQL to run, one or more statements; `-` or nothing reads standard input
    #[arg(value_name = "SQL", conflicts_with = "file")]
    pub sql: Option<String>,

    /// Read the SQL from a file
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// URLs of the workers
    #[arg(long, value_name = "URL,...", required = true, value_delimiter = ',', value_parser = parse_worker_url)]
    pub workers: Vec<Url>,

    /// What to exchange data over
    #[arg(long, value_name = "KIND", default_value = "quic")]
    pub transport: Kind,

    /// A table: Parquet or CSV by its extension, or a directory of such files (repeatable)
    #[arg(long = "table", value_name = "NAME=PATH", value_parser = Table::parse)]
    pub tables: Vec<Table>,

    /// How to print results
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,

    /// Print the distributed plan instead of running it
    #[arg(long, conflicts_with = "explain_analyze")]
    pub explain: bool,

    /// Run the query and print the plan with the metrics of all workers instead of the rows
    #[arg(long)]
    pub explain_analyze: bool,

    /// Print time, stages and what the transport did to standard error
    #[arg(long)]
    pub stats: bool,

    /// Give up on a statement after this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,

    /// Session options.
    #[command(flatten)]
    pub session: SessionOptions,

    /// Certificates.
    #[command(flatten)]
    pub tls: TlsOptions,

    /// What to log: a level, or a list such as warn,datafusion_transport_core=debug
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    pub log: String,
}

/// Runs the statements one after the other, on the runtime that `queries` belongs to.
///
/// # Errors
/// When one fails; those after it don't run.
pub async fn run(args: QueryArgs, queries: Handle) -> Result<()> {
    let statements = execution::parse(&args.sql_text()?).map_err(as_usage)?;
    args.session.check()?;
    args.tables.iter().try_for_each(Table::check)?;
    let mut signals = Signals::listen()?;
    let network = Network::new(args.transport, &args.tls.resolve()?, &[])?;
    let session = args
        .session
        .distributed(&network, args.transport, args.workers.clone())?;
    let request = Request {
        format: args.format,
        explain_analyze: args.explain_analyze,
        timeout: args.timeout,
        queries,
    };
    let ended = signals
        .interruptible(args.run_all(&session, &request, statements))
        .await;
    if args.stats {
        let _ = writeln!(
            io::stderr(),
            "{}",
            traffic::display(&network.peers("coordinator"))
        );
    }
    network.shutdown().await;
    ended
}

/// How statements are to be run and shown.
pub(crate) struct Request {
    pub(crate) format: Format,
    pub(crate) explain_analyze: bool,
    pub(crate) timeout: Option<Duration>,
    /// The runtime to run them on.
    pub(crate) queries: Handle,
}

impl Request {
    /// The plan of a statement.
    pub(crate) async fn explain(
        &self,
        session: &SessionContext,
        statement: Statement,
    ) -> Result<String> {
        let session = session.clone();
        let plan = async move { execution::explain(&session, statement).await };
        spawn_on(&self.queries, plan).await
    }

    /// Runs one statement and prints what was asked for to standard output.
    async fn run(&self, session: &SessionContext, statement: Statement) -> Result<Execution> {
        let (result, plan) = self.execute(session, statement).await?;
        match plan {
            Some(plan) => print_plan(self.format, &plan)?,
            // SET and the like have nothing to show.
            None if result.schema().fields().is_empty() => {}
            None => write_result(&mut io::stdout().lock(), self.format, &result)?,
        }
        Ok(result)
    }

    /// Runs one statement within the time, and renders its metrics if asked to.
    pub(crate) async fn execute(
        &self,
        session: &SessionContext,
        statement: Statement,
    ) -> Result<(Execution, Option<String>)> {
        let (session, explain_analyze) = (session.clone(), self.explain_analyze);
        let work = spawn_on(&self.queries, async move {
            let result = execution::run_statement(&session, statement).await?;
            let plan = match explain_analyze {
                true => Some(result.analyze().await?),
                false => None,
            };
            Ok((result, plan))
        });
        match self.timeout {
            None => work.await,
            Some(limit) => tokio::time::timeout(limit, work).await.map_err(|_| {
                anyhow!("not done within {limit:?}: allow more time with --timeout")
            })?,
        }
    }
}

impl QueryArgs {
    async fn run_all(
        &self,
        session: &SessionContext,
        request: &Request,
        statements: VecDeque<Statement>,
    ) -> Result<()> {
        for table in &self.tables {
            table.register(session).await?;
        }
        for statement in statements {
            if self.explain {
                print_plan(self.format, &request.explain(session, statement).await?)?;
                continue;
            }
            let result = request.run(session, statement).await?;
            let mut stderr = io::stderr();
            if let Some(warning) = result.local_warning(self.workers.len()).await? {
                let _ = writeln!(stderr, "{warning}");
            }
            if self.stats {
                let _ = writeln!(stderr, "{}", result.summary().await?);
            }
        }
        Ok(())
    }

    fn sql_text(&self) -> Result<String> {
        if let Some(file) = &self.file {
            return std::fs::read_to_string(file)
                .map_err(|error| usage(format!("cannot read --file {}: {error}", file.display())));
        }
        match self.sql.as_deref() {
            Some(sql) if sql != "-" => Ok(sql.to_owned()),
            None if io::stdin().is_terminal() => Err(usage(
                "no SQL: give it as an argument, with --file, or on standard input",
            )),
            _ => {
                let mut sql = String::new();
                io::stdin()
                    .read_to_string(&mut sql)
                    .context("cannot read standard input")?;
                Ok(sql)
            }
        }
    }
}

/// SQL that cannot be parsed is wrong use, like any other bad argument.
pub(crate) fn as_usage(error: anyhow::Error) -> anyhow::Error {
    let cause = error.root_cause().to_string();
    match error.to_string() {
        same if same == cause => usage(cause),
        error => usage(format!("{error}: {cause}")),
    }
}

/// Prints a plan as text, or as a JSON object with the text in it.
fn print_plan(format: Format, plan: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match format {
        Format::Json => writeln!(stdout, "{}", json!({ "plan": Value::from(plan) }))?,
        _ => writeln!(stdout, "{}", plan.trim_end())?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        QueryArgs::command().debug_assert();
    }

    #[test]
    fn workers_are_required_and_one_source_of_sql_is_allowed() {
        assert!(QueryArgs::try_parse_from(["query", "select 1"]).is_err());
        let both = ["query", "--workers", "h:1", "--file", "x", "select 1"];
        assert!(QueryArgs::try_parse_from(both).is_err());
        let args = QueryArgs::try_parse_from(["query", "--workers", "h:1,h:2", "select 1"]);
        assert!(args.is_ok_and(|args| args.workers.len() == 2));
    }
}
