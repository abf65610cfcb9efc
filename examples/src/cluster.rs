//! Worker processes on this machine, and the coordinator's way to them.

use std::{ffi::OsString, path::Path, time::Duration};

use anyhow::{Context, Result};
use futures::future::{join_all, try_join_all};
use url::Url;

use crate::{
    program::WORKER_COMMAND,
    scratch::Scratch,
    tls::Tls,
    traffic::Peer,
    transports::{Kind, Network},
    worker_process::{WorkerCommand, WorkerProcess},
    workers::display_url,
};

/// Queries have ended when a cluster is stopped: there's nothing to wait long for.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);

/// A number of workers, each in its own process on the loopback address. Dropping it kills them.
pub struct Cluster {
    workers: Vec<WorkerProcess>,
    network: Network,
    identity: Scratch,
}

impl Cluster {
    /// Starts `count` workers that run this program's own executable, with `args` added to each.
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
        let mut worker_args: Vec<OsString> = vec![
            "--dev-tls".into(),
            identity.path().into(),
            "--log".into(),
            "info".into(),
        ];
        worker_args.extend_from_slice(args);
        let command = WorkerCommand {
            program: std::env::current_exe().context("cannot find this program's own file")?,
            prefix: vec![WORKER_COMMAND.into()],
            args: worker_args,
            shutdown_deadline: SHUTDOWN_DEADLINE,
        };
        let workers = try_join_all((0..count).map(|_| WorkerProcess::start(&command))).await?;
        Ok(Self {
            workers,
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
