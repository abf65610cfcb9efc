//! What goes wrong on a worker, or on the way to it, is an error that tells what and where, and it leaves nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::process::{WorkerProcess, become_worker};
use common::{
    Carrier, Cluster, ENDLESS, SOON, Setup, WIDE, query, reserved_bytes, rows, run, session, set,
    shuffle_joins, single_node, small_windows, transports,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{ScalarUDF, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use datafusion_transport_examples::workers::FixedWorkers;
use datafusion_transport_tests::{eventually, within};
use futures::StreamExt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// Two stages on all workers.
const SHUFFLE: &str =
    "SELECT l_suppkey, count(*) AS n FROM lineitem GROUP BY l_suppkey ORDER BY l_suppkey";

/// How long an abandoned query may keep anything on any side.
const RELEASED: Duration = Duration::from_secs(5);

#[test]
#[ignore = "is the worker that other tests start"]
fn worker_process() {
    become_worker();
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A port that swallows everything, until it is dropped: then nobody listens there.
enum SilentPort {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

impl SilentPort {
    fn bind(carrier: Carrier) -> Self {
        match carrier.is_udp() {
            true => Self::Udp(UdpSocket::bind(any_port()).unwrap()),
            false => Self::Tcp(TcpListener::bind(any_port()).unwrap()),
        }
    }

    fn url(&self) -> Url {
        let address = match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Tcp(listener) => listener.local_addr(),
        };
        format!("http://{}", address.unwrap()).parse().unwrap()
    }
}

/// One worker that gets all tasks. Named twice: nothing is distributed to one.
fn alone(url: &Url) -> FixedWorkers {
    FixedWorkers::new(vec![url.clone(); 2])
}

/// Runs a query until its first rows are here.
async fn begin(session: &SessionContext, sql: &str) -> (SendableRecordBatchStream, RecordBatch) {
    let mut stream = session
        .sql(sql)
        .await
        .unwrap()
        .execute_stream()
        .await
        .unwrap();
    let first = within("the first rows", SOON, stream.next()).await;
    (stream, first.unwrap().unwrap())
}

/// Reads on until the error that must come: an end without one would be a partial result.
async fn until_error(stream: &mut SendableRecordBatchStream) -> DataFusionError {
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(err)) => return err,
            None => panic!("the result ended as if it were complete"),
        }
    }
}

async fn fails(session: &SessionContext, sql: &str) -> DataFusionError {
    within(sql, SOON, query(session, sql)).await.expect_err(sql)
}

/// Nothing is left of any query: no call and no task on a worker, no open stream, no reserved memory.
async fn assert_released(cluster: &Cluster, session: &SessionContext) {
    let start = Instant::now();
    loop {
        let workers = cluster.workers.iter();
        let reserved: Vec<_> = workers.map(|worker| worker.memory.reserved()).collect();
        let here = reserved_bytes(session);
        let streams = cluster.streams_active();
        if cluster.is_idle() && streams == 0 && here == 0 && reserved.iter().all(|it| *it == 0) {
            return;
        }
        assert!(
            start.elapsed() < RELEASED,
            "after {RELEASED:?} there are still {streams} streams, {here} bytes here and {reserved:?} \
             on the workers, which serve {:?}",
            cluster.served()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Connections that were dialled so far, by everybody.
fn dials(cluster: &Cluster) -> u64 {
    cluster
        .everyones_stats()
        .iter()
        .map(|peer| peer.dials)
        .sum()
}

/// A worker process that is killed says nothing to anybody. Within the idle timeout the query ends with an error that names
/// it, the other workers let go of the query, and once the worker is back on its port the next query works.
fn a_killed_worker_is_an_error_within_the_idle_timeout(carrier: Carrier) {
    run(async move {
        let idle_timeout = Duration::from_secs(2);
        let setup = Setup {
            workers: 2,
            ..Setup::over(carrier).idle_timeout(idle_timeout)
        };
        let cluster = Cluster::with(setup).await;
        let mut process = WorkerProcess::start(carrier, cluster.identity_dir(), any_port()).await;
        let mut urls = cluster.urls();
        urls.push(process.url.clone());
        let session = session(&cluster.transports, FixedWorkers::new(urls)).await;
        shuffle_joins(&session).await;
        let (mut stream, _) = begin(&session, ENDLESS).await;

        process.kill();
        let killed = Instant::now();
        let err = within("an error", SOON, until_error(&mut stream)).await;
        let elapsed = killed.elapsed();
        assert!(err.to_string().contains(process.url.as_str()), "{err}");
        assert!(
            elapsed < idle_timeout + Duration::from_secs(6),
            "{elapsed:?}"
        );
        drop(stream);
        assert_released(&cluster, &session).await;

        let is_dead = |url: &Url| {
            let mut peers = cluster.everyones_stats().into_iter();
            peers.all(|peer| peer.url != *url || peer.connections == 0)
        };
        eventually("everybody knows", idle_timeout * 5, || {
            is_dead(&process.url)
        })
        .await;
        let port = process.url.port().unwrap();
        let address = ([127, 0, 0, 1], port).into();
        let back = WorkerProcess::start(carrier, cluster.identity_dir(), address).await;
        assert_eq!(back.url, process.url);
        let result = within("the next query", SOON, rows(&session, SHUFFLE)).await;
        assert_eq!(result, rows(&single_node().await, SHUFFLE).await);
    });
}

/// Nobody listens on the port: an error that names the URL, well before any timeout where the system says so.
fn a_wrong_port_is_an_error_that_names_the_worker(carrier: Carrier) {
    run(async move {
        let url = SilentPort::bind(carrier).url();
        let identity = tempfile::tempdir().unwrap();
        let setup = Setup::over(carrier).handshake_timeout(2 * SOON);
        let transports = transports(identity.path(), &setup, carrier.kind());
        let session = session(&transports, alone(&url)).await;
        set(&session, "transport.connect_timeout_ms", "100000").await;
        let err = fails(&session, SHUFFLE).await.to_string();
        assert!(
            err.contains(url.as_str()) && err.contains("cannot reach worker"),
            "{err}"
        );
        assert!(
            transports
                .stats()
                .iter()
                .all(|peer| peer.streams_opened == 0)
        );
    });
}

/// A port that swallows everything: the session's connect timeout ends the wait, and the error says which option that is.
fn a_silent_port_is_an_error_within_the_connect_timeout(carrier: Carrier) {
    run(async move {
        let silent = SilentPort::bind(carrier);
        let url = silent.url();
        let identity = tempfile::tempdir().unwrap();
        let setup = Setup::over(carrier).handshake_timeout(2 * SOON);
        let transports = transports(identity.path(), &setup, carrier.kind());
        let session = session(&transports, alone(&url)).await;
        set(&session, "transport.connect_timeout_ms", "500").await;
        let err = fails(&session, SHUFFLE).await.to_string();
        for words in [url.as_str(), "500ms", "transport.connect_timeout_ms"] {
            assert!(err.contains(words), "{err}");
        }
    });
}

/// A client that trusts another authority is refused before anything of a query is sent, and both sides say why.
fn a_wrong_certificate_is_an_error_on_both_sides(carrier: Carrier) {
    run(async move {
        let (workers, clients) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let process = WorkerProcess::start(carrier, workers.path(), any_port()).await;
        let setup = Setup::over(carrier);
        let transports = transports(clients.path(), &setup, carrier.kind());
        let session = session(&transports, alone(&process.url)).await;
        let err = fails(&session, SHUFFLE).await.to_string();
        for words in [process.url.as_str(), "handshake failed", "certificate"] {
            assert!(err.contains(words), "{err}");
        }
        eventually("the worker logs why", SOON, || {
            let log = process.log();
            let protocol = if carrier.is_udp() { "QUIC" } else { "TCP" };
            log.contains(&format!("{protocol} handshake failed")) && log.contains("certificate")
        })
        .await;
    });
}

/// A function that the workers know. The coordinator's version only shows that it was not the one that ran.
fn function(name: &str, body: impl Fn() -> DataFusionError + Send + Sync + 'static) -> ScalarUDF {
    let body = move |_: &[_]| Err(body());
    let (argument, result) = (vec![DataType::Int64], DataType::Int64);
    create_udf(name, argument, result, Volatility::Volatile, Arc::new(body))
}

/// A cluster whose workers have these functions, and a session that knows them by name.
async fn with_functions(carrier: Carrier, functions: Vec<ScalarUDF>) -> (Cluster, SessionContext) {
    let setup = Setup {
        worker_udfs: functions.clone(),
        ..Setup::over(carrier)
    };
    let cluster = Cluster::with(setup).await;
    let session = cluster.session().await;
    for known in functions {
        let here = || DataFusionError::Internal("it ran on the coordinator".into());
        session.register_udf(function(known.name(), here));
    }
    (cluster, session)
}

/// A worker's error arrives as the variant that it was raised as, so that callers may act on it; and the connection lives on.
fn worker_errors_arrive_as_the_same_variant(carrier: Carrier) {
    run(async move {
        let plan = || DataFusionError::Plan("no such plan".into());
        let denied = || io::Error::new(io::ErrorKind::PermissionDenied, "not yours").into();
        let nested = move || plan().context("inner").context("outer");
        let external = || DataFusionError::External("from a library".into());
        let functions = vec![
            function("nested", nested),
            function("denied", denied),
            function("external", external),
        ];
        let (cluster, session) = with_functions(carrier, functions).await;
        let expected = rows(&session, SHUFFLE).await;
        let dialled = dials(&cluster);
        type Check = fn(&DataFusionError) -> bool;
        let cases: [(&str, Check); 5] = [
            (
                "1 / (l_linenumber - 1)",
                |err| matches!(err, DataFusionError::ArrowError(err, _) if matches!(**err, ArrowError::DivideByZero)),
            ),
            (
                "CAST(l_comment AS INT)",
                |err| matches!(err, DataFusionError::ArrowError(err, _) if matches!(**err, ArrowError::CastError(_))),
            ),
            (
                "nested(l_orderkey)",
                |err| matches!(err, DataFusionError::Plan(text) if text.contains("no such plan")),
            ),
            (
                "denied(l_orderkey)",
                |err| matches!(err, DataFusionError::IoError(err) if err.kind() == io::ErrorKind::PermissionDenied),
            ),
            (
                "external(l_orderkey)",
                |err| matches!(err, DataFusionError::External(err) if err.to_string().contains("from a library")),
            ),
        ];
        for (expression, check) in cases {
            for sql in [
                format!("SELECT * FROM lineitem WHERE {expression} = 5"),
                format!(
                    "SELECT l_suppkey, count(*) FROM lineitem WHERE {expression} = 5 GROUP BY l_suppkey"
                ),
            ] {
                let err = fails(&session, &sql).await;
                assert!(check(err.find_root()), "{sql}: {err:?}");
            }
        }
        let err = fails(
            &session,
            "SELECT * FROM lineitem WHERE nested(l_orderkey) = 5",
        )
        .await;
        let text = err.to_string();
        assert!(text.contains("outer") && text.contains("inner"), "{text}");
        assert_eq!(rows(&session, SHUFFLE).await, expected);
        assert_eq!(
            dials(&cluster),
            dialled,
            "an error of a query cost a connection"
        );
        assert_released(&cluster, &session).await;
    });
}

/// A worker without memory says so in the variant that callers know, and has all of it back afterwards.
fn a_worker_out_of_memory_is_resources_exhausted(carrier: Carrier) {
    run(async move {
        let setup = Setup {
            worker_memory_bytes: Some(2 << 20),
            ..Setup::over(carrier)
        };
        let cluster = Cluster::with(setup).await;
        let session = cluster.session().await;
        shuffle_joins(&session).await;
        // Both sides' hash tables are larger than that.
        let sql = "SELECT count(*) FROM lineitem a JOIN lineitem b \
             ON a.l_orderkey = b.l_orderkey AND a.l_comment = b.l_comment";
        let err = fails(&session, sql).await;
        let root = err.find_root();
        assert!(
            matches!(root, DataFusionError::ResourcesExhausted(_)),
            "{err:?}"
        );
        assert_released(&cluster, &session).await;
        assert_eq!(
            rows(&session, "SELECT count(*) FROM nation").await,
            rows(&single_node().await, "SELECT count(*) FROM nation").await
        );
    });
}

/// A panic on a worker is an error with its message, never an end that looks clean, whether it hits the task that serves a
/// partition or one below a shuffle; the worker goes on.
fn a_panic_on_a_worker_is_an_error_with_its_message(carrier: Carrier) {
    run(async move {
        let functions = vec![function("boom", || panic!("it broke on purpose"))];
        let (cluster, session) = with_functions(carrier, functions).await;
        let expected = rows(&session, SHUFFLE).await;
        let dialled = dials(&cluster);
        for sql in [
            "SELECT * FROM lineitem WHERE boom(l_orderkey) = 5",
            "SELECT l_suppkey, count(*) FROM lineitem WHERE boom(l_orderkey) = 5 GROUP BY l_suppkey",
            "SELECT count(*) FROM lineitem WHERE boom(l_orderkey) = 5",
        ] {
            let err = fails(&session, sql).await.to_string();
            assert!(err.contains("it broke on purpose"), "{sql}: {err}");
        }
        assert_eq!(rows(&session, SHUFFLE).await, expected);
        assert_eq!(
            dials(&cluster),
            dialled,
            "a panic of a query cost a connection"
        );
        assert_released(&cluster, &session).await;
    });
}

/// A worker that is asked to stop finishes the query in flight, all of its rows, and tells new ones why it refuses them.
fn a_worker_that_shuts_down_finishes_its_query_and_refuses_new_ones(carrier: Carrier) {
    run(async move {
        let mut cluster = Cluster::over(carrier).await;
        let session = cluster.session().await;
        shuffle_joins(&session).await;
        small_windows(&session).await;
        let (stream, first) = begin(&session, WIDE).await;
        let leaving = cluster.workers.remove(0);
        let shutdown = tokio::spawn(leaving.server.shutdown(SOON));
        let newcomer = common::session(&cluster.transports, alone(&leaving.url)).await;
        let err = loop {
            match within(SHUFFLE, SOON, query(&newcomer, SHUFFLE)).await {
                Ok(_) => assert!(!shutdown.is_finished(), "it never refused a query"),
                Err(err) => break err.to_string(),
            }
        };
        assert!(
            err.contains("shutting down") && err.contains(leaving.url.as_str()),
            "{err}"
        );
        assert!(
            !shutdown.is_finished(),
            "it did not wait for the query in flight"
        );

        let rest = stream.fold(0, async |rows, batch: Result<RecordBatch>| {
            rows + batch.unwrap().num_rows()
        });
        let rest = within("the rest of the rows", SOON, rest).await;
        let expected = query(&single_node().await, "SELECT * FROM lineitem")
            .await
            .unwrap();
        let expected: usize = expected.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(first.num_rows() + rest, expected);
        let cut = within("the worker stops", SOON, shutdown).await.unwrap();
        assert_eq!(cut, 0, "calls were cut");
        let err = fails(&newcomer, SHUFFLE).await.to_string();
        assert!(err.contains(leaving.url.as_str()), "{err}");
    });
}

/// A query that is dropped half way is gone everywhere within seconds: a worker would compute for nobody.
fn a_dropped_query_leaves_nothing(carrier: Carrier, dynamic_task_count: &'static str) {
    run(async move {
        let cluster = Cluster::over(carrier).await;
        let session = cluster.session().await;
        shuffle_joins(&session).await;
        set(
            &session,
            "distributed.dynamic_task_count",
            dynamic_task_count,
        )
        .await;
        let (stream, _) = begin(&session, ENDLESS).await;
        assert!(cluster.served().iter().all(|served| served.tasks > 0));
        assert!(cluster.streams_active() > 0);
        assert!(reserved_bytes(&session) > 0);
        drop(stream);
        assert_released(&cluster, &session).await;
    });
}

/// Where the planner chose all tasks before.
fn a_dropped_query_leaves_nothing_when_planned_statically(carrier: Carrier) {
    a_dropped_query_leaves_nothing(carrier, "false");
}

/// Where the planner chose the tasks as the query ran.
fn a_dropped_query_leaves_nothing_when_planned_dynamically(carrier: Carrier) {
    a_dropped_query_leaves_nothing(carrier, "true");
}

/// A coordinator that closes its connections in mid-query gets an error, and the workers are free at once.
fn a_coordinator_that_shuts_down_frees_its_workers(carrier: Carrier) {
    run(async move {
        let cluster = Cluster::over(carrier).await;
        let session = cluster.session().await;
        shuffle_joins(&session).await;
        let (mut stream, _) = begin(&session, ENDLESS).await;
        within("connections close", SOON, cluster.transports.shutdown()).await;
        let err = within("an error", SOON, until_error(&mut stream)).await;
        assert!(err.to_string().contains("the client shut down"), "{err}");
        drop(stream);
        assert_released(&cluster, &session).await;
    });
}

over_every_transport!(
    a_killed_worker_is_an_error_within_the_idle_timeout,
    a_wrong_port_is_an_error_that_names_the_worker,
    worker_errors_arrive_as_the_same_variant,
    a_worker_out_of_memory_is_resources_exhausted,
    a_panic_on_a_worker_is_an_error_with_its_message,
    a_worker_that_shuts_down_finishes_its_query_and_refuses_new_ones,
    a_dropped_query_leaves_nothing_when_planned_statically,
    a_dropped_query_leaves_nothing_when_planned_dynamically,
    a_coordinator_that_shuts_down_frees_its_workers,
);

/// What `auto` does with ports like these is in `auto.rs`.
mod one_kind {
    use super::*;

    over!(quic: Quic, a_silent_port_is_an_error_within_the_connect_timeout, a_wrong_certificate_is_an_error_on_both_sides);
    over!(tcp: Tcp, a_silent_port_is_an_error_within_the_connect_timeout);
    over!(tcp_tls: TcpTls, a_silent_port_is_an_error_within_the_connect_timeout, a_wrong_certificate_is_an_error_on_both_sides);
}
