//! Workers and a coordinator of your own. The README quotes the part between the marks.
//!
//! Here all of them are in one process: `cargo run -p datafusion-transport-examples --example embed`.

// README: from here
use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use datafusion::{
    common::DataFusionError, execution::SessionStateBuilder, prelude::SessionContext,
};
use datafusion_distributed::{
    DefaultSessionBuilder, DistributedExt, SessionStateBuilderExt, WorkerResolver,
};
use datafusion_transport_core::{
    IoRuntime, Server, ServerHandle, TransportError, TransportExt, Transports,
};
use datafusion_transport_quic::{ClientTls, QuicConfig, QuicConnector, QuicListener, ServerTls};
use url::Url;

/// Both: the transports that this process can use. The first one registered is the default.
fn transports(ca: &Path, cert: &Path, key: &Path) -> Result<Transports, TransportError> {
    let tls = ClientTls::from_pem_files(ca, Some((cert, key)))?;
    let quic = QuicConnector::new(QuicConfig::default(), tls, &IoRuntime::shared()?)?;
    let transports = Transports::builder().connector("quic", Arc::new(quic));
    transports.build()
}

/// Coordinator: wire the session.
fn session(transports: &Transports, workers: Vec<Url>) -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_distributed_worker_resolver(Workers(workers))
        .with_distributed_planner()
        .with_distributed_transports(transports)
        .build();
    SessionContext::new_with_state(state)
}

/// The engine's way to find workers.
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// Worker: wire its sessions, and serve. Queries run on the tokio runtime that `start()` is called
/// in: outside of one it's an error.
fn serve(transports: &Transports, listener: QuicListener) -> Result<ServerHandle, TransportError> {
    let worker = transports.worker(DefaultSessionBuilder);
    Server::builder(worker).listener(Box::new(listener)).start()
}

fn listen(
    address: SocketAddr,
    ca: &Path,
    cert: &Path,
    key: &Path,
) -> Result<QuicListener, TransportError> {
    let tls = ServerTls::from_pem_files(cert, key, Some(ca))?;
    QuicListener::bind(address, QuicConfig::default(), tls, &IoRuntime::shared()?)
}

/// Worker, when it is time to go: lets running queries end.
async fn stop(server: ServerHandle) {
    server.shutdown(Duration::from_secs(30)).await;
}
// README: to here

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    // Stands in for the files of a private CA.
    let identity = datafusion_transport_quic::DevelopmentIdentity::load_or_create(dir.path(), &[])?;
    let (ca, cert, key) = (
        identity.certificate_file(),
        identity.certificate_file(),
        identity.key_file(),
    );
    let transports = transports(ca, cert, key)?;

    let (mut workers, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), ca, cert, key)?;
        workers.push(Url::parse(&format!("http://{}", listener.local_addr()))?);
        servers.push(serve(&transports, listener)?);
    }

    for file in ["1.csv", "2.csv"] {
        std::fs::write(dir.path().join(file), "a,b\n1,2\n3,4\n")?;
    }
    let session = session(&transports, workers);
    let location = dir.path().display();
    for sql in [
        format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{location}/'"),
        // So little data is not worth distributing otherwise.
        "SET distributed.file_scan_config_bytes_per_partition = 1".to_owned(),
        "SELECT a, sum(b) FROM t GROUP BY a".to_owned(),
    ] {
        session.sql(&sql).await?.show().await?;
    }
    let streams: u64 = transports.stats().iter().map(|it| it.streams_opened).sum();
    println!("{streams} QUIC streams were opened");

    transports.shutdown().await;
    for server in servers {
        stop(server).await;
    }
    Ok(())
}
