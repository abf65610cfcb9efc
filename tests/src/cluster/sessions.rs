//! What of a session reaches the workers.

use super::{Kit, Session};
use crate::rig::WORKER_VERSION;
use datafusion::prelude::SessionContext;
use datafusion_distributed::{ChannelResolver, DistributedExt, GetWorkerInfoRequest};
use datafusion_transport_core::TransportResolver;
use http::{HeaderMap, HeaderValue};

const SHUFFLE: &str = "SELECT g, count(*) FROM facts GROUP BY g";

/// A function crosses by its name; the worker's body runs.
pub async fn functions_run_on_the_workers(t: Kit) {
    let cluster = t.cluster().await;
    let session = cluster.session().await;
    let single = Session::single_node().await;
    let got = session
        .rows("SELECT h, count(*) AS n FROM (SELECT kit_next(g) AS h FROM facts) GROUP BY h");
    let expected =
        single.rows("SELECT h, count(*) AS n FROM (SELECT g + 1 AS h FROM facts) GROUP BY h");
    assert_eq!(got.await, expected.await);
}

/// An option of an extension reaches every worker of every stage.
pub async fn config_extensions_travel(t: Kit) {
    let cluster = t.cluster().await;
    let session = cluster.session().await;
    for tag in ["first", "second"] {
        session.set("kit.tag", tag).await;
        cluster.seen.lock().expect("no panic").tags.clear();
        session.rows(SHUFFLE).await;
        let seen = cluster.seen.lock().expect("no panic");
        assert!(
            !seen.tags.is_empty() && seen.tags.iter().all(|seen| seen == tag),
            "{:?}",
            seen.tags
        );
    }
}

/// Headers for the embedding system, repeated and of any bytes (dfd#544).
pub async fn passthrough_headers_travel(t: Kit) {
    let cluster = t.cluster().await;
    let mut headers = HeaderMap::new();
    let not_ascii = HeaderValue::from_bytes(b"gr\xc3\xbc\xc3\x9fe").expect("a value");
    headers.append("x-tenant", not_ascii.clone());
    headers.append("x-tenant", HeaderValue::from_static("second"));
    let builder = cluster
        .builder()
        .with_distributed_passthrough_headers(headers);
    let session = cluster.session_of(builder.expect("no reserved name")).await;
    session.rows(SHUFFLE).await;
    let seen = cluster.seen.lock().expect("no panic");
    assert!(!seen.headers.is_empty());
    for headers in &seen.headers {
        let values: Vec<_> = headers.get_all("x-tenant").into_iter().collect();
        assert!(
            values == [&not_ascii, &HeaderValue::from_static("second")],
            "{values:?}"
        );
    }
}

/// Each worker says its version, before and after queries (dfd#380, #511).
pub async fn workers_tell_their_version(t: Kit) {
    let cluster = t.cluster().await;
    let resolver = TransportResolver::new(cluster.transports.clone());
    for round in 0..2 {
        for worker in &cluster.workers {
            let channel = resolver.get_worker_client_for_url(worker.url()).await;
            let mut channel = channel.expect("a channel");
            let info = channel.get_worker_info(GetWorkerInfoRequest {}).await;
            assert_eq!(info.expect("an answer").version, WORKER_VERSION);
        }
        if round == 0 {
            cluster.session().await.rows(SHUFFLE).await;
        }
    }
}

/// Queries of several sessions share workers and connections, and nothing else.
pub async fn several_queries_run_at_once(t: Kit) {
    let cluster = t.cluster().await;
    let single = Session::single_node().await;
    let sql = |i: usize| {
        format!(
            "SELECT g, sum(k + {i}) FROM facts WHERE k % {} = 0 GROUP BY g",
            i + 1
        )
    };
    let mut queries = vec![];
    for i in 0..6 {
        let session = cluster.session().await;
        let context: SessionContext = session.context.clone();
        let progress = session.progress.clone();
        queries.push(tokio::spawn(async move {
            Session { context, progress }.rows(&sql(i)).await
        }));
    }
    for (i, rows) in queries.into_iter().enumerate() {
        assert_eq!(
            rows.await.expect("no panic"),
            single.rows(&sql(i)).await,
            "query {i}"
        );
    }
}
