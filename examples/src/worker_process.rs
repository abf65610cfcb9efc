//! A `worker` in a process of its own.

use std::{
    collections::VecDeque,
    ffi::OsString,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};
use url::Url;

use crate::{traffic::Peer, worker::READY, workers::display_url};

/// How long a worker may take until it is ready; unoptimised builds on busy machines are slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a worker may take to end beyond its own deadline before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How many of its last lines of log are quoted when a worker dies.
const QUOTED_LINES: usize = 15;

/// How to start a worker.
#[derive(Debug, Clone)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the worker's own.
    pub prefix: Vec<OsString>,
    /// The worker's own arguments, `--listen` among them. `--stats` and `--stop-with-stdin` are added.
    pub args: Vec<OsString>,
    /// How long a worker may take to end (its `--shutdown-deadline`).
    pub shutdown_deadline: Duration,
}

/// A running worker process. Dropping it kills it; should this process die, it ends by itself.
pub struct WorkerProcess {
    child: Child,
    /// Closing it asks the worker to stop.
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    url: Url,
    log: Log,
    shutdown_deadline: Duration,
}

impl WorkerProcess {
    /// Starts a worker and waits until it takes queries.
    ///
    /// # Errors
    /// When it does not start, with the end of its log.
    pub async fn start(command: &WorkerCommand) -> Result<Self> {
        let deadline = format!("{}ms", command.shutdown_deadline.as_millis());
        let mut child = Command::new(&command.program)
            .args(&command.prefix)
            .args(["--stats", "--stop-with-stdin"])
            .args(["--shutdown-deadline", &deadline])
            .args(&command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", command.program.display()))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no pipe to the worker")?;
        let stderr = child.stderr.take().context("no pipe to the worker")?;
        let mut stdout = BufReader::new(stdout).lines();
        let log = Log::follow(stderr);
        match timeout(START_TIMEOUT, ready(&mut stdout)).await {
            Ok(Ok(url)) => {
                let shutdown_deadline = command.shutdown_deadline;
                Ok(Self {
                    child,
                    stdin,
                    stdout,
                    url,
                    log,
                    shutdown_deadline,
                })
            }
            Ok(Err(error)) => {
                let _ = child.kill().await;
                Err(error.context(log.quote_all("a worker did not start").await))
            }
            Err(_) => {
                let _ = child.kill().await;
                let what = format!("a worker was not ready within {START_TIMEOUT:?}");
                Err(anyhow!(log.quote_all(&what).await))
            }
        }
    }

    /// Where the worker takes queries.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The operating system's number for the process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// If the process has ended although nobody asked it to: how, and the end of its log.
    pub fn death(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(self.log.quote(&format!(
            "the worker at {} ended: {status}",
            display_url(&self.url)
        )))
    }

    /// Kills the process at once, as a crash would.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Asks the worker to stop, waits for it, and returns what it did to its peers.
    ///
    /// # Errors
    /// When it died before, or had to be killed.
    pub async fn stop(mut self) -> Result<Vec<Peer>> {
        drop(self.stdin.take());
        let ended = timeout(self.shutdown_deadline + STOP_GRACE, async {
            let mut peers = Vec::new();
            while let Some(line) = self.stdout.next_line().await? {
                if let Ok(report) = serde_json::from_str::<Value>(&line) {
                    let reported = report.get("peers").and_then(Value::as_array);
                    peers.extend(reported.into_iter().flatten().map(Peer::from_json));
                }
            }
            anyhow::Ok((peers, self.child.wait().await?))
        });
        match ended.await {
            Ok(Ok((peers, status))) if status.success() => Ok(peers),
            Ok(Ok((_, status))) => {
                let what = format!("the worker at {} ended: {status}", display_url(&self.url));
                bail!(self.log.quote_all(&what).await)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let _ = self.child.kill().await;
                let what = format!(
                    "the worker at {} did not stop and was killed",
                    display_url(&self.url)
                );
                bail!(self.log.quote_all(&what).await)
            }
        }
    }
}

async fn ready(stdout: &mut Lines<BufReader<ChildStdout>>) -> Result<Url> {
    while let Some(line) = stdout.next_line().await? {
        if let Some(url) = line.strip_prefix(READY) {
            return Ok(Url::parse(url)?);
        }
    }
    bail!("it ended before it was ready")
}

/// The end of a process's log.
struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl Log {
    fn follow(stderr: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let reader = tokio::spawn({
            let lines = Arc::clone(&lines);
            async move {
                let mut stderr = BufReader::new(stderr).lines();
                while let Ok(Some(line)) = stderr.next_line().await {
                    tracing::debug!(target: "worker", "{line}");
                    let Ok(mut lines) = lines.lock() else { return };
                    if lines.len() == QUOTED_LINES {
                        lines.pop_front();
                    }
                    lines.push_back(line);
                }
            }
        });
        Self { lines, reader }
    }

    /// `what` with the lines known so far.
    fn quote(&self, what: &str) -> String {
        let lines = self
            .lines
            .lock()
            .map(|lines| lines.iter().cloned().collect::<Vec<_>>());
        match lines.unwrap_or_default() {
            lines if lines.is_empty() => format!("{what}; it logged nothing"),
            lines => format!("{what}; the end of its log:\n    {}", lines.join("\n    ")),
        }
    }

    /// `what` with all lines of a process that has ended.
    async fn quote_all(mut self, what: &str) -> String {
        let _ = timeout(STOP_GRACE, &mut self.reader).await;
        self.quote(what)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
