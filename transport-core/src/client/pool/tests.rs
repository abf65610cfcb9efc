#![allow(clippy::unwrap_used)]

use super::*;
use crate::connection::Listener;
use crate::memory::MemoryNetwork;
use tokio::runtime::Handle;

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_worker_not_called_for_long_is_forgotten_unless_a_stream_is_open() {
    let network = MemoryNetwork::new();
    let urls = ["http://held:1", "http://idle:1", "http://down:1"];
    let [held, idle, down] = urls.map(|url| url.parse::<Url>().unwrap());
    let mut listeners = [network.listen(&held), network.listen(&idle)];
    let options = PoolOptions {
        idle_timeout: Duration::from_millis(5),
        ..PoolOptions::default()
    };
    let io = IoRuntime::from_handle(Handle::current());
    let pool = Pool::new(
        "memory".into(),
        Arc::new(network),
        io,
        options,
        Arc::default(),
    );
    let lease = pool.acquire(&held, LIMIT).await.unwrap();
    drop(pool.acquire(&idle, LIMIT).await.unwrap());
    assert!(pool.acquire(&down, LIMIT).await.is_err());
    let [_held, _idle] = listeners.each_mut().map(|listener| listener.accept());
    assert_eq!(pool.stats().len(), 3);

    let forgotten = async {
        while pool.stats().len() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, forgotten).await.unwrap();
    assert_eq!(
        pool.stats().first().map(|peer| peer.url.clone()),
        Some(held)
    );
    assert!(lease.is_alive());
}
