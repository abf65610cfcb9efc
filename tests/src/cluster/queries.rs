//! Queries of every shape, by both planners: the rows of a single node, whatever carries them.

use super::{Kit, Session, compare};

/// Partial aggregates are shuffled to where they are finished, over many groups and over few (dfd#228, #240).
pub async fn aggregations(t: Kit) {
    compare(
        &t,
        &[],
        &[
            "SELECT g, count(*), sum(k), min(name), max(v) FROM facts GROUP BY g",
            "SELECT k % 5000 AS h, count(*), avg(v) FROM facts GROUP BY h",
            "SELECT count(DISTINCT g), count(DISTINCT name) FROM facts",
        ],
    )
    .await;
}

const JOINS: [&str; 4] = [
    "SELECT label, count(*), sum(v) FROM facts JOIN dims ON facts.g = dims.g GROUP BY label",
    "SELECT facts.g, count(label) FROM facts LEFT JOIN dims ON facts.g = dims.g GROUP BY facts.g",
    "SELECT dims.g, count(k) FROM facts RIGHT JOIN dims ON facts.g = dims.g GROUP BY dims.g",
    "SELECT label, count(*) FROM dims WHERE g IN (SELECT g FROM facts WHERE k > 39000) GROUP BY label",
];

/// A small side is sent to every task.
pub async fn broadcast_joins(t: Kit) {
    compare(&t, &[("distributed.broadcast_joins", "true")], &JOINS).await;
}

/// A small side is collected.
pub async fn collect_joins(t: Kit) {
    // The first one has a shuffle below its join.
    let mut queries = vec![
        "SELECT label, n FROM (SELECT g, count(*) AS n FROM facts GROUP BY g) a JOIN dims ON a.g = dims.g",
    ];
    queries.extend(JOINS);
    compare(&t, &[("distributed.broadcast_joins", "false")], &queries).await;
}

/// Both sides are shuffled (dfd#419).
pub async fn partitioned_joins(t: Kit) {
    let options = [
        (
            "datafusion.optimizer.hash_join_single_partition_threshold",
            "0",
        ),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            "0",
        ),
    ];
    compare(
        &t,
        &options,
        &[
            JOINS[0],
            JOINS[1],
            "SELECT a.g, count(*) FROM facts a JOIN facts b ON a.k = b.k + 1 GROUP BY a.g",
        ],
    )
    .await;
}

/// Children of a union run on tasks of their own.
pub async fn unions(t: Kit) {
    compare(&t, &[], &[
        "SELECT g, count(*) FROM (SELECT g, k FROM facts UNION ALL SELECT g, g + 1 AS k FROM dims) GROUP BY g",
        "SELECT g FROM facts UNION SELECT g FROM dims",
    ])
    .await;
}

/// Order is kept where partitions are merged.
pub async fn sorts_and_windows(t: Kit) {
    compare(&t, &[], &[
        "SELECT g, k, row_number() OVER (PARTITION BY g ORDER BY k) AS n FROM facts WHERE k % 20 = 3 ORDER BY g, k",
        "SELECT g, sum(v) AS s FROM facts GROUP BY g ORDER BY s DESC, g",
    ])
    .await;
    let cluster = t.cluster().await;
    let (session, single) = (cluster.session().await, Session::single_node().await);
    let sql = "SELECT k, name FROM facts WHERE k % 20 = 3 ORDER BY name DESC";
    assert_eq!(session.text(sql).await, single.text(sql).await);
}

/// A query that ends before its producers do (dfd#412, #502).
pub async fn limits(t: Kit) {
    compare(
        &t,
        &[],
        &[
            "SELECT g, count(*) AS n FROM facts GROUP BY g ORDER BY g LIMIT 3",
            "SELECT k FROM facts ORDER BY k LIMIT 5 OFFSET 100",
            "SELECT count(*) FROM (SELECT g, count(*) FROM facts GROUP BY g LIMIT 7)",
            "SELECT count(*) FROM (SELECT k FROM facts WHERE v > 1 LIMIT 9)",
        ],
    )
    .await;
}

/// Batches with rows and no columns cross the network (comet#4445).
pub async fn zero_columns(t: Kit) {
    compare(
        &t,
        &[],
        &[
            "SELECT count(*) FROM facts WHERE k % 3 = 0",
            "SELECT count(*) FROM (SELECT g FROM facts UNION ALL SELECT g FROM dims)",
            "SELECT count(*) FROM dims a CROSS JOIN dims b",
        ],
    )
    .await;
}

/// A join whose build side is empty, or whose result suffices early, drops its probe side unread (dfd#482, #465, #477).
pub async fn early_dropped_probe_sides(t: Kit) {
    let partitioned = [
        (
            "datafusion.optimizer.hash_join_single_partition_threshold",
            "0",
        ),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            "0",
        ),
    ];
    for options in [&[][..], &partitioned[..]] {
        compare(&t, options, &[
            "SELECT a.g, count(*) FROM facts a JOIN facts b ON a.g = b.g WHERE a.k < 5 AND b.k < 500 GROUP BY a.g",
            "SELECT count(*) FROM facts a JOIN (SELECT g FROM dims WHERE label = 'none') b ON a.g = b.g",
            "SELECT count(*) FROM (SELECT a.k FROM facts a JOIN facts b ON a.g = b.g LIMIT 3)",
        ])
        .await;
    }
}

/// The session's compression changes nothing but bytes (dfd#301).
pub async fn every_compression(t: Kit) {
    for value in ["none", "lz4", "zstd"] {
        compare(
            &t,
            &[("distributed.compression", value)],
            &["SELECT g, count(*), min(name) FROM facts GROUP BY g"],
        )
        .await;
    }
}
