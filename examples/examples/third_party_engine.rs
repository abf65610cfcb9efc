//! Runs SQL on an engine of a third party: see `examples/third-party-engine.md`.

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use datafusion::{arrow::util::pretty::print_batches, prelude::SessionContext};
use datafusion_transport_core::{
    IoRuntime, Server, ServerHandle, Transports,
    connection::{Connector, Listener},
};
use datafusion_transport_examples::sql_engine::{SqlClient, SqlPlan, SqlWorker, merge};
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener};
use datafusion_transport_tcp::{TcpConfig, TcpConnector, TcpListener};
use tempfile::TempDir;
use url::Url;

/// Run SQL on workers of a small engine of its own, each with its own rows, over a transport of your choice
///
/// Worker i has a table `readings` of a million rows: `sensor` (0 to 9) and `value`. Each runs --sql on its own; --merge is
/// then run on what they found, as table `gathered`.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// What carries plans and rows
    #[arg(long, value_enum, default_value = "quic")]
    transport: Kind,

    /// How many workers to start, in this process
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    /// What every worker runs
    #[arg(
        long,
        default_value = "SELECT sensor, count(*) AS n, sum(value) AS total FROM readings GROUP BY sensor"
    )]
    sql: String,

    /// What is run on all that they found
    #[arg(
        long,
        default_value = "SELECT sensor, sum(n) AS readings, CAST(sum(total) AS DOUBLE) / sum(n) AS mean FROM gathered GROUP BY sensor ORDER BY sensor"
    )]
    merge: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Quic,
    Tcp,
}

/// A transport as client and worker set it up.
struct Network {
    kind: Kind,
    identity: DevelopmentIdentity,
    _dir: TempDir,
}

impl Network {
    fn new(kind: Kind) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let identity = DevelopmentIdentity::load_or_create(dir.path(), &[])?;
        Ok(Self {
            kind,
            identity,
            _dir: dir,
        })
    }

    fn transports(&self) -> Result<Transports> {
        let io = IoRuntime::shared()?;
        let connector: Arc<dyn Connector> = match self.kind {
            Kind::Quic => {
                let tls = self.identity.client_tls()?;
                Arc::new(QuicConnector::new(QuicConfig::default(), tls, &io)?)
            }
            Kind::Tcp => Arc::new(TcpConnector::new(TcpConfig::default(), None, &io)?),
        };
        Ok(Transports::builder()
            .connector("network", connector)
            .build()?)
    }

    fn listen(&self) -> Result<(Url, Box<dyn Listener>)> {
        let (io, any) = (IoRuntime::shared()?, ([127, 0, 0, 1], 0).into());
        let (address, listener): (_, Box<dyn Listener>) = match self.kind {
            Kind::Quic => {
                let tls = self.identity.server_tls()?;
                let listener = QuicListener::bind(any, QuicConfig::default(), tls, &io)?;
                (listener.local_addr(), Box::new(listener))
            }
            Kind::Tcp => {
                let listener = TcpListener::bind(any, TcpConfig::default(), None, &io)?;
                let address = listener
                    .local_addr()
                    .context("a TCP listener has an address")?;
                (address, Box::new(listener))
            }
        };
        Ok((format!("http://{address}").parse()?, listener))
    }
}

/// Starts worker `number` with its own rows.
async fn start(number: u16, network: &Network) -> Result<(Url, ServerHandle)> {
    let session = SessionContext::new();
    let rows = format!(
        "CREATE VIEW readings AS SELECT value % 10 AS sensor, value * {} % 1000 AS value FROM generate_series(1, 1000000)",
        7 + number
    );
    session.sql(&rows).await?;
    let (url, listener) = network.listen()?;
    let server = Server::builder(SqlWorker::new(session))
        .listener(listener)
        .start()?;
    Ok((url, server))
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let network = Network::new(args.transport)?;
    let (mut urls, mut servers) = (vec![], vec![]);
    for number in 0..args.workers {
        let (url, server) = start(number, &network).await?;
        urls.push(url);
        servers.push(server);
    }
    let client = SqlClient::new(network.transports()?, urls);
    let plan = SqlPlan {
        sql: args.sql,
        partitions: 4,
    };
    let gathered = client.gather(&plan).await.context("the workers' part")?;
    print_batches(&merge(gathered, &args.merge).await.context("the merge")?)?;
    Ok(())
}
