//! [`IoRuntime`]: threads that do I/O and nothing else.
//!
//! DataFusion operators compute for long stretches without yielding, and a catalog callback may block its thread
//! outright. A connection's driver on such a thread stops acknowledging, and the peer takes the connection for dead; a
//! driver parked in a blocked thread's LIFO slot never wakes at all, because no other thread may take it from there.
//! So the drivers run here, and queries elsewhere.

use crate::error::{ErrorKind, TransportError};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// The shared runtime, kept only as long as somebody uses it.
static SHARED: Mutex<Weak<Owned>> = Mutex::new(Weak::new());

/// One thread drives about 1 GB/s of QUIC or several GB/s of TCP; a second one keeps accepts and control messages going meanwhile.
const SHARED_THREADS: usize = 2;

/// A handle to a runtime for connection drivers. Cheap to clone; when the last clone of an owned runtime is dropped, its
/// threads end in the background and what runs there is dropped.
#[derive(Clone, Debug)]
pub struct IoRuntime {
    handle: Handle,
    _owned: Option<Arc<Owned>>,
}

impl IoRuntime {
    /// The runtime that all transports of the process share by default, started at first use.
    ///
    /// # Errors
    /// `Config` when the operating system gives no threads.
    pub fn shared() -> Result<Self, TransportError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owned) = shared.upgrade() {
            return Ok(Self::from_owned(owned));
        }
        let io = Self::with_threads(SHARED_THREADS)?;
        *shared = io._owned.as_ref().map(Arc::downgrade).unwrap_or_default();
        Ok(io)
    }

    /// A runtime of its own with this many threads, at least one.
    ///
    /// # Errors
    /// `Config` when the operating system gives no threads.
    pub fn with_threads(threads: usize) -> Result<Self, TransportError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name("transport-io")
            .enable_all()
            .build()
            .map_err(|err| {
                let detail = format!("cannot start {threads} I/O threads: {err}");
                TransportError::new(ErrorKind::Config, "start I/O runtime", "local", detail)
            })?;
        Ok(Self::from_owned(Arc::new(Owned(Some(runtime)))))
    }

    /// Uses a runtime the caller owns: for programs whose query threads never compute or block for long.
    pub fn from_handle(handle: Handle) -> Self {
        Self {
            handle,
            _owned: None,
        }
    }

    fn from_owned(owned: Arc<Owned>) -> Self {
        let runtime = owned.0.as_ref();
        Self {
            // `Owned` is emptied only when its last handle is dropped, and `owned` is one.
            handle: runtime.map_or_else(Handle::current, |runtime| runtime.handle().clone()),
            _owned: Some(owned),
        }
    }

    /// The tokio handle, to spawn drivers on.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `future` here and blocks the calling thread until it is done: for synchronous callbacks such as
    /// `WorkerResolver::get_urls` or a catalog's. Works from any thread: without a runtime, inside a current-thread
    /// runtime or `LocalSet`, on a worker of a multi-thread runtime. `future` must not wait for work that only the
    /// blocked thread can do, for example a task of the caller's current-thread runtime.
    ///
    /// # Errors
    /// `Timeout` after `limit`, and the future is dropped; `Config` if called on a thread of this very runtime, which
    /// would deadlock; `ConnectionLost` if the future panicked.
    pub fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        limit: Duration,
    ) -> Result<T, TransportError> {
        let error = |kind, detail: String| TransportError::new(kind, "wait for", "future", detail);
        if Handle::try_current().is_ok_and(|current| current.id() == self.handle.id()) {
            let detail =
                "wait() was called on an I/O thread; it would block the driver it waits for";
            return Err(error(ErrorKind::Config, detail.into()));
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = self.handle.spawn(async move {
            let _ = sender.send(future.await);
        });
        receiver.recv_timeout(limit).map_err(|err| {
            task.abort();
            match err {
                mpsc::RecvTimeoutError::Timeout => {
                    error(ErrorKind::Timeout, format!("no result within {limit:?}"))
                }
                mpsc::RecvTimeoutError::Disconnected => {
                    error(ErrorKind::ConnectionLost, "the future panicked".into())
                }
            }
        })
    }
}

/// A runtime that may be dropped anywhere: dropping a tokio runtime inside another one would panic.
#[derive(Debug)]
struct Owned(Option<Runtime>);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    async fn hop() -> u32 {
        tokio::task::yield_now().await;
        7
    }

    #[test]
    fn wait_works_without_a_runtime() {
        let io = IoRuntime::with_threads(1).unwrap();
        assert_eq!(io.wait(hop(), LIMIT).unwrap(), 7);
    }

    #[test]
    fn wait_works_inside_a_current_thread_runtime_and_a_local_set() {
        let io = IoRuntime::with_threads(1).unwrap();
        let rt = Builder::new_current_thread().build().unwrap();
        assert_eq!(rt.block_on(async { io.wait(hop(), LIMIT).unwrap() }), 7);
        let local = tokio::task::LocalSet::new();
        assert_eq!(
            local.block_on(&rt, async { io.wait(hop(), LIMIT).unwrap() }),
            7
        );
    }

    #[test]
    fn wait_works_on_every_worker_thread_at_once() {
        for threads in [1, 2, 4, 8] {
            let io = IoRuntime::with_threads(1).unwrap();
            let rt = Builder::new_multi_thread()
                .worker_threads(threads)
                .build()
                .unwrap();
            rt.block_on(async {
                let tasks = (0..threads * 2).map(|_| {
                    let io = io.clone();
                    tokio::spawn(async move { io.wait(hop(), LIMIT).unwrap() })
                });
                for task in tasks.collect::<Vec<_>>() {
                    assert_eq!(task.await.unwrap(), 7);
                }
            });
        }
    }

    #[test]
    fn wait_on_its_own_threads_is_an_error_instead_of_a_deadlock() {
        let io = IoRuntime::with_threads(1).unwrap();
        let inner = io.clone();
        let outcome = io.wait(
            async move { inner.wait(hop(), LIMIT).map_err(|e| e.kind()) },
            LIMIT,
        );
        assert_eq!(outcome.unwrap(), Err(ErrorKind::Config));
    }

    #[test]
    fn wait_ends_at_its_limit_and_drops_the_future() {
        struct Flag(Arc<()>);
        let io = IoRuntime::with_threads(1).unwrap();
        let alive = Arc::new(());
        let flag = Flag(Arc::clone(&alive));
        let never = async move {
            let _flag = flag.0;
            std::future::pending::<()>().await
        };
        let err = io.wait(never, Duration::from_millis(10)).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Timeout);
        let start = std::time::Instant::now();
        while Arc::strong_count(&alive) > 1 {
            assert!(start.elapsed() < LIMIT, "the future was not dropped");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_panicking_future_is_an_error() {
        let io = IoRuntime::with_threads(1).unwrap();
        #[allow(clippy::panic)]
        let err = io.wait(async { panic!("on purpose") }, LIMIT);
        assert_eq!(err.unwrap_err().kind(), ErrorKind::ConnectionLost);
    }

    #[test]
    fn the_shared_runtime_is_shared() {
        let one = IoRuntime::shared().unwrap();
        let two = IoRuntime::shared().unwrap();
        assert_eq!(one.handle().id(), two.handle().id());
    }

    #[tokio::test]
    async fn an_owned_runtime_may_be_dropped_inside_another() {
        drop(IoRuntime::with_threads(1).unwrap());
    }
}
