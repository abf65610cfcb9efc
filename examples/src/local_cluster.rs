//! The `local-cluster` program.

mod args;
mod report;

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::runtime::Handle;

pub use args::LocalClusterArgs;

use crate::{
    cluster::Cluster,
    execution,
    matrix::{Engine, Matrix, NamedQuery},
    program::interruptible,
    query::Request,
    tables::Table,
    tpch,
    transports::Kind,
};
use report::Report;

/// Starts the workers, runs what was asked for on the runtime that `queries` belongs to, and stops
/// the workers.
///
/// # Errors
/// When a query failed or results differ; the workers are stopped all the same.
pub async fn run(args: LocalClusterArgs, queries: Handle) -> Result<()> {
    let request = args.request(queries);
    let (cluster, mut report) = interruptible(async {
        let queries = args.queries()?;
        let tables = args.tables().await?;
        let mut cluster = args.start().await?;
        let ended = match args.compare {
            true => args.compare(&cluster, &request, &queries, &tables).await,
            false => {
                args.run_queries(&cluster, &request, &queries, &tables)
                    .await
            }
        };
        let report = ended.map_err(|error| with_deaths(error, cluster.deaths()))?;
        if args.serve {
            args.explain_serving(&cluster, &tables)?;
        }
        Ok((cluster, report))
    })
    .await?;
    if args.serve {
        tokio::signal::ctrl_c().await?;
    }
    report.peers = interruptible(cluster.stop()).await?;
    report.finish(&args)
}

impl LocalClusterArgs {
    async fn start(&self) -> Result<Cluster> {
        let mut args: Vec<OsString> = Vec::new();
        if let Some(bytes) = self.memory_limit {
            args.extend(["--memory-limit".into(), bytes.to_string().into()]);
        }
        let workers = self.workers.get();
        let cluster = Cluster::start(workers, self.transport, &args).await?;
        self.note(&format!("{workers} workers: {}", cluster.display_urls(" ")));
        Ok(cluster)
    }

    /// Runs the queries on the chosen transport; rows are printed as they come.
    async fn run_queries(
        &self,
        cluster: &Cluster,
        request: &Request,
        queries: &[NamedQuery],
        tables: &[Table],
    ) -> Result<Report> {
        let session =
            self.session()
                .distributed(cluster.network(), self.transport, cluster.urls())?;
        register(tables, &session).await?;
        let mut report = Report::new();
        for query in queries {
            let failed = || format!("{} failed on {}", query.name, self.transport);
            let statement = execution::parse(&query.sql)?
                .pop_front()
                .context("no statement")?;
            if self.explain {
                request
                    .explain(&session, statement)
                    .await
                    .with_context(failed)?;
                continue;
            }
            let (result, plan) = request
                .execute(&session, statement)
                .await
                .with_context(failed)?;
            report.add(self, query, &result, plan).await?;
        }
        Ok(report)
    }

    /// Runs the queries on a single node and on every transport.
    async fn compare(
        &self,
        cluster: &Cluster,
        request: &Request,
        queries: &[NamedQuery],
        tables: &[Table],
    ) -> Result<Report> {
        let options = self.session();
        let mut engines = vec![Engine {
            name: "single",
            session: options.single_node()?,
        }];
        for &kind in Kind::all() {
            let session = options.distributed(cluster.network(), kind, cluster.urls())?;
            engines.push(Engine {
                name: kind.name(),
                session,
            });
        }
        for engine in &engines {
            register(tables, &engine.session).await?;
        }
        let repeat = self.repeat.get();
        let progress = progress_bar("comparing", queries.len() * engines.len() * repeat);
        let matrix = Matrix::run(&engines, queries, repeat, request, &progress).await;
        progress.finish_and_clear();
        let matrix = matrix?;
        Ok(Report::of_matrix(matrix))
    }

    /// Says how to use the workers that stay.
    fn explain_serving(&self, cluster: &Cluster, tables: &[Table]) -> Result<()> {
        let table = |table: &Table| format!("--table {}={}", table.name, table.path.display());
        let mut lines = vec![
            format!("  query --workers {}", cluster.display_urls(",")),
            format!("--dev-tls {}", cluster.identity_dir().display()),
        ];
        lines.extend(tables.iter().map(table));
        lines.push("'SQL'".to_owned());
        let command = lines.join(" \\\n    ");
        writeln!(
            io::stderr(),
            "the workers stay until ctrl-c; to use them:\n{command}"
        )?;
        Ok(())
    }

    /// The tables named on the command line, or else the TPC-H ones, generated if need be.
    async fn tables(&self) -> Result<Vec<Table>> {
        if !self.tables.is_empty() {
            self.tables.iter().try_for_each(Table::check)?;
            return Ok(self.tables.clone());
        }
        let dir = self.data.clone().map_or_else(default_data_dir, Ok)?;
        let scale = self.scale;
        let progress = progress_bar("generating TPC-H data (rows)", 0);
        let dataset = tokio::task::spawn_blocking({
            let progress = progress.clone();
            move || {
                tpch::generate(&dir, scale, &|done, total| {
                    progress.set_length(total);
                    progress.set_position(done);
                })
            }
        })
        .await?;
        progress.finish_and_clear();
        let dataset =
            dataset.context("cannot generate the TPC-H tables: see --data and --scale")?;
        let verb = if dataset.generated() {
            "generated in"
        } else {
            "found in"
        };
        self.note(&format!(
            "TPC-H data at scale {scale} {verb} {}",
            dataset.dir().display()
        ));
        let table = |(name, path): (&str, PathBuf)| Table {
            name: name.to_owned(),
            path,
        };
        Ok(dataset.tables().map(table).collect())
    }

    /// Says something that is not a result.
    fn note(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

async fn register(tables: &[Table], session: &datafusion::prelude::SessionContext) -> Result<()> {
    for table in tables {
        table.register(session).await?;
    }
    Ok(())
}

/// Below the build directory of this executable if it has one, else below the temporary directory.
fn default_data_dir() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let target = program
        .ancestors()
        .skip(1)
        .find(|dir| dir.join("CACHEDIR.TAG").is_file());
    Ok(match target {
        Some(target) => target.join("tpch"),
        None => Path::new(&env::temp_dir()).join("datafusion-transport-tpch"),
    })
}

fn progress_bar(what: &'static str, length: usize) -> ProgressBar {
    let progress = match io::stderr().is_terminal() {
        true => ProgressBar::new(length as u64),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {human_pos}/{human_len} {msg}");
    progress
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_prefix(what)
}

fn with_deaths(error: anyhow::Error, deaths: Vec<String>) -> anyhow::Error {
    match deaths.is_empty() {
        true => error,
        false => error.context(deaths.join("\n")),
    }
}

/// What makes the program fail although everything ran.
fn differences(problems: &[String]) -> Result<()> {
    match problems {
        [] => Ok(()),
        problems => Err(anyhow!(
            "results are not equal:\n  {}",
            problems.join("\n  ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_errors() {
        assert!(differences(&[]).is_ok());
        assert!(differences(&["q1: x".to_owned()]).is_err());
    }

    #[test]
    fn deaths_come_first() {
        let error = with_deaths(anyhow!("query failed"), vec!["a worker died".to_owned()]);
        assert_eq!(format!("{error:#}"), "a worker died: query failed");
    }
}
