//! A transport of a third party: named pipes in a directory. `third-party-transport.md` beside this package's manifest
//! explains it.
//!
//! A worker's directory holds the pipe `bell`. A client makes two pipes there, one for each direction, and writes their
//! name into `bell`. The worker opens them, writes one byte, and from then on they are a byte stream like any other, which
//! the multiplexer of `datafusion-transport-tcp` turns into a connection.

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use datafusion_transport_core::{
    IoRuntime, TransportError,
    connection::{Connection, Connector, Listener},
    error::ErrorKind,
};
use datafusion_transport_tcp::{Multiplexer, TcpConfig};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, Join, join},
    net::unix::pipe::{OpenOptions, Receiver, Sender},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// Where a worker is rung up.
const BELL: &str = "bell";

/// A peer that rang, or was rung up, has this long to open its ends.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// Makes connections to workers at `fifo:///their/directory`.
#[derive(Clone, Debug)]
pub struct FifoConnector {
    multiplexer: Multiplexer,
    io: IoRuntime,
}

impl FifoConnector {
    /// Pipes are driven on `io`.
    ///
    /// # Errors
    /// Kind `Config` for an invalid `config`.
    pub fn new(config: TcpConfig, io: &IoRuntime) -> Result<Self, TransportError> {
        let multiplexer = Multiplexer::new(config, io)?;
        Ok(Self {
            multiplexer,
            io: io.clone(),
        })
    }
}

#[async_trait]
impl Connector for FifoConnector {
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
        let error =
            |kind, detail: String| TransportError::new(kind, "connect", url.as_str(), detail);
        if url.scheme() != "fifo" {
            let detail = "expected a URL such as fifo:///run/worker-1".to_owned();
            return Err(error(ErrorKind::Config, detail));
        }
        let dir = PathBuf::from(url.path());
        let ring = async move { tokio::time::timeout(OPEN_LIMIT, ring(&dir)).await };
        let pipes = AbortOnDropHandle::new(self.io.handle().spawn(ring)).await;
        let pipes = pipes.map_err(|err| error(ErrorKind::Connect, err.to_string()))?;
        let silent = |_| {
            error(
                ErrorKind::Timeout,
                format!("no answer within {OPEN_LIMIT:?}"),
            )
        };
        let refused = |err| {
            let detail = format!("{err}; is the worker serving in that directory?");
            error(ErrorKind::Connect, detail)
        };
        let pipes = pipes.map_err(silent)?.map_err(refused)?;
        self.multiplexer.connect(pipes, url.as_str()).await
    }
}

/// Accepts connections in a directory. Closed or dropped, it removes its bell.
#[derive(Debug)]
pub struct FifoListener {
    dir: PathBuf,
    multiplexer: Multiplexer,
    accepted: mpsc::Receiver<Arc<dyn Connection>>,
    answering: Option<(AbortOnDropHandle<()>, Made)>,
}

impl FifoListener {
    /// Listens in `dir`, which is made where it is missing, for its owner alone.
    ///
    /// # Errors
    /// Kind `Config`: the directory can't be used, or another worker listens there.
    pub fn bind(dir: &Path, config: TcpConfig, io: &IoRuntime) -> Result<Self, TransportError> {
        let multiplexer = Multiplexer::new(config, io)?;
        let _entered = io.handle().enter();
        let bell = hang_bell(dir).map_err(|err| {
            let place = format!("fifo {}", dir.display());
            TransportError::new(ErrorKind::Config, "listen", place, err.to_string())
        })?;
        let (sender, accepted) = mpsc::channel(16);
        let answer = answer(dir.to_owned(), bell, multiplexer.clone(), sender);
        let answer = AbortOnDropHandle::new(io.handle().spawn(answer));
        Ok(Self {
            dir: dir.to_owned(),
            multiplexer,
            accepted,
            answering: Some((answer, Made(dir.join(BELL)))),
        })
    }
}

#[async_trait]
impl Listener for FifoListener {
    async fn accept(&mut self) -> Option<Arc<dyn Connection>> {
        self.accepted.recv().await
    }

    fn describe(&self) -> String {
        format!("fifo {}", self.dir.display())
    }

    async fn close(&mut self) {
        if let Some((answering, _bell)) = self.answering.take() {
            answering.abort();
            let _ = answering.await;
        }
        self.accepted.close();
        while self.accepted.try_recv().is_ok() {}
        self.multiplexer.close("the worker is shutting down").await;
    }
}

type Pipes = Join<Receiver, Closing>;

/// The client's side.
async fn ring(dir: &Path) -> io::Result<Pipes> {
    static RINGS: AtomicU64 = AtomicU64::new(0);
    // Where nobody has it open for reading this fails at once: nobody listens.
    let mut bell = OpenOptions::new().open_sender(dir.join(BELL))?;
    let number = RINGS.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{number}", std::process::id());
    let [up, down] = ends(dir, &name).map(Made);
    make_pipe(&up.0)?;
    make_pipe(&down.0)?;
    let mut receiver = OpenOptions::new().open_receiver(&down.0)?;
    // So short a line is written as one, whoever else rings.
    bell.write_all(format!("{name}\n").as_bytes()).await?;
    receiver.read_u8().await?;
    let sender = OpenOptions::new().open_sender(&up.0)?;
    Ok(join(receiver, Closing(Some(sender))))
}

/// The worker's side: many at a time, so that a client which dawdles holds up nobody.
async fn answer(
    dir: PathBuf,
    bell: Receiver,
    multiplexer: Multiplexer,
    accepted: mpsc::Sender<Arc<dyn Connection>>,
) {
    let mut names = BufReader::new(bell).lines();
    let mut handshakes = JoinSet::new();
    loop {
        tokio::select! {
            name = names.next_line() => {
                let Ok(Some(name)) = name else { return };
                let (dir, multiplexer, accepted) = (dir.clone(), multiplexer.clone(), accepted.clone());
                handshakes.spawn(async move {
                    match open(&dir, &name, &multiplexer).await {
                        Ok(connection) => drop(accepted.send(connection).await),
                        Err(err) => tracing::warn!(%err, "FIFO handshake failed"),
                    }
                });
            }
            Some(_) = handshakes.join_next() => {}
        }
    }
}

async fn open(
    dir: &Path,
    name: &str,
    multiplexer: &Multiplexer,
) -> Result<Arc<dyn Connection>, TransportError> {
    let peer = format!("client {}", name.escape_debug());
    let error =
        |detail: String| TransportError::new(ErrorKind::Handshake, "accept", peer.as_str(), detail);
    // It becomes part of a path.
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        return Err(error("it rang with a name that no client makes".to_owned()));
    }
    let [up, down] = ends(dir, name);
    let opened = async {
        let receiver = OpenOptions::new().open_receiver(&up)?;
        let mut sender = OpenOptions::new().open_sender(&down)?;
        sender.write_u8(0).await?;
        // Before its client has opened the other end, a pipe looks as if it were at its end.
        receiver.readable().await?;
        Ok(join(receiver, Closing(Some(sender))))
    };
    let opened = tokio::time::timeout(OPEN_LIMIT, opened).await;
    let pipes: io::Result<Pipes> = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let pipes = pipes.map_err(|err| error(err.to_string()))?;
    multiplexer.accept(pipes, &peer).await
}

/// The paths of a connection's two pipes: to the worker, and from it.
fn ends(dir: &Path, name: &str) -> [PathBuf; 2] {
    ["up", "down"].map(|direction| dir.join(format!("{name}.{direction}")))
}

fn hang_bell(dir: &Path) -> io::Result<Receiver> {
    fs::create_dir_all(dir)?;
    let bell = dir.join(BELL);
    if OpenOptions::new().open_sender(&bell).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another worker listens in this directory",
        ));
    }
    // Left behind by a worker that was killed.
    let _ = fs::remove_file(&bell);
    make_pipe(&bell)?;
    // For writing too: it never is at its end.
    OpenOptions::new().read_write(true).open_receiver(&bell)
}

fn make_pipe(path: &Path) -> io::Result<()> {
    let owner = Mode::RUSR | Mode::WUSR;
    Ok(mknodat(CWD, path, FileType::Fifo, owner, 0)?)
}

/// A pipe's name: of no use once both sides have opened it, or where nobody answers the bell.
#[derive(Debug)]
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Tokio's sender, whose shutdown ends the pipe for its reader.
struct Closing(Option<Sender>);

impl Closing {
    fn open(&mut self) -> io::Result<Pin<&mut Sender>> {
        let sender = self.0.as_mut().map(Pin::new);
        sender.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncWrite for Closing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.open()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open()?.poll_write_vectored(cx, bytes)
    }
}
