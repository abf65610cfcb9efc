//! What the programs have in common: runtime, log, signals, errors, exit codes.

use std::{
    fmt,
    future::Future,
    io::{self, Write},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Parser;
use datafusion_transport_core::TransportError;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinSet,
};
use tracing_subscriber::EnvFilter;

use crate::{
    output,
    worker::{self, WorkerArgs},
};

/// The query or the comparison failed.
pub const EXIT_FAILED: u8 = 1;
/// The command line asks for something impossible.
pub const EXIT_USAGE: u8 = 2;
/// Ended by ctrl-c or SIGTERM before everything was done.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Stack per thread. Planning is deeply recursive, and unoptimised builds use large frames.
const THREAD_STACK_BYTES: usize = 16 * 1024 * 1024;

/// An error in how a program was called, as opposed to one in what it then did.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The signal that ended the work.
#[derive(Debug)]
struct Interrupted(&'static str);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted by {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// An error that makes the program end with [`EXIT_INTERRUPTED`].
pub fn interrupted(signal: &'static str) -> anyhow::Error {
    anyhow::Error::new(Interrupted(signal))
}

/// An error that makes the program end with [`EXIT_USAGE`].
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(UsageError(message.into()))
}

/// What a transport refuses while it is set up was on the command line.
pub(crate) fn bad_option(error: TransportError) -> anyhow::Error {
    usage(error.to_string())
}

/// Runs a program: its log goes to standard error, and so does its error, which also becomes the
/// exit code.
///
/// `work` runs on a runtime of its own on this thread, and gets the handle of the one that is for
/// queries ([`spawn_on`]). Operators may compute for minutes without a pause, and then whatever
/// else is on their runtime waits: signals, deadlines and child processes must not.
pub fn run<W>(log_filter: &str, work: impl FnOnce(Handle) -> W) -> ExitCode
where
    W: Future<Output = Result<()>>,
{
    match start_log(log_filter).and_then(|()| block_on(work)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has what it wanted.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    match error {
        error if error.is::<UsageError>() => EXIT_USAGE,
        error if error.is::<Interrupted>() => EXIT_INTERRUPTED,
        _ => EXIT_FAILED,
    }
}

/// Runs `work` on the runtime that `queries` belongs to. Dropping the future stops the work at its
/// next pause.
///
/// # Errors
/// Those of `work`.
pub async fn spawn_on<T: Send + 'static>(
    queries: &Handle,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let mut task = JoinSet::new();
    task.spawn_on(work, queries);
    let ended = task.join_next().await.context("nothing was run")?;
    ended.context("an internal error, please report it")?
}

/// What asks the process to end: ctrl-c, and SIGTERM where there is such a thing. From its creation
/// on no such signal is lost, and none ends the process by itself.
pub struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

impl Signals {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the operating system refuses.
    #[cfg(unix)]
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// Never here.
    #[cfg(not(unix))]
    pub fn listen() -> Result<Self> {
        Ok(Self {})
    }

    /// Resolves when the process is asked to end. Cancel safe.
    pub async fn termination(&mut self) -> &'static str {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => "ctrl-c",
            _ = self.terminate.recv() => "SIGTERM",
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
            "ctrl-c"
        }
    }

    /// Runs `work` until it ends, or until the process is asked to end, which drops `work` and is
    /// an error.
    ///
    /// # Errors
    /// Those of `work`, or that it was interrupted.
    pub async fn interruptible<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            result = work => result,
            signal = self.termination() => Err(interrupted(signal)),
        }
    }
}

fn start_log(filter: &str) -> Result<()> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        usage(format!(
            "--log {filter}: {error}; try info or warn,quinn=debug"
        ))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would report a closed standard error to standard error, and panic.
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))
}

fn block_on<W>(work: impl FnOnce(Handle) -> W) -> Result<()>
where
    W: Future<Output = Result<()>>,
{
    let queries = Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(THREAD_STACK_BYTES)
        .build()
        .context("cannot start the runtime for queries")?;
    let control = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let work = work(queries.handle().clone());
    let (_queries, control) = (Unwaited(Some(queries)), Unwaited(Some(control)));
    control
        .0
        .as_ref()
        .map_or(Ok(()), |control| control.block_on(work))
}

/// A runtime whose end nobody waits for: neither a blocking read of standard input nor a query that
/// makes no pause holds up the end of the program.
struct Unwaited(Option<Runtime>);

impl Drop for Unwaited {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Prints an error with its causes, leaving out those that the text before already quotes.
fn report(error: &anyhow::Error) {
    let mut stderr = io::stderr().lock();
    let lines = |text: String| text.replace("\ncaused by\n", "\n  because: ");
    let mut said = lines(error.to_string());
    let _ = writeln!(stderr, "error: {said}");
    for cause in error.chain().skip(1) {
        let text = lines(cause.to_string());
        if !said.contains(&text) {
            let _ = writeln!(stderr, "  because: {text}");
            said.push_str(&text);
        }
    }
}

/// The hidden first argument with which a program runs a worker instead of itself.
pub const WORKER_COMMAND: &str = "__worker";

/// If this process was started by a [`crate::cluster::Cluster`] to be one of its workers, runs the
/// worker and returns its exit code.
///
/// That way a program that starts workers needs no other executable beside it.
pub fn worker_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    let program = args.next()?;
    if args.next()? != WORKER_COMMAND {
        return None;
    }
    let args = WorkerArgs::parse_from(std::iter::once(program).chain(args));
    Some(run(&args.log.clone(), |queries| worker::run(args, queries)))
}
