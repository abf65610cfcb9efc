//! `SET transport.*` acts on the next query, on the workers too, and whatever carries a query, EXPLAIN ANALYZE tells the same.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Cluster, SOON, Setup, query, rows, run, set};
use datafusion::prelude::SessionContext;
use datafusion_transport_core::{PeerStats, Transports};
use datafusion_transport_tests::within;
use std::collections::BTreeSet;

/// Two stages on three workers: each worker sends groups to the other two.
const SHUFFLE: &str = "SELECT l_suppkey, count(*) AS n, sum(l_quantity) AS q \
     FROM lineitem GROUP BY l_suppkey ORDER BY l_suppkey";

/// Streams of a kind opened so far, by the coordinator first and then by each worker.
fn opened(cluster: &Cluster, kind: &str) -> Vec<u64> {
    let workers = cluster.workers.iter().map(|worker| &worker.transports);
    let streams = |transports: &Transports| {
        let stats = transports.stats().into_iter();
        let of_kind = stats.filter(|peer: &PeerStats| peer.kind == kind);
        of_kind.map(|peer| peer.streams_opened).sum()
    };
    std::iter::once(&cluster.transports)
        .chain(workers)
        .map(streams)
        .collect()
}

/// One session goes to and fro. Where the workers' own default is not the kind that the session asks for, a
/// setting which stayed on the coordinator would show in the workers' counters.
async fn switches_to_and_fro(worker_default_kind: &'static str) {
    let setup = Setup {
        worker_default_kind,
        ..Setup::default()
    };
    let cluster = Cluster::with(setup).await;
    let session = cluster.session().await;
    let counts = || ["quic", "tcp"].map(|kind| opened(&cluster, kind));
    let mut results = BTreeSet::new();
    for kind in ["quic", "grpc", "tcp", "quic", "auto", "tcp", "grpc"] {
        set(&session, "transport.kind", kind).await;
        let before = counts();
        results.insert(within(kind, SOON, rows(&session, SHUFFLE)).await);
        let after = counts();
        let carrier = if kind == "auto" { "quic" } else { kind };
        for (counted, (before, after)) in ["quic", "tcp"].iter().zip(before.iter().zip(&after)) {
            // Every process took part: the workers' shuffle went the same way.
            let moved = before
                .iter()
                .zip(after)
                .filter(|(before, after)| before < after);
            let expected = if *counted == carrier { before.len() } else { 0 };
            assert_eq!(
                moved.count(),
                expected,
                "{kind}: {counted} {before:?} {after:?}"
            );
        }
        if kind == "grpc" {
            assert_shuffled_remotely(&session).await;
        }
    }
    assert_eq!(results.len(), 1, "the kinds disagree: {results:#?}");
}

/// The engine answers a worker's calls to its own URL itself: bytes at the shuffle show that others were called.
async fn assert_shuffled_remotely(session: &SessionContext) {
    let text = rows(session, &format!("EXPLAIN ANALYZE {SHUFFLE}")).await;
    let line = boundary(&text, "NetworkShuffleExec");
    assert!(!line.contains("bytes_transferred=0.0 B"), "{line}");
    assert!(line.contains("bytes_transferred="), "{line}");
}

/// `SET transport.kind` moves the next query and the traffic among workers, where workers prefer QUIC themselves.
#[test]
fn set_kind_moves_the_next_query_of_workers_that_prefer_quic() {
    run(switches_to_and_fro("quic"));
}

/// Likewise where workers prefer gRPC: the session's choice travels with the query.
#[test]
fn set_kind_moves_the_next_query_of_workers_that_prefer_grpc() {
    run(switches_to_and_fro("grpc"));
}

/// A session that chooses nothing uses the coordinator's default, on the workers too, whatever theirs is.
#[test]
fn the_default_kind_travels_too() {
    run(async {
        let setup = Setup {
            worker_default_kind: "grpc",
            ..Setup::default()
        };
        let cluster = Cluster::with(setup).await;
        let session = cluster.session().await;
        within(SHUFFLE, SOON, rows(&session, SHUFFLE)).await;
        let opened = opened(&cluster, "quic");
        assert!(opened.iter().all(|streams| *streams > 0), "{opened:?}");
    });
}

/// A typing error must not run the query over something else: it names the kinds there are, and costs nothing more.
#[test]
fn an_unknown_kind_is_an_error_that_names_the_known_ones() {
    run(async {
        let cluster = Cluster::start().await;
        let session = cluster.session().await;
        set(&session, "transport.kind", "smoke").await;
        let err = within("an unknown kind fails", SOON, query(&session, SHUFFLE)).await;
        let err = err.unwrap_err().to_string();
        for word in ["transport.kind", "'smoke'", "auto", "grpc", "quic", "tcp"] {
            assert!(err.contains(word), "{err}");
        }
        assert_eq!(opened(&cluster, "quic"), [0, 0, 0, 0]);
        set(&session, "transport.kind", "quic").await;
        let batches = within("the session still works", SOON, query(&session, SHUFFLE)).await;
        assert_eq!(
            batches
                .unwrap()
                .iter()
                .map(|batch| batch.num_rows())
                .sum::<usize>(),
            100
        );
    });
}

/// An unknown compression, in whichever option counts, is an error that names the option and not a silent default.
#[test]
fn an_unknown_compression_is_an_error_that_names_the_option() {
    run(async {
        let cluster = Cluster::start().await;
        let session = cluster.session().await;
        for (key, bad, good) in [
            ("transport.compression", "best", "inherit"),
            ("distributed.compression", "snappy", "zstd"),
        ] {
            set(&session, key, bad).await;
            let err = within("a bad value fails", SOON, query(&session, SHUFFLE)).await;
            let err = err.unwrap_err().to_string();
            assert!(err.contains(&format!("{key} is '{bad}'")), "{err}");
            set(&session, key, good).await;
            within("the session still works", SOON, rows(&session, SHUFFLE)).await;
        }
    });
}

/// What a boundary reports carries the same names over every transport: people and programs that read EXPLAIN ANALYZE
/// need not know what carried the query.
#[test]
fn explain_analyze_shows_the_same_metrics_for_every_kind() {
    run(async {
        let cluster = Cluster::start().await;
        let session = cluster.session().await;
        let mut shown = vec![];
        for kind in ["quic", "grpc"] {
            set(&session, "transport.kind", kind).await;
            let sql = format!("EXPLAIN ANALYZE {SHUFFLE}");
            let text = within(kind, SOON, rows(&session, &sql)).await;
            let lines = [
                "DistributedExec",
                "NetworkCoalesceExec",
                "NetworkShuffleExec",
            ];
            shown.push(lines.map(|node| metric_names(boundary(&text, node))));
        }
        let expected = [
            "bytes_transferred",
            "elapsed_compute",
            "max_mem_used",
            "msg_count",
            "network_latency_count",
            "network_latency_first",
            "network_latency_max",
            "network_latency_min",
            "network_latency_p50",
            "network_latency_p95",
            "network_latency_sum",
        ];
        let [head, coalesce, shuffle] = &shown[0];
        assert!(head.contains("plan_bytes_sent"), "{head:?}");
        for name in expected {
            assert!(
                coalesce.contains(name) && shuffle.contains(name),
                "{name} in {shown:#?}"
            );
        }
        assert_eq!(shown[0], shown[1]);
    });
}

/// A LIMIT ends the query while other partitions are unread, or before anybody executed them: their tasks report all the
/// same. EXPLAIN ANALYZE waits for every task's metrics, so a lost one hangs it (over the engine's own gRPC, now and then).
#[test]
fn a_limit_query_has_the_metrics_of_every_task() {
    run(async {
        let cluster = Cluster::start().await;
        let session = cluster.session().await;
        for sql in [
            "SELECT l_suppkey, count(*) FROM lineitem GROUP BY l_suppkey LIMIT 1",
            "SELECT * FROM lineitem WHERE l_quantity > 1 LIMIT 1",
        ] {
            let sql = format!("EXPLAIN ANALYZE VERBOSE {sql}");
            // Whether a task was still to be executed when the query ended is a matter of luck.
            for _ in 0..20 {
                let text = within(&sql, SOON, rows(&session, &sql)).await;
                assert_all_tasks_report(&text);
            }
        }
    });
}

/// Every stage says when each of its tasks ended.
fn assert_all_tasks_report(text: &str) {
    let (_, per_task) = text.split_once("Plan with Full Metrics").unwrap();
    let mut stages = 0;
    for line in per_task.lines() {
        let Some((_, tasks)) = line.split_once("── tasks=") else {
            continue;
        };
        stages += 1;
        let tasks: usize = tasks.split(',').next().unwrap().parse().unwrap();
        assert_eq!(tasks, 3, "{line}");
        let (_, ended) = line.split_once("plan_finished_at={").unwrap();
        let (ended, _) = ended.split_once('}').unwrap();
        for task in 0..tasks {
            assert!(
                ended.contains(&format!("{task}:")),
                "no task {task}: {line}"
            );
        }
    }
    assert!(stages > 0, "{text}");
}

/// The line of EXPLAIN ANALYZE about a node.
fn boundary<'a>(text: &'a str, node: &str) -> &'a str {
    let line = text.lines().find(|line| line.contains(node));
    line.unwrap_or_else(|| panic!("no {node} in\n{text}"))
}

/// The names in `..., name=value, ...` of a line.
fn metric_names(line: &str) -> BTreeSet<String> {
    let (_, metrics) = line
        .split_once("metrics=[")
        .or_else(|| line.split_once("Exec ── "))
        .unwrap();
    let names = metrics
        .split(", ")
        .filter_map(|metric| metric.split_once('='));
    names.map(|(name, _)| name.to_owned()).collect()
}
