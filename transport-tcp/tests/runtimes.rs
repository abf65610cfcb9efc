//! The drivers run on the I/O runtime, whatever the caller's threads do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{drain, send, url};
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{BiStream, Connector, Listener, StreamClass, read};
use datafusion_transport_tcp::{TcpConfig, TcpConnector, TcpListener};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const IDLE_TIMEOUT: Duration = Duration::from_millis(500);

fn config() -> TcpConfig {
    TcpConfig {
        keep_alive_interval: Duration::from_millis(100),
        idle_timeout: IDLE_TIMEOUT,
        ..TcpConfig::default()
    }
}

fn io_runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Echoes one stream per connection, on the I/O runtime.
async fn serve(mut listener: TcpListener) {
    while let Some(connection) = listener.accept().await {
        while let Ok(BiStream {
            send: mut tx,
            mut recv,
        }) = connection.accept().await
        {
            while let Some(chunk) = read(recv.as_mut(), usize::MAX).await.unwrap() {
                send(tx.as_mut(), chunk).await.unwrap();
            }
            tx.finish();
        }
    }
}

/// Connects, blocks the calling thread for longer than the idle timeout, and then uses the connection.
async fn connect_block_and_use(connector: TcpConnector, url: url::Url) {
    let connection = connector.connect(&url).await.unwrap();
    std::thread::sleep(2 * IDLE_TIMEOUT);
    assert!(
        connection.close_reason().is_none(),
        "{:?}",
        connection.close_reason()
    );
    let mut stream = connection.open(StreamClass::Bulk).await.unwrap();
    send(stream.send.as_mut(), &b"hello"[..]).await.unwrap();
    stream.send.finish();
    assert_eq!(5, drain(stream.recv.as_mut()).await.unwrap());
}

/// An I/O runtime that serves, and what a client needs to connect to it.
fn cluster() -> (Runtime, TcpConnector, url::Url) {
    let io = io_runtime();
    let drivers = IoRuntime::from_handle(io.handle().clone());
    let addr = "127.0.0.1:0".parse().unwrap();
    let listener = TcpListener::bind(addr, config(), None, &drivers).unwrap();
    let url = url("127.0.0.1", listener.local_addr().unwrap());
    io.spawn(serve(listener));
    let connector = TcpConnector::new(config(), None, &drivers).unwrap();
    (io, connector, url)
}

#[test]
fn a_blocked_current_thread_runtime_keeps_its_connections() {
    let (_io, connector, url) = cluster();
    // Without I/O or time of its own.
    let caller = Builder::new_current_thread().build().unwrap();
    caller.block_on(connect_block_and_use(connector, url));
}

#[test]
fn a_caller_without_a_runtime_can_connect() {
    let (_io, connector, url) = cluster();
    futures_block_on(connect_block_and_use(connector, url));
}

#[test]
fn a_dropped_dial_leaves_nothing_and_a_lost_runtime_is_an_error() {
    let (io, connector, url) = cluster();
    drop(connector.connect(&url));
    futures_block_on(async {
        let mut dial = connector.connect(&url);
        // Polled once, so that it has begun.
        std::future::poll_fn(|cx| {
            let _ = dial.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
    });
    io.shutdown_timeout(Duration::from_secs(5));
    let err = futures_block_on(connector.connect(&url)).expect_err("connected");
    assert!(err.detail().contains("runtime"), "{err}");
}

/// Waits for a future on a thread that knows no runtime.
fn futures_block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park_timeout(Duration::from_secs(1)),
        }
    }
}
