//! `transport.kind = 'auto'` on real sockets: a worker that serves everything, one behind a firewall that drops UDP, one of
//! stock upstream, and none at all.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{SOON, Setup, TestWorker, query, run, session};
use datafusion::common::Result;
use datafusion_distributed::{ChannelResolver, GetWorkerInfoRequest, Worker};
use datafusion_transport_core::{AutoOptions, IoRuntime, TransportResolver, Transports};
use datafusion_transport_examples::workers::FixedWorkers;
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector};
use datafusion_transport_tcp::{TcpConfig, TcpConnector};
use datafusion_transport_tests::{eventually, within};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// Short, so that no test waits long for it.
const REMEMBER_FOR: Duration = Duration::from_millis(300);

/// Transports whose default kind is auto.
fn auto(identity: &Path) -> Transports {
    let io = IoRuntime::shared().unwrap();
    let tls = DevelopmentIdentity::load_or_create(identity, &[]).unwrap();
    let tls = tls.client_tls().unwrap();
    let quic = QuicConnector::new(QuicConfig::default(), tls, &io).unwrap();
    let tcp = TcpConnector::new(TcpConfig::default(), None, &io).unwrap();
    Transports::builder()
        .connector("quic", Arc::new(quic))
        .connector("tcp", Arc::new(tcp))
        .grpc()
        .auto_options(AutoOptions {
            remember_for: REMEMBER_FOR,
            ..AutoOptions::default()
        })
        .default_kind("auto")
        .build()
        .unwrap()
}

async fn worker_info(transports: &Transports, url: &Url) -> Result<String> {
    let resolver = TransportResolver::new(transports.clone());
    let mut channel = resolver.get_worker_client_for_url(url).await?;
    let info = channel.get_worker_info(GetWorkerInfoRequest {});
    Ok(within("worker info", SOON, info).await?.version)
}

fn chosen(transports: &Transports) -> String {
    transports.auto_choices()[0].kind.clone()
}

#[test]
fn a_worker_that_serves_everything_is_reached_by_quic() {
    run(async {
        let identity = tempfile::tempdir().unwrap();
        let worker = TestWorker::start(identity.path(), &Setup::default()).await;
        let transports = auto(identity.path());
        worker_info(&transports, &worker.url).await.unwrap();
        assert_eq!(chosen(&transports), "quic");
    });
}

/// A port whose UDP packets are dropped while it says so, in front of a worker.
struct Firewall {
    url: Url,
    blocked: Arc<AtomicBool>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Firewall {
    async fn start(worker: SocketAddr) -> Self {
        let blocked = Arc::new(AtomicBool::new(true));
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (tcp, udp);
            }
        };
        let url = format!("http://{}", tcp.local_addr().unwrap());
        let drops = Arc::clone(&blocked);
        Self {
            url: url.parse().unwrap(),
            blocked,
            _tasks: [
                AbortOnDropHandle::new(tokio::spawn(forward_tcp(tcp, worker))),
                AbortOnDropHandle::new(tokio::spawn(forward_udp(udp, worker, drops))),
            ],
        }
    }
}

async fn forward_tcp(listener: TcpListener, worker: SocketAddr) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut worker = TcpStream::connect(worker).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut worker).await;
        });
    }
}

async fn forward_udp(port: UdpSocket, worker: SocketAddr, blocked: Arc<AtomicBool>) {
    let port = Arc::new(port);
    let mut clients = HashMap::<SocketAddr, (Arc<UdpSocket>, AbortOnDropHandle<()>)>::new();
    let mut packet = vec![0; 1 << 16];
    while let Ok((length, client)) = port.recv_from(&mut packet).await {
        if blocked.load(Ordering::SeqCst) {
            continue;
        }
        if let Entry::Vacant(entry) = clients.entry(client) {
            let to_worker = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
            to_worker.connect(worker).await.unwrap();
            let back = tokio::spawn(answer(Arc::clone(&to_worker), Arc::clone(&port), client));
            entry.insert((to_worker, AbortOnDropHandle::new(back)));
        }
        let _ = clients[&client].0.send(&packet[..length]).await;
    }
}

async fn answer(from_worker: Arc<UdpSocket>, port: Arc<UdpSocket>, client: SocketAddr) {
    let mut packet = vec![0; 1 << 16];
    while let Ok(length) = from_worker.recv(&mut packet).await {
        let _ = port.send_to(&packet[..length], client).await;
    }
}

/// Blocked UDP costs less than a second or two, not a handshake's timeout; once it is open again, calls after the expiry go by QUIC.
#[test]
fn blocked_udp_falls_back_to_tcp_and_returns_to_quic() {
    run(async {
        let identity = tempfile::tempdir().unwrap();
        let worker = TestWorker::start(identity.path(), &Setup::default()).await;
        let address = worker.url.socket_addrs(|| None).unwrap()[0];
        let firewall = Firewall::start(address).await;
        let transports = auto(identity.path());
        let start = Instant::now();
        worker_info(&transports, &firewall.url).await.unwrap();
        assert_eq!(chosen(&transports), "tcp");
        // QUIC's own limit is 5 s: whoever waited for it took longer.
        assert!(start.elapsed() < Duration::from_secs(4));
        let why = transports.auto_choices().remove(0).not_chosen;
        assert!(why.iter().any(|(kind, _)| kind == "quic"), "{why:?}");
        firewall.blocked.store(false, Ordering::SeqCst);
        let back = async {
            while chosen(&transports) != "quic" {
                worker_info(&transports, &firewall.url).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("calls go by QUIC again", SOON, back).await;
        let opened = |kind: &str| {
            let stats = transports.stats().into_iter();
            let of_kind = stats.filter(|peer| peer.kind == kind);
            of_kind.map(|peer| peer.streams_opened).sum::<u64>()
        };
        let before = opened("quic");
        worker_info(&transports, &firewall.url).await.unwrap();
        assert!(opened("quic") > before);
    });
}

/// Workers that run upstream as it is, and know nothing of these transports, answer queries of a session that uses auto.
#[test]
fn stock_upstream_is_reached_by_grpc() {
    run(async {
        let identity = tempfile::tempdir().unwrap();
        let mut workers = vec![];
        let mut urls = vec![];
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            urls.push(url.parse::<Url>().unwrap());
            let service = Worker::default().into_worker_server();
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            let server = tonic::transport::Server::builder().add_service(service);
            let serve = async move { server.serve_with_incoming(incoming).await.unwrap() };
            workers.push(AbortOnDropHandle::new(tokio::spawn(serve)));
        }
        let transports = auto(identity.path());
        let session = session(&transports, FixedWorkers::new(urls)).await;
        let sql = "SELECT l_suppkey, count(*) FROM lineitem GROUP BY l_suppkey";
        let batches = within(sql, SOON, query(&session, sql)).await.unwrap();
        assert_eq!(
            batches.iter().map(|batch| batch.num_rows()).sum::<usize>(),
            100
        );
        let choices = transports.auto_choices();
        assert!(!choices.is_empty());
        assert!(
            choices.iter().all(|choice| choice.kind == "grpc"),
            "{choices:?}"
        );
    });
}

/// A worker whose certificate this side doesn't trust is not called in the clear instead.
#[test]
fn a_failed_authentication_is_not_passed_over() {
    run(async {
        let [identity, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let worker = TestWorker::start(identity.path(), &Setup::default()).await;
        let transports = auto(other.path());
        let err = worker_info(&transports, &worker.url).await.unwrap_err();
        let err = err.to_string();
        for word in [worker.url.as_str(), "authentication", "certificate"] {
            assert!(err.contains(word), "{word}: {err}");
        }
        assert!(transports.auto_choices().is_empty());
        let opened = transports
            .stats()
            .into_iter()
            .map(|peer| peer.streams_opened);
        assert_eq!(opened.sum::<u64>(), 0);
    });
}

/// Nothing listens: one error that names the worker, each kind tried, and why it failed.
#[test]
fn nothing_listening_is_an_error_that_names_what_was_tried() {
    run(async {
        let identity = tempfile::tempdir().unwrap();
        let transports = auto(identity.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        drop(listener);
        let err = worker_info(&transports, &url)
            .await
            .unwrap_err()
            .to_string();
        for word in [url.as_str(), "quic", "tcp", "grpc", "refused"] {
            assert!(err.contains(word), "{word}: {err}");
        }
        eventually("no choice is kept", SOON, || {
            transports.auto_choices().is_empty()
        })
        .await;
    });
}
