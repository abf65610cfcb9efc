//! Queries that fail, or are given up.

use super::{Cluster, Kit, Session};
use crate::wait::{SOON, within};
use datafusion::common::DataFusionError;
use futures::StreamExt;

async fn fails(cluster: &Cluster, function: &str) -> DataFusionError {
    let session = cluster.session().await;
    let sql = format!("SELECT h, count(*) FROM (SELECT {function}(g) AS h FROM facts) GROUP BY h");
    let outcome = within("an error", SOON, session.query(&sql)).await;
    let err = outcome.map(|_| ()).expect_err("it must fail");
    // And the next one works.
    session
        .rows("SELECT g, count(*) FROM facts GROUP BY g")
        .await;
    err
}

/// Through two stages, as the variant it was.
pub async fn an_error_of_a_worker_is_the_querys_error(t: Kit) {
    let cluster = t.cluster().await;
    let err = fails(&cluster, "kit_fails").await;
    let same = matches!(err.find_root(), DataFusionError::Execution(text) if text.contains("it failed on purpose"));
    assert!(same, "{err:?}");
}

/// A panic below a shuffle is an error with its message, and never an end that looks clean (paradedb#5848).
pub async fn a_panic_of_a_worker_is_the_querys_error(t: Kit) {
    let cluster = t.cluster().await;
    let err = fails(&cluster, "kit_panics").await.to_string();
    assert!(err.contains("it broke on purpose"), "{err}");
}

/// A query whose stream is dropped in mid-data is gone everywhere within seconds, by both planners (dfd#320, doris#39223).
pub async fn a_query_dropped_half_way_leaves_nothing(t: Kit) {
    let cluster = t.cluster().await;
    for dynamic in ["false", "true"] {
        let session: Session = cluster.session().await;
        session.set("distributed.dynamic_task_count", dynamic).await;
        let sql = "SELECT a.k, b.k FROM facts a JOIN facts b ON a.g = b.g";
        let query = session.context.sql(sql).await.expect("valid SQL");
        let mut stream = query.execute_stream().await.expect("a stream");
        let first = within("the first rows", SOON, stream.next()).await;
        first.expect("rows").expect("rows");
        drop(stream);
        cluster.idle().await;
    }
}
