//! Query threads that compute or block for long: connections survive, and other traffic flows. (quinn#1509, #1166, and a
//! catalog callback that hung an embedding engine)
//!
//! Every thread of a query runtime is put to sleep for longer than the idle timeout. A transport whose drivers ran there
//! would acknowledge nothing meanwhile and lose its connections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use datafusion_distributed::GetWorkerInfoRequest;
use datafusion_transport_quic::QuicConfig;
use datafusion_transport_tcp::TcpConfig;
use datafusion_transport_tests::harness::quic::Quic;
use datafusion_transport_tests::harness::tcp::Tcp;
use datafusion_transport_tests::{ChannelHarness, Execution, ProbeExec, Rig, within};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

const LIMIT: Duration = Duration::from_secs(60);
const PARTITIONS: usize = 3;
const BATCHES: usize = 200;
const ROWS: usize = 1000;

/// A peer that is silent for a second is lost.
#[derive(Clone, Copy)]
struct Timeouts {
    idle: Duration,
    keep_alive: Duration,
}

const SHORT: Timeouts = Timeouts {
    idle: Duration::from_secs(1),
    keep_alive: Duration::from_millis(200),
};

fn quic(timeouts: Option<Timeouts>) -> Arc<dyn ChannelHarness> {
    let mut config = QuicConfig::default();
    if let Some(timeouts) = timeouts {
        (config.idle_timeout, config.keep_alive_interval) = (timeouts.idle, timeouts.keep_alive);
    }
    Arc::new(Quic::with(config))
}

fn tcp_config(timeouts: Option<Timeouts>) -> TcpConfig {
    let mut config = TcpConfig::default();
    if let Some(timeouts) = timeouts {
        (config.idle_timeout, config.keep_alive_interval) = (timeouts.idle, timeouts.keep_alive);
    }
    config
}

fn tcp(timeouts: Option<Timeouts>) -> Arc<dyn ChannelHarness> {
    Arc::new(Tcp::new().configured(tcp_config(timeouts)))
}

fn tcp_tls(timeouts: Option<Timeouts>) -> Arc<dyn ChannelHarness> {
    Arc::new(Tcp::with_tls().configured(tcp_config(timeouts)))
}

fn runtime(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
}

fn plan() -> Arc<ProbeExec> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let column = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
    ProbeExec::new(schema, PARTITIONS, move |_| {
        stream::iter(vec![batch.clone(); BATCHES]).map(Ok).boxed()
    })
}

/// Puts every worker thread of a runtime to sleep, and returns once they all are.
fn block(runtime: &Runtime, threads: usize, time: Duration) -> Vec<tokio::task::JoinHandle<()>> {
    let all_blocked = Arc::new(Barrier::new(threads + 1));
    let sleeper = |_| {
        let all_blocked = Arc::clone(&all_blocked);
        runtime.spawn(async move {
            all_blocked.wait();
            std::thread::sleep(time);
        })
    };
    let sleepers = (0..threads).map(sleeper).collect();
    all_blocked.wait();
    sleepers
}

/// Asks the worker who it is from a runtime of its own until the sleepers wake; every answer must come soon.
fn other_traffic_flows(rig: &Rig, sleepers: &[tokio::task::JoinHandle<()>]) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut answers = 0;
    while !sleepers.iter().all(|sleeper| sleeper.is_finished()) {
        runtime.block_on(async {
            let mut channel = rig.channel().await;
            let ask = channel.get_worker_info(GetWorkerInfoRequest {});
            within("an answer", Duration::from_secs(5), ask)
                .await
                .unwrap();
        });
        answers += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        answers > 10,
        "only {answers} answers while the threads were blocked"
    );
}

/// The rows of partitions that were read in part before: on the connection they began on.
async fn rest(rig: Arc<Rig>, run: Execution, first: usize) {
    let rows = stream::select_all(run.streams).map_ok(|batch| batch.num_rows());
    let rows = rows.try_fold(first, |sum, rows| async move { Ok(sum + rows) });
    let rows = within("the rest of the rows", LIMIT, rows).await.unwrap();
    assert_eq!(rows, PARTITIONS * BATCHES * ROWS);
    let peers = rig.transports.stats();
    assert_eq!(
        (peers[0].connections, peers[0].dials),
        (1, 1),
        "the connection was lost"
    );
}

/// Blocks the client's or the worker's threads in the middle of a query.
fn survives(harness: Arc<dyn ChannelHarness>, threads: usize, block_worker: bool, time: Duration) {
    let start = Instant::now();
    let (client, worker) = match block_worker {
        true => (runtime(2), runtime(threads)),
        false => (runtime(threads), runtime(2)),
    };
    let rig = worker.block_on(async { Arc::new(Rig::start(harness).await) });
    let (task, run, first) = client.block_on({
        let rig = Arc::clone(&rig);
        async move {
            let begin = tokio::spawn(async move {
                let task = rig.set_plan(plan()).await;
                let call = rig.call(task.key, 0..PARTITIONS).budget(1 << 20);
                let mut run = call.send().await;
                let batch = run.streams[0].next().await.unwrap().unwrap();
                (task, run, batch.num_rows())
            });
            begin.await.unwrap()
        }
    });
    let blocked = if block_worker { &worker } else { &client };
    let sleepers = block(blocked, threads, time);
    other_traffic_flows(&rig, &sleepers);
    assert!(start.elapsed() >= time);
    client.block_on(async { tokio::spawn(rest(rig, run, first)).await.unwrap() });
    drop(task);
}

const BLOCKED: Duration = Duration::from_secs(3);

macro_rules! transports {
    ($($transport:ident),+) => { $(
        mod $transport {
            use super::*;

            threads!($transport, one_thread: 1, two_threads: 2, four_threads: 4, eight_threads: 8);

            /// With the default timeouts, and blocked for longer than the idle timeout.
            #[test]
            fn defaults_survive_eleven_seconds() {
                survives(super::$transport(None), 2, false, Duration::from_secs(11));
            }
        }
    )+ };
}

macro_rules! threads {
    ($transport:ident, $($name:ident: $threads:literal),+) => { $(
        mod $name {
            use super::*;

            /// The client's query threads sleep three idle timeouts long.
            #[test]
            fn of_the_client() {
                survives(super::super::$transport(Some(SHORT)), $threads, false, BLOCKED);
            }

            /// The worker's do.
            #[test]
            fn of_the_worker() {
                survives(super::super::$transport(Some(SHORT)), $threads, true, BLOCKED);
            }
        }
    )+ };
}

transports!(quic, tcp, tcp_tls);
