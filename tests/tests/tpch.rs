//! All 22 TPC-H queries over each transport give the rows of a single node, however they are planned and compressed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Cluster, SOON, run, set, single_node};
use datafusion::prelude::SessionContext;
use datafusion_transport_examples::compare::compare;
use datafusion_transport_examples::execution::{self, Execution};
use datafusion_transport_examples::tpch;
use datafusion_transport_tests::within;
use tokio::sync::OnceCell;

/// The rows that every other way to run the queries must give.
async fn expected() -> &'static [Execution] {
    static EXPECTED: OnceCell<Vec<Execution>> = OnceCell::const_new();
    EXPECTED
        .get_or_init(async || run_all(&single_node().await).await)
        .await
}

async fn run_all(session: &SessionContext) -> Vec<Execution> {
    let mut results = vec![];
    for number in 1..=tpch::QUERY_COUNT {
        let work = execution::run(session, tpch::query(number).unwrap());
        let result = within(&format!("query {number} ends"), SOON, work).await;
        results.push(result.unwrap_or_else(|err| panic!("query {number}: {err:#}")));
    }
    results
}

/// Runs the 22 queries with these options and compares the rows. The kind's own counters must show that it was used.
fn check(kind: &'static str, options: &'static [(&'static str, &'static str)]) {
    run(async move {
        let cluster = Cluster::start().await;
        let session = cluster.session().await;
        set(&session, "transport.kind", kind).await;
        for (key, value) in options {
            set(&session, key, value).await;
        }
        let results = run_all(&session).await;
        for (number, (expected, actual)) in expected().await.iter().zip(&results).enumerate() {
            let difference = compare(expected, actual).unwrap();
            assert!(
                difference.is_none(),
                "query {} over {kind} with {options:?}: {}",
                number + 1,
                difference.unwrap()
            );
        }
        assert!(results.iter().any(|result| result.row_count() > 100));
        assert_distributed(&results).await;
        let stats = cluster.everyones_stats().into_iter();
        let streams: u64 = stats.map(|peer| peer.streams_opened).sum();
        assert_eq!(streams > 0, kind != "grpc", "{streams} streams");
    });
}

/// A plan that stays on one node, or has no shuffle, would prove nothing.
async fn assert_distributed(results: &[Execution]) {
    let mut with_shuffles = 0;
    for result in results {
        let shape = result.shape().await.unwrap();
        with_shuffles += usize::from(shape.stages > 1 && shape.tasks > shape.stages);
    }
    assert!(
        with_shuffles > 10,
        "only {with_shuffles} queries with several stages"
    );
}

/// One test for each way to plan and compress, so that a failure names it.
macro_rules! tpch_tests {
    ($($(#[$doc:meta])* $name:ident: $kind:literal, $options:expr;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                check($kind, &$options);
            }
        )*
    };
}

tpch_tests! {
    /// The engine's own transport, planned statically: the reference agrees with the single node.
    grpc_static: "grpc", [];
    /// The engine's own transport, with task counts chosen at run time.
    grpc_dynamic: "grpc", [("distributed.dynamic_task_count", "true")];
    /// The engine's setting is obeyed by QUIC: no compression.
    quic_static_none: "quic", [("distributed.compression", "none")];
    /// The engine's setting is obeyed by QUIC: LZ4, which is also its default.
    quic_static_lz4: "quic", [("distributed.compression", "lz4")];
    /// The engine's setting is obeyed by QUIC: Zstandard.
    quic_static_zstd: "quic", [("distributed.compression", "zstd")];
    /// With task counts chosen at run time, load info crosses the coordinator channel; compression overridden: none.
    quic_dynamic_none: "quic", [
        ("distributed.dynamic_task_count", "true"),
        ("transport.compression", "none")
    ];
    /// Task counts chosen at run time; compression overridden: LZ4.
    quic_dynamic_lz4: "quic", [
        ("distributed.dynamic_task_count", "true"),
        ("distributed.compression", "none"),
        ("transport.compression", "lz4")
    ];
    /// TCP, with what it decides itself: nothing is compressed unless the link is slow.
    tcp_static_auto: "tcp", [("transport.compression", "auto")];
    /// TCP, task counts chosen at run time.
    tcp_dynamic_lz4: "tcp", [("distributed.dynamic_task_count", "true")];
    /// TCP, task counts chosen at run time, Zstandard.
    tcp_dynamic_zstd: "tcp", [
        ("distributed.dynamic_task_count", "true"),
        ("transport.compression", "zstd")
    ];
    /// Each process chooses, and chooses QUIC.
    auto_dynamic: "auto", [
        ("distributed.dynamic_task_count", "true"),
        ("transport.compression", "auto")
    ];
    /// Task counts chosen at run time; compression overridden: Zstandard.
    quic_dynamic_zstd: "quic", [
        ("distributed.dynamic_task_count", "true"),
        ("transport.compression", "zstd")
    ];
}

/// Both options take effect on the wire: LZ4 sends less than no compression, Zstandard less than LZ4, and the
/// transport's option overrides the engine's.
#[test]
fn compression_shrinks_what_crosses_the_wire() {
    run(async {
        let cluster = Cluster::start().await;
        let session = cluster.session().await;
        let mut sizes = vec![];
        for (engine, transport) in [
            ("none", "inherit"),
            ("lz4", "inherit"),
            ("zstd", "inherit"),
            ("zstd", "none"),
            ("none", "lz4"),
            ("none", "zstd"),
        ] {
            set(&session, "distributed.compression", engine).await;
            set(&session, "transport.compression", transport).await;
            let before = received_bytes(&cluster);
            let sql = "SELECT * FROM lineitem ORDER BY l_orderkey, l_linenumber LIMIT 20000";
            let result = within(sql, SOON, execution::run(&session, sql))
                .await
                .unwrap();
            assert_eq!(result.row_count(), 20_000);
            sizes.push(received_bytes(&cluster) - before);
        }
        for order in sizes.chunks(3) {
            let [none, lz4, zstd] = order else {
                unreachable!()
            };
            assert!(none * 9 > lz4 * 10 && lz4 * 9 > zstd * 10, "{sizes:?}");
        }
    });
}

fn received_bytes(cluster: &Cluster) -> u64 {
    let stats = cluster.transports.stats().into_iter();
    stats.map(|peer| peer.connection.bytes_received).sum()
}
