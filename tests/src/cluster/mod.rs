//! The contract as a user of SQL meets it: queries over a cluster, planned by the engine, carried by any `WorkerChannel`.

pub mod explain;
pub mod failures;
pub mod queries;
pub mod sessions;
mod tables;

use crate::case::{Case, Progress, Trial};
use crate::harness::{ChannelHarness, Served, Service};
use crate::rig::WORKER_VERSION;
use crate::wait::{SOON, eventually, within};
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::{Result, exec_err, extensions_options};
use datafusion::config::ConfigExtension;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExt, SessionStateBuilderExt, WorkerQueryContext, WorkerResolver,
};
use datafusion_transport_core::{TransportExt, Transports};
use futures::StreamExt;
use http::HeaderMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use url::Url;

/// A run of a case at this level.
type Kit = Trial<dyn ChannelHarness>;

/// The list: tests, report and documents are made from it. Two minutes each: an unoptimised planner is slow on a busy machine.
#[macro_export]
macro_rules! cluster_cases {
    ($($callback:tt)+) => {
        $($callback)+! {
            queries {
                aggregations (120 s);
                broadcast_joins (120 s);
                collect_joins (120 s);
                partitioned_joins (120 s);
                unions (120 s);
                sorts_and_windows (120 s);
                limits (120 s);
                zero_columns (120 s);
                early_dropped_probe_sides (120 s);
                every_compression (120 s);
            }
            explain {
                explain_analyze_names_the_boundary_metrics (120 s);
                every_task_of_a_limit_query_reports (120 s);
            }
            sessions {
                functions_run_on_the_workers (120 s);
                config_extensions_travel (120 s);
                passthrough_headers_travel (120 s);
                workers_tell_their_version (120 s);
                several_queries_run_at_once (120 s);
            }
            failures {
                an_error_of_a_worker_is_the_querys_error (120 s);
                a_panic_of_a_worker_is_the_querys_error (120 s);
                a_query_dropped_half_way_leaves_nothing [Counters];
            }
        }
    };
}

/// The list as values.
pub const CASES: &[Case<dyn ChannelHarness>] = cluster_cases!(crate::__case_values);

/// Expands to one test for each case of the cluster contract, in a module of this name.
///
/// ```ignore
/// datafusion_transport_tests::cluster_contract!(mine, MyHarness::new());
/// ```
#[macro_export]
macro_rules! cluster_contract {
    ($module:ident, $harness:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            fn judge(group: &str, name: &str) {
                let harness: ::std::sync::Arc<dyn $crate::ChannelHarness> =
                    ::std::sync::Arc::new($harness);
                $crate::check($crate::cluster::CASES, group, name, &harness);
            }

            $crate::cluster_cases!($crate::__case_tests);
        }
    };
}

extensions_options! {
    /// An extension of the kit's sessions.
    pub struct KitOptions {
        /// Anything.
        pub tag: String, default = "unset".to_string()
    }
}

impl ConfigExtension for KitOptions {
    const PREFIX: &'static str = "kit";
}

/// What the workers' session builders saw.
#[derive(Default)]
struct Seen {
    headers: Vec<HeaderMap>,
    tags: Vec<String>,
}

/// Three workers, each with transports of its own as if it were another process, and a coordinator's transports.
struct Cluster {
    transports: Transports,
    workers: Vec<Box<dyn Served>>,
    seen: Arc<Mutex<Seen>>,
    progress: Progress,
}

#[derive(Clone)]
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

impl Kit {
    async fn cluster(&self) -> Cluster {
        let seen = Arc::default();
        let mut workers = vec![];
        for _ in 0..3 {
            let transports = self.harness.transports();
            let worker = transports.worker(session_builder(Arc::clone(&seen)));
            let service = Service::Worker(worker.with_version(WORKER_VERSION));
            let served = self.harness.serve(service, None, None).await;
            workers.push(served.expect("the worker starts"));
        }
        Cluster {
            transports: self.harness.transports(),
            workers,
            seen,
            progress: self.progress.clone(),
        }
    }
}

fn session_builder(
    seen: Arc<Mutex<Seen>>,
) -> impl Fn(WorkerQueryContext) -> futures::future::Ready<Result<SessionState>> + Send + Sync + 'static
{
    move |ctx| {
        let mut builder = ctx.builder;
        let functions = builder.scalar_functions().get_or_insert_default();
        functions.extend(on_workers().map(Arc::new));
        let config = builder.config().get_or_insert_default();
        let set = config.set_distributed_option_extension_from_headers::<KitOptions>(&ctx.headers);
        set.expect("an option that is a text");
        let options = config.options().extensions.get::<KitOptions>();
        let tag = options
            .map(|options| options.tag.clone())
            .unwrap_or_default();
        let mut seen = seen.lock().expect("no panic");
        seen.tags.push(tag);
        seen.headers.push(ctx.headers);
        futures::future::ready(Ok(builder.build()))
    }
}

fn function(name: &str, body: fn(&[ColumnarValue]) -> Result<ColumnarValue>) -> ScalarUDF {
    let (argument, result) = (vec![DataType::Int64], DataType::Int64);
    create_udf(name, argument, result, Volatility::Volatile, Arc::new(body))
}

/// What the workers know by these names.
fn on_workers() -> [ScalarUDF; 3] {
    [
        function("kit_next", |arguments| {
            let numbers = ColumnarValue::values_to_arrays(arguments)?;
            let next = |n: Option<i64>| n.map(|n| n + 1);
            let next: Int64Array = numbers[0]
                .as_primitive::<Int64Type>()
                .iter()
                .map(next)
                .collect();
            Ok(ColumnarValue::Array(Arc::new(next) as ArrayRef))
        }),
        function("kit_fails", |_| exec_err!("it failed on purpose")),
        function("kit_panics", |_| panic!("it broke on purpose")),
    ]
}

/// The coordinator knows them by name only.
fn on_coordinator() -> [ScalarUDF; 3] {
    on_workers().map(|known| function(known.name(), |_| exec_err!("it ran on the coordinator")))
}

impl Cluster {
    fn builder(&self) -> SessionStateBuilder {
        let urls = self.workers.iter().map(|worker| worker.url().clone());
        SessionStateBuilder::new()
            .with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2))
            .with_distributed_worker_resolver(Workers(urls.collect()))
            .with_distributed_planner()
            .with_distributed_file_scan_config_bytes_per_partition(16 << 10)
            .expect("a size")
            .with_distributed_option_extension(KitOptions::default())
            .with_distributed_transports(&self.transports)
    }

    /// A session that plans for all workers although the tables are small.
    async fn session(&self) -> Session {
        self.session_of(self.builder()).await
    }

    async fn session_of(&self, builder: SessionStateBuilder) -> Session {
        let context = SessionContext::new_with_state(builder.build());
        for function in on_coordinator() {
            context.register_udf(function);
        }
        tables::register(&context).await;
        let progress = self.progress.clone();
        Session { context, progress }
    }

    /// Waits until no call of any query is open on any side.
    async fn idle(&self) {
        let limit = Duration::from_secs(5);
        eventually("the workers are idle", limit, || {
            self.workers.iter().all(|worker| {
                let open = worker.counters().expect("Capability::Counters");
                (open.calls, open.tasks) == (0, 0)
            })
        })
        .await;
        eventually("the coordinator is idle", limit, || {
            let peers = self.transports.stats();
            peers.iter().all(|peer| peer.streams_active == 0)
        })
        .await;
    }
}

/// A session whose results count as progress.
struct Session {
    context: SessionContext,
    progress: Progress,
}

impl Session {
    /// One that runs everything in this process.
    async fn single_node() -> Self {
        let config = SessionConfig::new().with_target_partitions(2);
        let context = SessionContext::new_with_config(config);
        tables::register(&context).await;
        let progress = Progress::default();
        Self { context, progress }
    }

    async fn set(&self, key: &str, value: &str) {
        let sql = format!("SET {key} = '{value}'");
        self.query(&sql).await.expect("the option exists");
    }

    async fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let mut stream = self.context.sql(sql).await?.execute_stream().await?;
        let mut batches = vec![];
        while let Some(batch) = stream.next().await {
            batches.push(batch?);
            self.progress.made();
        }
        Ok(batches)
    }

    /// The result as text.
    async fn text(&self, sql: &str) -> String {
        let batches = within(sql, SOON, self.query(sql)).await;
        let batches = batches.unwrap_or_else(|err| panic!("{sql}: {err}"));
        pretty_format_batches(&batches).expect("text").to_string()
    }

    /// The rows as text, in no order.
    async fn rows(&self, sql: &str) -> Vec<String> {
        let text = self.text(sql).await;
        let mut rows: Vec<_> = text.lines().map(str::to_owned).collect();
        rows.sort_unstable();
        rows
    }

    /// The query is planned over the network, and data crosses it.
    async fn assert_remote(&self, sql: &str) {
        let text = self.text(&format!("EXPLAIN ANALYZE {sql}")).await;
        let boundaries = text.lines().filter(|line| line.contains("Network"));
        let carried = |line: &&str| {
            line.contains("bytes_transferred=") && !line.contains("bytes_transferred=0.0 B")
        };
        assert!(
            boundaries.filter(carried).count() > 0,
            "nothing crossed the network:\n{text}"
        );
    }
}

/// Runs queries with both planners and compares with a single node.
async fn compare(t: &Kit, options: &[(&str, &str)], queries: &[&str]) {
    let cluster = t.cluster().await;
    let single = Session::single_node().await;
    for dynamic in ["false", "true"] {
        let session = cluster.session().await;
        session.set("distributed.dynamic_task_count", dynamic).await;
        session
            .set("distributed.dynamic_bytes_per_partition", "16384")
            .await;
        for (key, value) in options {
            session.set(key, value).await;
        }
        for sql in queries {
            let (got, expected) = (session.rows(sql).await, single.rows(sql).await);
            assert_eq!(got, expected, "{sql}, planned dynamically: {dynamic}");
        }
        session.assert_remote(queries[0]).await;
    }
}
