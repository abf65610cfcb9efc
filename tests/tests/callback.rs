//! Callbacks that the engine calls synchronously, and that have to ask somebody over the network: `IoRuntime::wait` gives
//! them the answer on whatever thread they run. (A catalog callback hung an embedding engine.)
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Carrier, Cluster, SOON, query, runtime};
use datafusion::common::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use datafusion_distributed::{ChannelResolver, GetWorkerInfoRequest, WorkerResolver};
use datafusion_transport_core::{IoRuntime, TransportResolver, Transports};
use datafusion_transport_tests::within;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use url::Url;

const SHUFFLE: &str = "SELECT l_suppkey, count(*) FROM lineitem GROUP BY l_suppkey";

/// Knows its workers by asking each who it is, each time, over the transport that the queries use.
struct AskingWorkers {
    transports: Transports,
    urls: Vec<Url>,
    asked: Arc<AtomicUsize>,
    /// Callbacks that block their threads at this moment, and how many there should be before they go on.
    inside: Arc<(Mutex<usize>, Condvar)>,
    together: usize,
}

impl AskingWorkers {
    /// Blocks until as many threads are blocked as there are; gives up soon, since it's luck how the runtime spreads tasks.
    fn gather(&self) {
        let (inside, changed) = &*self.inside;
        let mut count = inside.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let missing = |count: &mut usize| *count < self.together;
        let waited = changed.wait_timeout_while(count, Duration::from_millis(200), missing);
        drop(waited);
    }
}

impl WorkerResolver for AskingWorkers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        self.gather();
        let resolver = TransportResolver::new(self.transports.clone());
        let (urls, asked) = (self.urls.clone(), Arc::clone(&self.asked));
        let ask = async move {
            for url in &urls {
                let mut channel = resolver.get_worker_client_for_url(url).await?;
                let info = channel.get_worker_info(GetWorkerInfoRequest {}).await?;
                assert_eq!(info.version, "test");
                asked.fetch_add(1, Ordering::SeqCst);
            }
            Ok(urls)
        };
        let answer = IoRuntime::shared()?.wait(ask, SOON)?;
        *self.inside.0.lock().unwrap() -= 1;
        answer
    }
}

/// Workers on a runtime of their own, and a session whose resolver asks them.
fn cluster_and_session(
    carrier: Carrier,
    together: usize,
) -> (Runtime, Cluster, SessionContext, Arc<AtomicUsize>) {
    let workers = runtime(2);
    let cluster = workers.block_on(Cluster::over(carrier));
    let asked = Arc::new(AtomicUsize::new(0));
    let resolver = AskingWorkers {
        transports: cluster.transports.clone(),
        urls: cluster.urls(),
        asked: Arc::clone(&asked),
        inside: Arc::default(),
        together,
    };
    let session = workers.block_on(common::session(&cluster.transports, resolver));
    (workers, cluster, session, asked)
}

async fn check(session: SessionContext) {
    let result = within("a query", SOON, query(&session, SHUFFLE))
        .await
        .unwrap();
    let rows: usize = result.iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, 100);
}

/// Twice as many queries at once as the coordinator's runtime has threads, each waiting in callbacks.
fn on_threads(carrier: Carrier, threads: usize) {
    let (_workers, _cluster, session, asked) = cluster_and_session(carrier, threads);
    let coordinator = runtime(threads);
    let queries: Vec<_> = (0..2 * threads)
        .map(|_| coordinator.spawn(check(session.clone())))
        .collect();
    coordinator.block_on(async {
        for query in queries {
            query.await.unwrap();
        }
    });
    assert!(asked.load(Ordering::SeqCst) >= 2 * threads * 3);
    coordinator.shutdown_background();
}

/// The only thread that could do anything else is the one that waits.
fn waits_on_one_worker_thread(carrier: Carrier) {
    on_threads(carrier, 1);
}

fn waits_on_two_worker_threads(carrier: Carrier) {
    on_threads(carrier, 2);
}

fn waits_on_four_worker_threads(carrier: Carrier) {
    on_threads(carrier, 4);
}

fn waits_on_eight_worker_threads(carrier: Carrier) {
    on_threads(carrier, 8);
}

/// A runtime that must not be blocked on from inside, and tasks that can't move to another thread.
fn waits_in_a_local_set_of_a_current_thread_runtime(carrier: Carrier) {
    let (_workers, _cluster, session, asked) = cluster_and_session(carrier, 1);
    let coordinator = Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    local.block_on(&coordinator, async {
        tokio::task::spawn_local(check(session)).await.unwrap();
    });
    assert!(asked.load(Ordering::SeqCst) >= 3);
}

over_every_transport!(
    waits_on_one_worker_thread,
    waits_on_two_worker_threads,
    waits_on_four_worker_threads,
    waits_on_eight_worker_threads,
    waits_in_a_local_set_of_a_current_thread_runtime,
);
