//! What the SQL tests share: workers in this process, sessions over TPC-H tables, and what the transports count.
#![allow(dead_code, unreachable_pub)]

pub mod carrier;
pub mod log;
pub mod process;

pub use carrier::Carrier;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExt, SessionStateBuilderExt, WorkerQueryContext, WorkerResolver,
};
use datafusion_transport_core::{
    GrpcStream, IoRuntime, PeerStats, Server, ServerHandle, ServerStats, TransportExt, Transports,
};
use datafusion_transport_examples::tpch;
use datafusion_transport_examples::workers::FixedWorkers;
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener};
use datafusion_transport_tcp::{Http2Connections, TcpConfig, TcpConnector, TcpListener};
use futures::StreamExt;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// What should take moments: a limit that only a hang reaches, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(60);

/// Scale of the TPC-H tables: 60,000 line items.
pub const SCALE: f64 = 0.01;

/// Unoptimised builds plan with deep recursion and large frames.
const STACK_BYTES: usize = 16 << 20;

/// A runtime for queries.
pub fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .unwrap()
}

/// Runs a test on a runtime of its own.
pub fn run<T: Send + 'static>(test: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = runtime(2);
    let outcome = runtime.block_on(runtime.spawn(test));
    runtime.shutdown_background();
    match outcome {
        Ok(value) => value,
        Err(err) => std::panic::resume_unwind(err.into_panic()),
    }
}

/// How a cluster differs from the usual one.
#[derive(Clone)]
pub struct Setup {
    /// Workers in this process.
    pub workers: usize,
    /// What the coordinator uses by default. The workers' TCP port takes TLS alone where this is TCP with TLS.
    pub carrier: Carrier,
    /// The settings of both sides.
    pub quic: QuicConfig,
    /// The settings of both sides, with TLS and without.
    pub tcp: TcpConfig,
    /// The kind that workers use where the session names none.
    pub worker_default_kind: &'static str,
    /// Each worker's memory limit.
    pub worker_memory_bytes: Option<usize>,
    /// Functions that the workers know.
    pub worker_udfs: Vec<ScalarUDF>,
    /// The I/O runtime of the workers' servers; the shared one by default.
    pub worker_io: Option<IoRuntime>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            workers: 3,
            carrier: Carrier::Quic,
            quic: QuicConfig::default(),
            tcp: TcpConfig::default(),
            worker_default_kind: "quic",
            worker_memory_bytes: None,
            worker_udfs: vec![],
            worker_io: None,
        }
    }
}

impl Setup {
    /// The usual cluster over this transport.
    pub fn over(carrier: Carrier) -> Self {
        Self {
            carrier,
            worker_default_kind: carrier.kind(),
            ..Self::default()
        }
    }

    /// A peer that is silent for so long is lost.
    pub fn idle_timeout(mut self, idle_timeout: Duration) -> Self {
        (self.quic.idle_timeout, self.tcp.idle_timeout) = (idle_timeout, idle_timeout);
        let interval = idle_timeout / 5;
        (self.quic.keep_alive_interval, self.tcp.keep_alive_interval) = (interval, interval);
        self
    }

    /// Handshakes take so long before they fail by themselves.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        (self.quic.handshake_timeout, self.tcp.handshake_timeout) = (timeout, timeout);
        self
    }
}

/// Workers in this process, each with transports of its own as if it were another, and a coordinator's transports.
pub struct Cluster {
    /// The coordinator's.
    pub transports: Transports,
    /// The workers.
    pub workers: Vec<TestWorker>,
    identity: TempDir,
}

/// A worker in this process: QUIC on UDP, raw TCP and gRPC on TCP, under one port number.
pub struct TestWorker {
    /// Where it is.
    pub url: Url,
    /// What it reaches other workers with.
    pub transports: Transports,
    /// What serves it over QUIC.
    pub server: ServerHandle,
    /// The memory of its queries.
    pub memory: Arc<dyn MemoryPool>,
    _grpc: AbortOnDropHandle<()>,
}

impl Cluster {
    /// The usual three workers, on the runtime of the caller.
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    /// The usual three workers and a coordinator that reaches them over this transport.
    pub async fn over(carrier: Carrier) -> Self {
        Self::with(Setup::over(carrier)).await
    }

    /// Workers on the runtime of the caller.
    pub async fn with(setup: Setup) -> Self {
        let identity = tempfile::tempdir().unwrap();
        let mut workers = vec![];
        for _ in 0..setup.workers {
            workers.push(TestWorker::start(identity.path(), &setup).await);
        }
        Self {
            transports: transports(identity.path(), &setup, setup.carrier.kind()),
            workers,
            identity,
        }
    }

    /// The directory of the certificate that coordinator and workers share.
    pub fn identity_dir(&self) -> &Path {
        self.identity.path()
    }

    /// The workers' URLs.
    pub fn urls(&self) -> Vec<Url> {
        self.workers
            .iter()
            .map(|worker| worker.url.clone())
            .collect()
    }

    /// A session that plans for all workers, with the TPC-H tables.
    pub async fn session(&self) -> SessionContext {
        session(&self.transports, FixedWorkers::new(self.urls())).await
    }

    /// What the workers have open now.
    pub fn served(&self) -> Vec<ServerStats> {
        self.workers
            .iter()
            .map(|worker| worker.server.stats())
            .collect()
    }

    /// True where no worker has a call or a task of any query.
    pub fn is_idle(&self) -> bool {
        let mut served = self.served().into_iter();
        served.all(|stats| stats.calls == 0 && stats.tasks == 0)
    }

    /// Streams that coordinator and workers hold open to workers.
    pub fn streams_active(&self) -> usize {
        let all = self.everyones_stats().into_iter();
        all.map(|peer| peer.streams_active).sum()
    }

    /// The counters of the coordinator and of all workers.
    pub fn everyones_stats(&self) -> Vec<PeerStats> {
        let workers = self
            .workers
            .iter()
            .flat_map(|worker| worker.transports.stats());
        self.transports.stats().into_iter().chain(workers).collect()
    }
}

impl TestWorker {
    /// Serves a worker on the runtime of the caller, with the certificate in `identity`.
    pub async fn start(identity: &Path, setup: &Setup) -> Self {
        let transports = transports(identity, setup, setup.worker_default_kind);
        let memory: Arc<dyn MemoryPool> = match setup.worker_memory_bytes {
            Some(bytes) => Arc::new(GreedyMemoryPool::new(bytes)),
            None => Arc::new(UnboundedMemoryPool::default()),
        };
        let udfs = setup.worker_udfs.clone();
        let session_builder = move |ctx: WorkerQueryContext| {
            let functions = udfs.iter().cloned().map(Arc::new);
            let mut builder = ctx.builder;
            builder
                .scalar_functions()
                .get_or_insert_default()
                .extend(functions);
            async move { Ok(builder.build()) }
        };
        let worker = transports
            .worker(session_builder)
            .with_runtime_env(runtime_env(&memory))
            .with_version("test");
        let io = setup.worker_io.clone();
        let io = io.unwrap_or_else(|| IoRuntime::shared().unwrap());
        let (quic, tcp, http2) = bind(identity, setup, &io);
        let url = format!("http://{}", quic.local_addr()).parse().unwrap();
        let service = worker.worker().into_worker_server();
        let grpc = async move {
            let incoming =
                http2.map(|stream| Ok::<_, Infallible>(GrpcStream::new(stream.peer(), stream)));
            let router = tonic::transport::Server::builder().add_service(service);
            router.serve_with_incoming(incoming).await.unwrap();
        };
        let server = Server::builder(worker)
            .listener(Box::new(quic))
            .listener(Box::new(tcp))
            .io_runtime(io);
        Self {
            url,
            transports,
            server: server.start().unwrap(),
            memory,
            _grpc: AbortOnDropHandle::new(tokio::spawn(grpc)),
        }
    }
}

/// The same port number on TCP and UDP, chosen by the system.
fn bind(
    identity: &Path,
    setup: &Setup,
    io: &IoRuntime,
) -> (QuicListener, TcpListener, Http2Connections) {
    let tls = DevelopmentIdentity::load_or_create(identity, &[]).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    loop {
        let tcp_tls = (setup.carrier == Carrier::TcpTls).then(|| tls.server_tls().unwrap());
        let shared = TcpListener::bind_shared(any, setup.tcp.clone(), tcp_tls, io);
        let (tcp, http2) = shared.unwrap();
        let addr = tcp.local_addr().unwrap();
        let tls = tls.server_tls().unwrap();
        // A port that is free on TCP may be taken on UDP.
        if let Ok(quic) = QuicListener::bind(addr, setup.quic.clone(), tls, io) {
            return (quic, tcp, http2);
        }
    }
}

/// QUIC and TCP with the certificate in `identity`, TCP without, gRPC, and auto.
pub fn transports(identity: &Path, setup: &Setup, default_kind: &str) -> Transports {
    let io = IoRuntime::shared().unwrap();
    let tls = DevelopmentIdentity::load_or_create(identity, &[]).unwrap();
    let tls = tls.client_tls().unwrap();
    let tcp = |tls| Arc::new(TcpConnector::new(setup.tcp.clone(), tls, &io).unwrap());
    let quic = QuicConnector::new(setup.quic.clone(), tls.clone(), &io).unwrap();
    Transports::builder()
        .connector("quic", Arc::new(quic))
        .connector("tcp", tcp(None))
        .connector("tcp-tls", tcp(Some(tls)))
        .grpc()
        .auto()
        .default_kind(default_kind)
        .build()
        .unwrap()
}

/// A session with the TPC-H tables that plans several tasks per stage, although the tables are small.
pub async fn session(
    transports: &Transports,
    workers: impl WorkerResolver + 'static,
) -> SessionContext {
    let memory: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let builder = SessionStateBuilder::new()
        .with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(2))
        .with_runtime_env(runtime_env(&memory))
        .with_distributed_worker_resolver(workers)
        .with_distributed_planner()
        .with_distributed_file_scan_config_bytes_per_partition(16 << 10)
        .unwrap()
        .with_distributed_transports(transports);
    let session = SessionContext::new_with_state(builder.build());
    register_tables(&session).await;
    session
}

/// A session with the TPC-H tables that runs everything in this process.
pub async fn single_node() -> SessionContext {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    register_tables(&session).await;
    session
}

/// Bytes reserved in a session's memory pool.
pub fn reserved_bytes(session: &SessionContext) -> usize {
    session.runtime_env().memory_pool.reserved()
}

fn runtime_env(memory: &Arc<dyn MemoryPool>) -> Arc<RuntimeEnv> {
    let builder = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(memory));
    builder.build_arc().unwrap()
}

async fn register_tables(session: &SessionContext) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let generate = || tpch::generate(dir, SCALE, &|_, _| {}).unwrap();
    let dataset = tokio::task::spawn_blocking(generate).await.unwrap();
    for (name, path) in dataset.tables() {
        let path = path.to_str().unwrap();
        let table = session.register_parquet(name, path, ParquetReadOptions::default());
        table.await.unwrap();
    }
}

/// Sets an option as SQL does.
pub async fn set(session: &SessionContext, key: &str, value: &str) {
    let sql = format!("SET {key} = '{value}'");
    session.sql(&sql).await.unwrap();
}

/// Runs a query to its end.
pub async fn query(session: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    session.sql(sql).await?.collect().await
}

/// A result as text, to compare with another; the query must order its rows.
pub async fn rows(session: &SessionContext, sql: &str) -> String {
    let batches = query(session, sql).await;
    let batches = batches.unwrap_or_else(|err| panic!("{sql}\nfailed: {err}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Joins shuffle both sides among all workers, so that every task has rows whatever the files' row groups.
pub async fn shuffle_joins(session: &SessionContext) {
    for (key, value) in [
        ("distributed.broadcast_joins", "false"),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold",
            "0",
        ),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            "0",
        ),
    ] {
        set(session, key, value).await;
    }
}

/// 36 million rows of a shuffled join: longer than any test waits. Needs [`shuffle_joins`].
pub const ENDLESS: &str = "SELECT a.l_orderkey, b.l_partkey, a.l_comment \
     FROM lineitem a JOIN lineitem b ON a.l_suppkey = b.l_suppkey";

/// 60,000 wide rows of a shuffled join. With [`shuffle_joins`] and [`small_windows`] all its streams, those among
/// workers too, stay open for as long as nobody reads the result.
pub const WIDE: &str =
    "SELECT l.*, o_comment FROM lineitem l JOIN orders ON l_orderkey = o_orderkey";

/// Batches and windows so small that a worker soon waits for its reader.
pub async fn small_windows(session: &SessionContext) {
    set(session, "distributed.compression", "none").await;
    set(session, "distributed.shuffle_batch_size", "128").await;
    set(session, "transport.partition_buffer_bytes", "65536").await;
}
