//! The worker program in a process of its own, which a test may kill.
//!
//! The child is this test's executable again. A test file that uses it needs the test that becomes the worker:
//!
//! ```ignore
//! #[test]
//! #[ignore = "is the worker that other tests start"]
//! fn worker_process() {
//!     common::process::become_worker();
//! }
//! ```

use clap::Parser;
use datafusion_transport_examples::program;
use datafusion_transport_examples::worker::{self, WorkerArgs};
use datafusion_transport_tests::eventually;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use url::Url;

use super::{Carrier, SOON};

/// The child's arguments, one per line.
const ARGS: &str = "TRANSPORT_TESTS_WORKER_ARGS";

/// Runs the worker program if this process was started for that.
pub fn become_worker() {
    let Ok(args) = std::env::var(ARGS) else {
        return;
    };
    let args = WorkerArgs::parse_from(std::iter::once("worker").chain(args.lines()));
    program::run("info", |queries| worker::run(args, queries));
}

/// A worker process. Dropping it kills it; it ends by itself where this process dies first.
pub struct WorkerProcess {
    /// Where it is.
    pub url: Url,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl WorkerProcess {
    /// Starts a worker on `listen` and waits until it takes queries.
    pub async fn start(carrier: Carrier, identity: &Path, listen: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let args = [
            "--listen".to_owned(),
            listen.to_string(),
            format!("--transports={}", carrier.served()),
            "--stop-with-stdin".to_owned(),
            format!("--dev-tls={}", identity.display()),
            format!("--ready-file={}", ready.display()),
        ];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["worker_process", "--exact", "--ignored", "--nocapture"])
            .env(ARGS, args.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(vec![]));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let sink = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sink.lock().unwrap().push(line);
            }
        });
        let mut process = Self {
            url: "http://unknown".parse().unwrap(),
            child,
            log,
        };
        let mut url = String::new();
        eventually("a worker process is ready", SOON, || {
            let status = process.child.try_wait().unwrap();
            assert!(status.is_none(), "it ended: {}", process.log());
            url = std::fs::read_to_string(&ready).unwrap_or_default();
            url.ends_with('\n')
        })
        .await;
        process.url = url.trim().parse().unwrap();
        process
    }

    /// Ends the process as a crash would: nobody is told.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
