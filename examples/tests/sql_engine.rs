//! The engine of a third party: its results are those of one node over each transport, and its failures are errors.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::{IoRuntime, Server, ServerHandle, Transports};
use datafusion_transport_examples::fifo::{FifoConnector, FifoListener};
use datafusion_transport_examples::sql_engine::{SqlClient, SqlPlan, SqlWorker, merge};
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener};
use datafusion_transport_tcp::{TcpConfig, TcpConnector, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

const WORKERS: usize = 3;
const ROWS: usize = 10_000;

/// The rows of worker `number`, or of all in one table.
fn rows(workers: std::ops::Range<usize>) -> String {
    let (first, last) = (workers.start * ROWS, workers.end * ROWS - 1);
    format!(
        "CREATE VIEW t AS SELECT value % 7 AS g, value AS v FROM generate_series({first}, {last})"
    )
}

async fn cluster(
    connector: Arc<dyn Connector>,
    mut listen: impl FnMut(usize) -> (Url, Box<dyn Listener>),
) -> (SqlClient, Vec<ServerHandle>) {
    let (mut urls, mut servers) = (vec![], vec![]);
    for number in 0..WORKERS {
        let session = SessionContext::new();
        session.sql(&rows(number..number + 1)).await.unwrap();
        let (url, listener) = listen(number);
        let server = Server::builder(SqlWorker::new(session)).listener(listener);
        urls.push(url);
        servers.push(server.start().unwrap());
    }
    let transports = Transports::builder().connector("it", connector).build();
    (SqlClient::new(transports.unwrap(), urls), servers)
}

fn plan(sql: &str) -> SqlPlan {
    SqlPlan {
        sql: sql.to_owned(),
        partitions: 3,
    }
}

async fn check((client, servers): (SqlClient, Vec<ServerHandle>)) {
    let parts = plan("SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g");
    let gathered = client.gather(&parts).await.unwrap();
    let whole = "SELECT g, sum(n) AS n, sum(s) AS s FROM gathered GROUP BY g ORDER BY g";
    let merged = merge(gathered, whole).await.unwrap();

    let single = SessionContext::new();
    single.sql(&rows(0..WORKERS)).await.unwrap();
    let sql = "SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g ORDER BY g";
    let expected = single.sql(sql).await.unwrap().collect().await.unwrap();
    let text = |batches| pretty_format_batches(batches).unwrap().to_string();
    assert_eq!(text(&merged), text(&expected));

    let err = client
        .gather(&plan("SELECT nothing FROM t"))
        .await
        .unwrap_err();
    assert!(err.to_string().contains("nothing"), "{err}");
    let err = client
        .gather(&plan("SELECT 1 / (v - v) FROM t"))
        .await
        .unwrap_err();
    assert!(err.to_string().contains("ivide by zero"), "{err}");

    let start = Instant::now();
    while servers
        .iter()
        .any(|server| server.stats().calls > 0 || server.stats().tasks > 0)
    {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "something is left on a worker"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_quic() {
    let dir = tempfile::tempdir().unwrap();
    let identity = DevelopmentIdentity::load_or_create(dir.path(), &[]).unwrap();
    let io = IoRuntime::shared().unwrap();
    let tls = identity.client_tls().unwrap();
    let connector = QuicConnector::new(QuicConfig::default(), tls, &io).unwrap();
    let listen = |_| {
        let (any, tls) = (([127, 0, 0, 1], 0).into(), identity.server_tls().unwrap());
        let listener = QuicListener::bind(any, QuicConfig::default(), tls, &io).unwrap();
        let url = format!("http://{}", listener.local_addr());
        (url.parse().unwrap(), Box::new(listener) as _)
    };
    check(cluster(Arc::new(connector), listen).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tcp() {
    let io = IoRuntime::shared().unwrap();
    let connector = TcpConnector::new(TcpConfig::default(), None, &io).unwrap();
    let listen = |_| {
        let any = ([127, 0, 0, 1], 0).into();
        let listener = TcpListener::bind(any, TcpConfig::default(), None, &io).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (url.parse().unwrap(), Box::new(listener) as _)
    };
    check(cluster(Arc::new(connector), listen).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_other_third_partys_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let io = IoRuntime::shared().unwrap();
    let connector = FifoConnector::new(TcpConfig::default(), &io).unwrap();
    let listen = |number: usize| {
        let place = dir.path().join(number.to_string());
        let listener = FifoListener::bind(&place, TcpConfig::default(), &io).unwrap();
        let url = format!("fifo://{}", place.display());
        (url.parse().unwrap(), Box::new(listener) as _)
    };
    check(cluster(Arc::new(connector), listen).await).await;
}
