//! The `local-cluster` program.

mod args;
mod report;
mod serving;

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use futures::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::{runtime::Handle, time::timeout};

pub use args::LocalClusterArgs;

use crate::{
    cluster::Cluster,
    execution,
    kind::Kind,
    matrix::{Engine, Matrix, NamedQuery},
    program::{Signals, interrupted},
    query::Request,
    tables::Table,
    tpch,
    units::display_count,
};
use report::Report;

/// How long the data generator may take to notice that it is to stop: it looks once per batch.
const GENERATOR_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the workers, runs what was asked for on the runtime that `queries` belongs to, and stops
/// the workers.
///
/// # Errors
/// When a query failed or results differ; the workers are stopped all the same.
pub async fn run(args: LocalClusterArgs, queries: Handle) -> Result<()> {
    let request = args.request(queries);
    let queries = args.queries()?;
    args.session.check()?;
    let mut signals = Signals::listen()?;
    let tables = args.tables(&mut signals).await?;
    let work = args.run(&request, &queries, &tables);
    let (clusters, mut report) = signals.interruptible(work).await?;
    if args.serve {
        args.note("the workers stay until ctrl-c");
        signals.termination().await;
    }
    let stopped = try_join_all(clusters.into_iter().map(Cluster::stop));
    report.peers = signals.interruptible(stopped).await?.concat();
    report.finish(&args)
}

impl LocalClusterArgs {
    async fn run(
        &self,
        request: &Request,
        queries: &[NamedQuery],
        tables: &[Table],
    ) -> Result<(Vec<Cluster>, Report)> {
        // One kind for each place: with it the workers serve all that goes together there.
        let kinds = match self.compare {
            true => vec![Kind::Quic, Kind::TcpTls, Kind::Unix],
            false => vec![self.transport],
        };
        let mut clusters = try_join_all(kinds.into_iter().map(|kind| self.start(kind))).await?;
        let ended = match clusters.as_slice() {
            [cluster] => {
                if self.serve {
                    serving::announce(self, cluster, tables)?;
                }
                self.run_queries(cluster, request, queries, tables).await
            }
            clusters => self.compare(clusters, request, queries, tables).await,
        };
        match ended {
            Ok(report) => Ok((clusters, report)),
            Err(error) => {
                let deaths = clusters.iter_mut().flat_map(Cluster::deaths).collect();
                Err(with_deaths(error, deaths))
            }
        }
    }

    async fn start(&self, kind: Kind) -> Result<Cluster> {
        let mut args: Vec<OsString> = Vec::new();
        if let Some(bytes) = self.memory_limit {
            args.extend(["--memory-limit".into(), bytes.to_string().into()]);
        }
        let workers = self.workers.get();
        let cluster = Cluster::start(workers, kind, &args).await?;
        let workers = display_count(workers, "worker");
        self.note(&format!("{workers}: {}", cluster.display_urls(" ")));
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
                let plan = request.explain(&session, statement).await;
                report.add_plan(self, query, &plan.with_context(failed)?)?;
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
        clusters: &[Cluster],
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
            let cluster = clusters.iter().find(|cluster| cluster.serves(kind));
            let cluster = cluster.context("no workers for a transport")?;
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
        let local = matrix.not_distributed();
        if !local.is_empty() {
            self.note(&format!(
                "warning: no worker was asked for {}, so nothing was compared there: too little data, \
                 or one worker",
                local.join(", ")
            ));
        }
        Ok(Report::of_matrix(matrix))
    }

    /// The tables named on the command line, or else the TPC-H ones, generated if need be.
    async fn tables(&self, signals: &mut Signals) -> Result<Vec<Table>> {
        if !self.tables.is_empty() {
            self.tables.iter().try_for_each(Table::check)?;
            return Ok(self.tables.clone());
        }
        let dataset = self.generate(signals).await?;
        let verb = if dataset.generated() {
            "generated in"
        } else {
            "found in"
        };
        self.note(&format!(
            "TPC-H data at scale {} {verb} {}",
            self.scale,
            dataset.dir().display()
        ));
        let table = |(name, path): (&str, PathBuf)| Table {
            name: name.to_owned(),
            path,
        };
        Ok(dataset.tables().map(table).collect())
    }

    /// Generates the TPC-H tables; when interrupted, waits until the files it wrote are gone.
    async fn generate(&self, signals: &mut Signals) -> Result<tpch::Dataset> {
        let dir = self.data.clone().map_or_else(default_data_dir, Ok)?;
        let progress = progress_bar("generating TPC-H data (rows)", 0);
        let stop = Arc::new(AtomicBool::new(false));
        let mut generated = tokio::task::spawn_blocking({
            let (progress, scale, stop) = (progress.clone(), self.scale, Arc::clone(&stop));
            move || {
                let show = |done, total| {
                    progress.set_length(total);
                    progress.set_position(done);
                };
                tpch::generate_until(&dir, scale, &show, &stop)
            }
        });
        let ended = tokio::select! {
            ended = &mut generated => ended?,
            signal = signals.termination() => {
                stop.store(true, Ordering::Relaxed);
                let _ = timeout(GENERATOR_STOP_TIMEOUT, generated).await;
                Err(interrupted(signal))
            }
        };
        progress.finish_and_clear();
        ended
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
