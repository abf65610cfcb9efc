//! [`Suspendable`]: an I/O runtime that can be stopped, so that a peer falls silent while its connections stay open.

use datafusion_transport_core::IoRuntime;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// One thread that drives whatever runs here.
pub struct Suspendable {
    runtime: Option<Runtime>,
    io: IoRuntime,
}

/// The thread does nothing as long as this lives.
pub struct Suspended(#[allow(dead_code)] mpsc::Sender<()>);

/// In case a test forgets it.
const LONGEST: Duration = Duration::from_secs(60);

impl Suspendable {
    /// Starts the thread.
    pub fn start() -> Self {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all();
        // A worker's plans may run here too.
        let runtime = builder
            .thread_stack_size(16 << 20)
            .build()
            .expect("a thread");
        let io = IoRuntime::from_handle(runtime.handle().clone());
        Self {
            runtime: Some(runtime),
            io,
        }
    }

    /// To run I/O on.
    pub fn runtime(&self) -> &IoRuntime {
        &self.io
    }

    /// Stops the thread; returns once it stands.
    pub fn suspend(&self) -> Suspended {
        let (keep, kept) = mpsc::channel();
        let (standing, stands) = mpsc::channel();
        self.io.handle().spawn(async move {
            let _ = standing.send(());
            let _ = kept.recv_timeout(LONGEST);
        });
        stands.recv_timeout(LONGEST).expect("the thread runs");
        Suspended(keep)
    }
}

impl Drop for Suspendable {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
