//! The `worker` program.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use datafusion::execution::{
    memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool, TrackConsumersPool},
    runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
};
use serde_json::json;
use tokio::{io::AsyncReadExt, runtime::Handle};
use url::Url;

use crate::{
    kind::Kind,
    listening::Address,
    program::{Signals, spawn_on, usage},
    tls::{Clients, TlsOptions},
    traffic::Peer,
    transports::{Network, WorkerOptions},
    units::{parse_bytes, parse_duration},
    workers::{display_url, parse_worker_url},
};

/// What a worker prints before its URL once it takes queries.
pub const READY: &str = "ready ";

/// How many consumers of memory an out-of-memory error names.
const NAMED_CONSUMERS: std::num::NonZeroUsize = std::num::NonZeroUsize::MIN.saturating_add(4);

const EXAMPLES: &str = "\
Examples:
  Three workers on one machine, for trying things out (they share a development identity):
    worker --listen 127.0.0.1:8081 &
    worker --listen 127.0.0.1:8082 &
    worker --listen 127.0.0.1:8083 &
    query --workers 127.0.0.1:8081,127.0.0.1:8082,127.0.0.1:8083 \\
          --set distributed.file_scan_config_bytes_per_partition=1 \\
          --table trips=/data/trips.parquet \\
          'select vendor, count(*) from trips group by vendor'

  A worker of a real cluster, with mutual TLS and a memory limit:
    worker --listen 0.0.0.0:8080 --transports quic,tcp-tls --memory-limit 16GiB --mutual-tls \\
           --tls-cert worker.pem --tls-key worker.key --tls-ca ca.pem

A worker runs any plan that it is sent, and grpc and tcp are in the clear. Outside of a trusted
network use --mutual-tls with --transports quic,tcp-tls.

Exit codes: 0 shut down as asked (ctrl-c and SIGTERM), 1 failed, 2 wrong use.";

/// Run a worker: it executes its part of distributed queries
///
/// One port number serves every transport: QUIC on UDP, and on TCP both raw streams and the engine's
/// own gRPC, told apart by their first bytes. The worker prints `ready URL` on standard output once it takes queries, and logs to standard error. On
/// ctrl-c or SIGTERM it takes no more queries and lets running ones end. Tables are read by the
/// workers themselves: their files must be at the same path on every one.
#[derive(Parser, Debug, Clone)]
#[command(name = "worker", version, after_long_help = EXAMPLES)]
pub struct WorkerArgs {
    /// Address to listen on, or unix:///PATH; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080")]
    pub listen: Address,

    /// URL to announce, where others reach this worker under another name
    #[arg(long, value_name = "URL", value_parser = parse_worker_url)]
    pub advertise: Option<Url>,

    /// Transports to serve [default: quic, tcp and grpc, or unix]
    ///
    /// With tcp-tls the TCP port takes nothing in the clear, so neither tcp nor grpc.
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub transports: Vec<Kind>,

    /// Certificates.
    #[command(flatten)]
    pub tls: TlsOptions,

    /// Refuse peers that have no certificate signed by --tls-ca
    #[arg(long, requires = "tls_ca")]
    pub mutual_tls: bool,

    /// Of the peers that --tls-ca signed, let in those whose certificates have one of these names
    ///
    /// DNS names, IP addresses or URIs. Workers send each other data: list them too.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        requires = "mutual_tls"
    )]
    pub allow_clients: Vec<String>,

    /// Memory that queries may use together, such as 2GiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory_limit: Option<usize>,

    /// How queries share --memory-limit
    #[arg(long, value_name = "POLICY", default_value = "fair")]
    pub memory_policy: MemoryPolicy,

    /// How long running queries may take to end when the worker is asked to stop
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub shutdown_deadline: Duration,

    /// What to log: a level, or a list such as warn,datafusion_transport_core=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,

    /// File to write the worker's URL to once it takes queries
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,

    /// At the end, print one line of JSON about the connections to other workers
    #[arg(long)]
    pub stats: bool,

    /// End when standard input ends: a parent process that dies leaves no worker behind
    #[arg(long)]
    pub stop_with_stdin: bool,
}

/// How queries share a worker's memory.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// An even share for each operator that can spill to disk
    Fair,
    /// First come, first served
    Greedy,
}

/// Runs a worker, on the runtime that `queries` belongs to, until it is asked to stop.
///
/// # Errors
/// When it cannot start, or a server failed.
pub async fn run(args: WorkerArgs, queries: Handle) -> Result<()> {
    let kinds = args.kinds()?;
    args.check(&kinds)?;
    let mut signals = Signals::listen()?;
    let tls = args.tls.resolve()?;
    let default = kinds.first().copied().unwrap_or(Kind::Quic);
    let names: Vec<_> = args
        .advertise
        .iter()
        .filter_map(Url::host_str)
        .map(str::to_owned)
        .collect();
    let network = Network::new(default, &tls, &names)?;
    let worker = WorkerOptions {
        runtime: args.runtime_env()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kinds: kinds.clone(),
        advertise: args.advertise.clone(),
        clients: args.clients(),
    };
    let serving = spawn_on(&queries, {
        let (network, listen) = (network.clone(), args.listen.clone());
        async move { network.serve(&listen, worker).await }
    })
    .await?;
    let url = serving.url().clone();
    args.announce(&url, &kinds)?;

    let reason = args.until_stopped(&mut signals).await;
    tracing::info!(reason, deadline = ?args.shutdown_deadline, "shutting down");
    let peers = network.peers(display_url(&url));
    let ended = serving.shutdown(args.shutdown_deadline).await;
    network.shutdown().await;
    if args.stats {
        let peers: Vec<_> = peers.iter().map(Peer::to_json).collect();
        print_line(&json!({ "worker": display_url(&url), "peers": peers }).to_string())?;
    }
    ended
}

impl WorkerArgs {
    /// Refuses what would be open to everybody although it looks closed, and warns of what is open.
    fn check(&self, kinds: &[Kind]) -> Result<()> {
        let open = kinds.iter().find(|kind| !kind.has_certificates());
        if let (true, Some(open)) = (self.mutual_tls, open) {
            return Err(usage(format!(
                "--mutual-tls cannot protect {open}, which has no TLS: add --transports quic,tcp-tls"
            )));
        }
        if !self.listen.is_local() && !self.mutual_tls {
            tracing::warn!(
                listen = ?self.listen,
                "WHOEVER REACHES THIS PORT CAN RUN ANY PLAN HERE: use --mutual-tls --transports quic,tcp-tls"
            );
        }
        Ok(())
    }

    fn clients(&self) -> Clients {
        match (self.mutual_tls, self.allow_clients.is_empty()) {
            (false, _) => Clients::Anybody,
            (true, true) => Clients::Signed,
            (true, false) => Clients::Named(self.allow_clients.clone()),
        }
    }

    fn runtime_env(&self) -> Result<Arc<RuntimeEnv>> {
        let mut builder = RuntimeEnvBuilder::new();
        if let Some(bytes) = self.memory_limit {
            builder = builder.with_memory_pool(match self.memory_policy {
                MemoryPolicy::Fair => named(FairSpillPool::new(bytes)),
                MemoryPolicy::Greedy => named(GreedyMemoryPool::new(bytes)),
            });
        }
        Ok(builder.build_arc()?)
    }

    /// What to serve, none twice.
    fn kinds(&self) -> Result<Vec<Kind>> {
        self.listen.kinds(&self.transports)
    }

    fn announce(&self, url: &Url, kinds: &[Kind]) -> Result<()> {
        let text = display_url(url);
        let transports: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        tracing::info!(url = text, transports = transports.join(","), "ready");
        if let Some(file) = &self.ready_file {
            std::fs::write(file, format!("{text}\n"))
                .with_context(|| format!("cannot write --ready-file {}", file.display()))?;
        }
        print_line(&format!("{READY}{text}"))
    }

    async fn until_stopped(&self, signals: &mut Signals) -> &'static str {
        tokio::select! {
            reason = signals.termination() => reason,
            () = end_of_stdin(), if self.stop_with_stdin => "end of standard input",
        }
    }
}

fn named<P: MemoryPool + 'static>(pool: P) -> Arc<dyn MemoryPool> {
    Arc::new(TrackConsumersPool::new(pool, NAMED_CONSUMERS))
}

async fn end_of_stdin() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0; 64];
    while matches!(stdin.read(&mut buffer).await, Ok(read) if read > 0) {}
}

fn print_line(line: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        WorkerArgs::command().debug_assert();
    }

    #[test]
    fn defaults() -> Result<()> {
        let args = WorkerArgs::try_parse_from(["worker"])?;
        assert_eq!(args.kinds()?, [Kind::Quic, Kind::Tcp, Kind::Grpc]);
        let twice = ["worker", "--transports", "quic,quic"];
        assert_eq!(WorkerArgs::try_parse_from(twice)?.kinds()?, [Kind::Quic]);
        assert!(WorkerArgs::try_parse_from(["worker", "--transports", "smoke"]).is_err());
        assert!(WorkerArgs::try_parse_from(["worker", "--mutual-tls"]).is_err());
        assert!(WorkerArgs::try_parse_from(["worker", "--tls-cert", "x"]).is_err());
        let open = WorkerArgs::try_parse_from(["worker", "--mutual-tls", "--tls-ca", "x"])?;
        assert!(open.check(&open.kinds()?).is_err());
        assert!(open.check(&[Kind::Quic, Kind::TcpTls]).is_ok());
        Ok(())
    }
}
