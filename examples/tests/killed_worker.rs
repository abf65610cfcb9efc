//! A worker process that is killed in the middle of a query.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt};
use datafusion_transport_core::{IoRuntime, TransportExt, Transports};
use datafusion_transport_examples::tpch;
use datafusion_transport_examples::workers::FixedWorkers;
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector};
use datafusion_transport_tcp::{TcpConfig, TcpConnector};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use url::Url;

/// Starts a worker that serves these kinds on a port, 0 for a free one; returns once it serves.
async fn worker(served: &str, port: u16, identity: &Path) -> (Child, Url) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_worker"))
        .args(["--transports", served, "--log", "warn"])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .arg("--dev-tls")
        .arg(identity)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
    let line = ready.expect("the worker is slow").unwrap().unwrap();
    let url = line
        .strip_prefix("ready ")
        .expect("ready line")
        .parse()
        .unwrap();
    (child, url)
}

/// What a process has computed so far. Starting up takes well under a second.
fn cpu_seconds(process: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id().unwrap())).unwrap();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks = |field: usize| fields[field].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn transports(kind: &str, identity: &Path) -> Transports {
    let io = IoRuntime::shared().unwrap();
    let tls = DevelopmentIdentity::load_or_create(identity, &[]).unwrap();
    let tls = tls.client_tls().unwrap();
    let tcp = |tls| Arc::new(TcpConnector::new(TcpConfig::default(), tls, &io).unwrap());
    let quic = QuicConnector::new(QuicConfig::default(), tls.clone(), &io).unwrap();
    Transports::builder()
        .connector("quic", Arc::new(quic))
        .connector("tcp", tcp(None))
        .connector("tcp-tls", tcp(Some(tls)))
        .auto_order(["quic", "tcp"])
        .default_kind(kind)
        .build()
        .unwrap()
}

async fn session(
    transports: &Transports,
    workers: Vec<Url>,
    data: &tpch::Dataset,
) -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(2))
        .with_distributed_worker_resolver(FixedWorkers::new(workers))
        .with_distributed_planner()
        .with_distributed_transports(transports)
        .with_distributed_file_scan_config_bytes_per_partition(1)
        .unwrap();
    let session = SessionContext::new_with_state(state.build());
    for (name, path) in data.tables() {
        let path = path.to_str().unwrap();
        let options = ParquetReadOptions::default();
        session.register_parquet(name, path, options).await.unwrap();
    }
    session
}

/// An error that names the worker, within the idle timeout of 10 s (and a margin for a busy machine), no partial result, although the other worker computes on without
/// a pause; and the next query works once the worker is back on its port.
async fn a_killed_worker_is_an_error_and_comes_back(kind: &str, served: &str) {
    let dir = tempfile::tempdir().unwrap();
    let data = tpch::generate(&dir.path().join("data"), 0.01, &|_, _| {}).unwrap();
    let identity = dir.path().join("identity");
    let transports = transports(kind, &identity);
    let (mut killed, killed_url) = worker(served, 0, &identity).await;
    let (other, other_url) = worker(served, 0, &identity).await;
    let workers = vec![killed_url.clone(), other_url];
    let session = session(&transports, workers, &data).await;

    // Billions of pairs: neither worker is done before one is killed, nor for minutes after.
    let endless =
        "SELECT count(*) FROM lineitem a JOIN lineitem b ON a.l_orderkey <> b.l_orderkey + 1";
    let query = session.sql(endless).await.unwrap();
    let mut query = tokio::spawn(query.collect());
    let start = Instant::now();
    while cpu_seconds(&killed) < 1.5 || cpu_seconds(&other) < 1.5 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the workers don't compute"
        );
        if query.is_finished() {
            panic!("the query ended early: {:?}", (&mut query).await);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    killed.kill().await.unwrap();
    let start = Instant::now();
    let outcome = tokio::time::timeout(Duration::from_secs(30), query).await;
    let err = outcome
        .expect("no error within 30 s")
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(err.contains(killed_url.as_str()), "{err}");
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );

    let (_back, back_url) = worker(served, killed_url.port().unwrap(), &identity).await;
    assert_eq!(back_url, killed_url);
    let count = session.sql("SELECT count(*) FROM orders").await.unwrap();
    let count = tokio::time::timeout(Duration::from_secs(60), count.collect()).await;
    let count = datafusion::arrow::util::pretty::pretty_format_batches(&count.unwrap().unwrap());
    assert!(count.unwrap().to_string().contains("15000"));
}

macro_rules! over {
    ($($name:ident: $kind:literal served as $served:literal;)+) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            a_killed_worker_is_an_error_and_comes_back($kind, $served).await;
        }
    )+ };
}

over! {
    over_quic: "quic" served as "quic";
    over_tcp: "tcp" served as "tcp";
    over_tcp_with_tls: "tcp-tls" served as "tcp-tls";
    over_auto: "auto" served as "quic,tcp";
}
