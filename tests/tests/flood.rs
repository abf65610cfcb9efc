//! Queries run on while strangers flood a worker's port, over TCP and over UDP, with handshakes that nobody goes on with.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Carrier, Cluster, SOON, Setup, rows, run, session, shuffle_joins, single_node};
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::testing::{Flood, first_packets};
use datafusion_transport_examples::workers::FixedWorkers;
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector};
use datafusion_transport_tests::within;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two stages each, on all workers.
const QUERIES: [&str; 2] = [
    "SELECT l_suppkey, count(*) AS n FROM lineitem GROUP BY l_suppkey ORDER BY l_suppkey",
    "SELECT o_orderpriority, count(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey \
     GROUP BY o_orderpriority ORDER BY o_orderpriority",
];
const ROUNDS: u32 = 8;

over_every_transport!(queries_run_on);

fn queries_run_on(carrier: Carrier) {
    run(async move {
        let setup = Setup::over(carrier);
        let cluster = Cluster::with(setup.clone()).await;
        let local = single_node().await;
        let mut expected = vec![];
        for sql in QUERIES {
            expected.push(rows(&local, sql).await);
        }
        let floods = floods(&cluster).await;
        // The first round connects workers to each other.
        within("first", SOON, round(&cluster, &setup, &expected)).await;
        let attempts = || floods.iter().map(Flood::attempts).sum::<usize>();
        let before = attempts();
        let flooded = rounds(&cluster, &setup, &expected).await;
        let peers = attempts() - before;
        assert!(peers > 0);
        drop(floods);
        let calm = rounds(&cluster, &setup, &expected).await;
        let rate = peers as f64 / flooded.as_secs_f64();
        let ratio = calm.as_secs_f64() / flooded.as_secs_f64();
        println!("{carrier:?}: under {rate:.0} bad peers a second, {ratio:.2} times the queries");
    });
}

/// Of the first worker, both under way.
async fn floods(cluster: &Cluster) -> [Flood; 2] {
    let worker = cluster.workers.first().unwrap();
    let target = worker.url.socket_addrs(|| None).unwrap();
    let target = *target.first().unwrap();
    let identity = DevelopmentIdentity::load_or_create(cluster.identity_dir(), &[]).unwrap();
    let (tls, io) = (identity.client_tls().unwrap(), IoRuntime::shared().unwrap());
    let connector = QuicConnector::new(QuicConfig::default(), tls, &io).unwrap();
    let packets = first_packets(Arc::new(connector), 300).await;
    let floods = [Flood::tcp(target), Flood::udp(target, packets)];
    for flood in &floods {
        // By now each has more handshakes in progress than one address may have.
        flood.goes_on(300).await;
    }
    floods
}

async fn rounds(cluster: &Cluster, setup: &Setup, expected: &[String]) -> Duration {
    let mut took = Duration::ZERO;
    for _ in 0..ROUNDS {
        took += within("a round", SOON, round(cluster, setup, expected)).await;
    }
    took
}

/// A coordinator that knows nobody connects and queries.
async fn round(cluster: &Cluster, setup: &Setup, expected: &[String]) -> Duration {
    let kind = setup.carrier.kind();
    let transports = common::transports(cluster.identity_dir(), setup, kind);
    let session = session(&transports, FixedWorkers::new(cluster.urls())).await;
    shuffle_joins(&session).await;
    let began = Instant::now();
    for (sql, expected) in QUERIES.iter().zip(expected) {
        assert_eq!(*expected, rows(&session, sql).await);
    }
    began.elapsed()
}
