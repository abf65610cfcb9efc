//! The command line of `local-cluster`.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Parser;
use tokio::runtime::Handle;

use crate::{
    execution,
    kind::Kind,
    matrix::NamedQuery,
    output::Format,
    program::usage,
    query::{Request, as_usage},
    session::SessionOptions,
    tables::Table,
    tpch,
    units::{parse_bytes, parse_count, parse_duration, parse_queries},
};

/// Bytes of a file that are worth a partition of their own here. The engine's default is for real
/// clusters, where so little data as this would stay on one node.
const BYTES_PER_PARTITION: &str = "16384";

/// The development certificate needs no warning here: it's made for this run, in a directory that
/// only this user can read, and the workers listen on the loopback address.
const LOG: &str = "warn,datafusion_transport_core::tls::development=error";

const EXAMPLES: &str = "\
Examples:
  TPC-H query 1 over QUIC on three workers:
    local-cluster

  Check that all 22 queries give the same results on a single node and over every transport:
    local-cluster --scale 0.01 --compare

  Where time and bytes go in query 5:
    local-cluster --query 5 --explain-analyze

  Your own SQL on the TPC-H tables, or on your own tables:
    local-cluster 'select o_orderstatus, count(*) from orders group by 1'
    local-cluster --table trips=/data/trips/ 'select avg(distance) from trips'

  A cluster to send queries to from another terminal:
    local-cluster --serve --query 1

--format json prints one document at the end. With --serve it is one line, and before it comes a line
with the workers' URLs and how to reach them, as soon as they take queries.

Exit codes: 0 done, 1 a query failed or results differ, 2 wrong use, 130 interrupted. Ctrl-c and
SIGTERM are how --serve ends: 0.";

/// Start a cluster of worker processes on this machine and run queries on it
///
/// Without --table it runs on the tables of the TPC-H benchmark, which it generates on first use.
/// It prints the results, the time, and what the transport did between the processes. The workers
/// end with this program, whatever ends it.
#[derive(Parser, Debug)]
#[command(name = "local-cluster", version, after_long_help = EXAMPLES)]
pub struct LocalClusterArgs {
    /// SQL statement to run instead of TPC-H queries
    #[arg(value_name = "SQL", conflicts_with_all = ["query", "all"])]
    pub sql: Option<String>,

    /// How many worker processes to start
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "3")]
    pub workers: NonZeroUsize,

    /// What to exchange data over
    #[arg(
        long,
        value_name = "KIND",
        default_value = "quic",
        conflicts_with = "compare"
    )]
    pub transport: Kind,

    /// TPC-H queries to run: a number, a list, a range (1..22); repeatable [default: 1]
    #[arg(long, short, value_name = "N,...", value_parser = parse_queries)]
    pub query: Vec<Vec<usize>>,

    /// Run all 22 TPC-H queries
    #[arg(long, conflicts_with = "query")]
    pub all: bool,

    /// Compare single node and all transports: all 22 queries unless some are chosen
    ///
    /// Prints one table, and fails if any result differs. Rows may come in any order where the
    /// query leaves it open. Floating point numbers may differ by rounding, nothing else may.
    #[arg(long, conflicts_with_all = ["explain", "explain_analyze", "serve"])]
    pub compare: bool,

    /// With --compare: runs per query, of which the median time is shown
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1", requires = "compare")]
    pub repeat: NonZeroUsize,

    /// Size of the TPC-H data in GB, uncompressed
    #[arg(long, value_name = "FACTOR", value_parser = parse_scale, default_value = "0.1")]
    pub scale: f64,

    /// Where to keep the TPC-H data [default: below the build directory]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// A table of your own, Parquet or CSV, file or directory (repeatable); replaces TPC-H
    #[arg(long = "table", value_name = "NAME=PATH", value_parser = Table::parse)]
    pub tables: Vec<Table>,

    /// How to print results
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,

    /// Print the distributed plans instead of running the queries
    #[arg(long, conflicts_with = "explain_analyze")]
    pub explain: bool,

    /// Run the queries and print their plans with the metrics of all workers instead of the rows
    #[arg(long)]
    pub explain_analyze: bool,

    /// Leave the workers running until ctrl-c or SIGTERM, for the `query` program
    ///
    /// Says at the start how to reach them.
    #[arg(long)]
    pub serve: bool,

    /// Give up on a query after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5m")]
    pub timeout: Duration,

    /// Memory that queries may use in each worker, such as 512MiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory_limit: Option<usize>,

    /// Session options.
    #[command(flatten)]
    pub session: SessionOptions,

    /// Print results only
    #[arg(long)]
    pub quiet: bool,

    /// What to log: a level, or a list such as warn,worker=debug (the workers' own logs)
    #[arg(long, value_name = "FILTER", default_value = LOG)]
    pub log: String,
}

impl LocalClusterArgs {
    /// What to run, in order.
    pub(super) fn queries(&self) -> Result<Vec<NamedQuery>> {
        if let Some(sql) = &self.sql {
            return match execution::parse(sql) {
                Ok(statements) if statements.len() == 1 => Ok(vec![NamedQuery {
                    name: "sql".to_owned(),
                    sql: sql.clone(),
                }]),
                Ok(_) => Err(usage("several SQL statements: this program runs one")),
                Err(error) => Err(as_usage(error)),
            };
        }
        let chosen: Vec<usize> = self.query.concat();
        if chosen.is_empty() && !self.all && !self.tables.is_empty() {
            return Err(usage(
                "--table replaces the TPC-H tables: add an SQL statement that reads it",
            ));
        }
        let numbers = match (chosen.is_empty(), self.all || self.compare) {
            (false, _) => chosen,
            (true, true) => (1..=tpch::QUERY_COUNT).collect(),
            (true, false) => vec![1],
        };
        let named = |number| {
            let sql = tpch::query(number)?.to_owned();
            Some(NamedQuery {
                name: format!("q{number}"),
                sql,
            })
        };
        let queries: Vec<_> = numbers.into_iter().filter_map(named).collect();
        queries
            .iter()
            .try_for_each(|query| self.check_tables(query))?;
        Ok(queries)
    }

    /// Refuses a TPC-H query whose tables are replaced by others.
    fn check_tables(&self, query: &NamedQuery) -> Result<()> {
        if self.tables.is_empty() {
            return Ok(());
        }
        let given = |name: &str| self.tables.iter().any(|table| table.name == name);
        let mut words = query
            .sql
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        match words.find(|word| tpch::TABLES.contains(word) && !given(word)) {
            None => Ok(()),
            Some(missing) => Err(usage(format!(
                "{} reads {missing}, and --table replaces the TPC-H tables: leave out --table, add \
                 --table {missing}=PATH, or give SQL on your own tables instead of --query",
                query.name
            ))),
        }
    }

    /// The session's options: ours first, so that the user's win.
    pub(super) fn session(&self) -> SessionOptions {
        let mut options = self.session.clone();
        let ours = [
            "file_scan_config_bytes_per_partition",
            "dynamic_bytes_per_partition",
        ];
        let ours = ours.map(|key| (format!("distributed.{key}"), BYTES_PER_PARTITION.to_owned()));
        options.settings.splice(0..0, ours);
        options
    }

    pub(super) fn request(&self, queries: Handle) -> Request {
        Request {
            format: self.format,
            explain_analyze: self.explain_analyze,
            timeout: Some(self.timeout),
            queries,
        }
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text
        .parse()
        .map_err(|_| "expected a number, such as 0.1".to_owned())?;
    tpch::check_scale(scale)
        .map(|()| scale)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn names(args: &[&str]) -> Result<Vec<String>> {
        let args = LocalClusterArgs::try_parse_from([&["local-cluster"], args].concat())?;
        Ok(args
            .queries()?
            .into_iter()
            .map(|query| query.name)
            .collect())
    }

    #[test]
    fn the_command_line_is_consistent() {
        LocalClusterArgs::command().debug_assert();
    }

    #[test]
    fn chooses_queries() -> Result<()> {
        assert_eq!(names(&[])?, ["q1"]);
        assert_eq!(names(&["--all"])?.len(), 22);
        assert_eq!(names(&["--compare"])?.len(), 22);
        assert_eq!(
            names(&["--compare", "--query", "3,5..6", "-q", "1"])?,
            ["q3", "q5", "q6", "q1"]
        );
        assert_eq!(names(&["select 1"])?, ["sql"]);
        Ok(())
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        for bad in [
            &["--query", "23"] as &[&str],
            &["--workers", "0"],
            &["--scale", "0"],
            &["--scale", "big"],
            &["--all", "select 1"],
            &["--repeat", "2"],
            &["--table", "t=/x"],
            &["--table", "t=/x", "--query", "3"],
            &["selec 1"],
            &["select 1; select 2"],
        ] {
            assert!(names(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_users_settings_come_last() -> Result<()> {
        let args = ["local-cluster", "--set", "distributed.compression=none"];
        let settings = LocalClusterArgs::try_parse_from(args)?.session().settings;
        assert_eq!(
            settings.last().map(|(key, _)| key.as_str()),
            Some("distributed.compression")
        );
        assert_eq!(settings.len(), 3);
        Ok(())
    }
}
