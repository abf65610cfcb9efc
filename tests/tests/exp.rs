#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]
mod common;
use common::*;
#[test]
fn exp() {
    run(async {
        let cluster = Cluster::start().await;
        let session = cluster.session().await;
        for kind in ["quic", "grpc"] {
            set(&session, "transport.kind", kind).await;
            for sql in [
                "EXPLAIN ANALYZE SELECT l_suppkey, count(*) AS n FROM lineitem GROUP BY l_suppkey ORDER BY l_suppkey",
                "EXPLAIN ANALYZE VERBOSE SELECT l_suppkey, count(*) AS n FROM lineitem GROUP BY l_suppkey LIMIT 1",
                "EXPLAIN SELECT a.l_orderkey, b.l_partkey, a.l_comment from lineitem a join lineitem b on a.l_linenumber = b.l_linenumber",
                "EXPLAIN SELECT l.*, o.o_comment from lineitem l join orders o on l_orderkey = o_orderkey",
                "EXPLAIN SELECT * from lineitem where 1 / (l_linenumber - 8) = 0",
                "EXPLAIN SELECT l_suppkey, count(*) from lineitem where 1 / (l_linenumber - 8) = 0 group by l_suppkey",
            ] {
                println!("{kind} {sql}\n{}", rows(&session, sql).await);
            }
        }
    });
}
