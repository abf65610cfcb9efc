//! Worker processes on this machine, and the coordinator's way to them.

use std::{ffi::OsString, path::Path, time::Duration};

use anyhow::{Context, Result};
use futures::future::{join_all, try_join_all};
use url::Url;

use crate::{
    kind::{Kind, Place},
    program::WORKER_COMMAND,
    scratch::Scratch,
    tls::Tls,
    traffic::Peer,
    transports::Network,
    worker_process::{WorkerCommand, WorkerProcess},
    workers::display_url,
};

/// Queries have ended when a cluster is stopped: there's nothing to wait long for.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);

/// A number of workers, each in its own process on the loopback address. Dropping it kills them.
pub struct Cluster {
    workers: Vec<WorkerProcess>,
    place: Place,
    network: Network,
    identity: Scratch,
}

impl Cluster {
    /// Starts `count` workers for `kind`, and for what else is served in the same place. They run this
    /// program's own executable, with `args` added to each.
    ///
    /// The executable must call [`crate::program::worker_if_asked`] first thing.
    ///
    /// # Errors
    /// When a worker does not start, with the end of its log.
    pub async fn start(count: usize, kind: Kind, args: &[OsString]) -> Result<Self> {
        let identity = Scratch::create(&std::env::temp_dir(), "local-cluster-tls-")
            .context("cannot create a temporary directory")?;
        // Before the workers start: it makes the identity that they then share.
        let tls = Tls::Development {
            dir: identity.path().to_owned(),
        };
        let network = Network::new(kind, &tls, &[])?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let start = |number| {
            let mut command = WorkerCommand {
                program: program.clone(),
                prefix: vec![WORKER_COMMAND.into()],
                args: vec!["--log".into(), "info".into()],
                shutdown_deadline: SHUTDOWN_DEADLINE,
            };
            let (dir, args) = (identity.path(), args.to_vec());
            command.args.extend(listen(kind.place(), dir, number));
            command.args.extend(["--dev-tls".into(), dir.into()]);
            command.args.extend(args);
            async move { WorkerProcess::start(&command).await }
        };
        let workers = try_join_all((0..count).map(start)).await?;
        Ok(Self {
            workers,
            place: kind.place(),
            network,
            identity,
        })
    }

    /// The workers' URLs.
    pub fn urls(&self) -> Vec<Url> {
        self.workers
            .iter()
            .map(|worker| worker.url().clone())
            .collect()
    }

    /// The workers' URLs as text.
    pub fn display_urls(&self, separator: &str) -> String {
        let urls: Vec<_> = self
            .workers
            .iter()
            .map(|worker| display_url(worker.url()))
            .collect();
        urls.join(separator)
    }

    /// Whether the workers serve `kind`.
    pub(crate) fn serves(&self, kind: Kind) -> bool {
        kind.place() == self.place
    }

    /// The coordinator's transports.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The directory of the development identity that reaches these workers.
    pub fn identity_dir(&self) -> &Path {
        self.identity.path()
    }

    /// Workers that have died, with the end of their logs.
    pub fn deaths(&mut self) -> Vec<String> {
        self.workers
            .iter_mut()
            .filter_map(WorkerProcess::death)
            .collect()
    }

    /// Stops everything, and returns what each process did to its peers, the coordinator first.
    ///
    /// # Errors
    /// When a worker had died or had to be killed.
    pub async fn stop(self) -> Result<Vec<Peer>> {
        let mut peers = self.network.peers("coordinator");
        let stopped = join_all(self.workers.into_iter().map(WorkerProcess::stop));
        // At the same time: a worker's listener waits for its peers to leave.
        let (stopped, ()) = tokio::join!(stopped, self.network.shutdown());
        for worker in stopped {
            peers.extend(worker?);
        }
        Ok(peers)
    }
}

/// A worker's options for a place of its own.
fn listen(place: Place, dir: &Path, number: usize) -> Vec<OsString> {
    let any_port = || vec!["--listen".into(), "127.0.0.1:0".into()];
    match place {
        Place::Port => any_port(),
        Place::TlsPort => {
            let mut args = any_port();
            args.extend(["--transports".into(), "quic,tcp-tls".into()]);
            args
        }
        Place::Path => {
            let mut url = OsString::from("unix://");
            url.push(dir.join(format!("worker-{number}")));
            vec!["--listen".into(), url]
        }
    }
}
