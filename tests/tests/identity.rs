//! Who is let in, who is believed, and what both sides are told where it fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::log::Log;
use common::{Carrier, SOON};
use datafusion::common::Result;
use datafusion_distributed::{ChannelResolver, DefaultSessionBuilder, GetWorkerInfoRequest};
use datafusion_transport_core::connection::{
    BiStream, Connector, Listener, StreamClass, read, write,
};
use datafusion_transport_core::testing::{Authority, send};
use datafusion_transport_core::tls::{CertificateAuthority, ClientTls, ServerTls};
use datafusion_transport_core::{IoRuntime, Server, ServerHandle, TransportResolver, Transports};
use datafusion_transport_quic::{QuicConfig, QuicConnector, QuicListener};
use datafusion_transport_tcp::{TcpConfig, TcpConnector, TcpListener};
use datafusion_transport_tests::within;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// How long a failed handshake may take, on a busy machine too. Handshakes themselves are given more, so that what is
/// seen is the refusal.
const PROMPTLY: Duration = Duration::from_secs(4);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// What both sides of a refused handshake say.
struct Told<'a> {
    client: &'a [&'a str],
    server: &'a [&'a str],
}

/// On one thread, whose log is kept.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}

/// The test's own.
fn io() -> IoRuntime {
    IoRuntime::from_handle(Handle::current())
}

fn listen(carrier: Carrier, tls: Option<ServerTls>) -> (SocketAddr, Box<dyn Listener>) {
    let any = ([127, 0, 0, 1], 0).into();
    match carrier.is_udp() {
        true => {
            let listener = QuicListener::bind(any, quic_config(), tls.unwrap(), &io()).unwrap();
            (listener.local_addr(), Box::new(listener))
        }
        false => {
            let listener = TcpListener::bind(any, tcp_config(), tls, &io()).unwrap();
            (listener.local_addr().unwrap(), Box::new(listener))
        }
    }
}

fn connector(carrier: Carrier, tls: Option<ClientTls>) -> Arc<dyn Connector> {
    match carrier.is_udp() {
        true => Arc::new(QuicConnector::new(quic_config(), tls.unwrap(), &io()).unwrap()),
        false => Arc::new(TcpConnector::new(tcp_config(), tls, &io()).unwrap()),
    }
}

fn quic_config() -> QuicConfig {
    QuicConfig {
        handshake_timeout: HANDSHAKE_TIMEOUT,
        ..QuicConfig::default()
    }
}

fn tcp_config() -> TcpConfig {
    TcpConfig {
        handshake_timeout: HANDSHAKE_TIMEOUT,
        ..TcpConfig::default()
    }
}

fn transports(carrier: Carrier, tls: Option<ClientTls>) -> Transports {
    let kind = carrier.kind();
    let builder = Transports::builder().connector(kind, connector(carrier, tls));
    builder.build().unwrap()
}

/// A worker, and a client's view of it under the host name `host`.
struct Worker {
    url: Url,
    _server: ServerHandle,
}

impl Worker {
    fn start(carrier: Carrier, tls: Option<ServerTls>, host: &str) -> Self {
        let (addr, listener) = listen(carrier, tls);
        let nobody = Authority::new().client();
        let worker = transports(carrier, Some(nobody)).worker(DefaultSessionBuilder);
        let server = Server::builder(worker).listener(listener).io_runtime(io());
        Self {
            url: url(host, addr),
            _server: server.start().unwrap(),
        }
    }

    /// Makes a call, as queries do.
    async fn call(&self, carrier: Carrier, tls: Option<ClientTls>) -> Result<()> {
        call(carrier, tls, &self.url).await
    }
}

fn url(host: &str, addr: SocketAddr) -> Url {
    format!("http://{host}:{}", addr.port()).parse().unwrap()
}

async fn call(carrier: Carrier, tls: Option<ClientTls>, url: &Url) -> Result<()> {
    let resolver = TransportResolver::new(transports(carrier, tls));
    let mut channel = resolver.get_worker_client_for_url(url).await?;
    let info = channel.get_worker_info(GetWorkerInfoRequest {});
    within("the call ends", PROMPTLY, info).await.map(|_| ())
}

/// A call fails at once, and both sides are told why: the client with the worker's URL, the server with the client's
/// address.
async fn refused(
    carrier: Carrier,
    server: Option<ServerTls>,
    client: Option<ClientTls>,
    host: &str,
    told: Told<'_>,
) {
    let log = Log::capture();
    let worker = Worker::start(carrier, server, host);
    let err = worker.call(carrier, client).await.unwrap_err().to_string();
    for words in [&[worker.url.as_str(), "handshake failed"], told.client].concat() {
        assert!(err.contains(words), "`{words}` is not in: {err}");
    }
    let protocol = match carrier.is_udp() {
        true => "QUIC handshake failed",
        false => "TCP handshake failed",
    };
    let always = [protocol, "accept 127.0.0.1:"];
    within(
        "the server logs why",
        PROMPTLY,
        log.wait_for(&[&always, told.server].concat()),
    )
    .await;
}

fn no_client_certificate(carrier: Carrier) {
    let ca = Authority::new();
    run(refused(
        carrier,
        Some(ca.mutual_server("localhost")),
        Some(ca.client()),
        "localhost",
        Told {
            client: &[
                "requires a client certificate (mutual TLS)",
                "configure one",
            ],
            server: &["presented no client certificate", "configure one there"],
        },
    ));
}

fn client_of_an_unknown_ca(carrier: Carrier) {
    let ca = Authority::new();
    run(refused(
        carrier,
        Some(ca.mutual_server("localhost")),
        Some(ca.client_of(&Authority::new())),
        "localhost",
        Told {
            client: &[
                "does not trust the CA of this side's certificate",
                "must be signed by",
            ],
            server: &[
                "not signed by a CA that this side trusts",
                "check the CA file",
            ],
        },
    ));
}

fn server_of_an_unknown_ca(carrier: Carrier) {
    let (ours, theirs) = (Authority::new(), Authority::new());
    run(refused(
        carrier,
        Some(theirs.server("localhost")),
        Some(ours.client()),
        "localhost",
        Told {
            client: &[
                "not signed by a CA that this side trusts",
                "check the CA file",
            ],
            server: &[
                "does not trust the CA of this side's certificate",
                "must be signed by",
            ],
        },
    ));
}

fn expired_client(carrier: Carrier) {
    let ca = Authority::new();
    let (cert, key) = ca.sign_expired("client");
    untimely_client(carrier, &ca, &cert, &key, "certificate expired");
}

fn client_before_its_time(carrier: Carrier) {
    let ca = Authority::new();
    let (cert, key) = ca.sign_not_yet_valid("client");
    untimely_client(carrier, &ca, &cert, &key, "certificate not valid yet");
}

fn untimely_client(carrier: Carrier, ca: &Authority, cert: &Path, key: &Path, precisely: &str) {
    run(refused(
        carrier,
        Some(ca.mutual_server("localhost")),
        Some(ClientTls::from_pem_files(ca.ca(), Some((cert, key))).unwrap()),
        "localhost",
        Told {
            client: &[
                "this side's certificate expired or not valid yet",
                "renew it",
                "check the clocks",
            ],
            server: &[
                "peer's certificate is expired or not valid yet",
                precisely,
                "renew it",
            ],
        },
    ));
}

fn expired_server(carrier: Carrier) {
    let ca = Authority::new();
    let (cert, key) = ca.sign_expired("localhost");
    untimely_server(carrier, &ca, &cert, &key, "certificate expired");
}

fn server_before_its_time(carrier: Carrier) {
    let ca = Authority::new();
    let (cert, key) = ca.sign_not_yet_valid("localhost");
    untimely_server(carrier, &ca, &cert, &key, "certificate not valid yet");
}

fn untimely_server(carrier: Carrier, ca: &Authority, cert: &Path, key: &Path, precisely: &str) {
    run(refused(
        carrier,
        Some(ServerTls::from_pem_files(cert, key, None).unwrap()),
        Some(ca.client()),
        "localhost",
        Told {
            client: &[
                "peer's certificate is expired or not valid yet",
                precisely,
                "renew it",
            ],
            server: &[
                "this side's certificate expired or not valid yet",
                "renew it",
                "check the clocks",
            ],
        },
    ));
}

fn server_of_another_name(carrier: Carrier) {
    let ca = Authority::new();
    run(refused(
        carrier,
        Some(ca.server("worker-7")),
        Some(ca.client()),
        "localhost",
        Told {
            client: &[
                "must be valid for the host name in the URL",
                "localhost",
                "worker-7",
            ],
            server: &[
                "this side's certificate does not fit",
                "valid for the host name in its URL",
            ],
        },
    ));
}

fn server_of_another_name_than_the_fixed_one(carrier: Carrier) {
    let ca = Authority::new();
    let client = ca.client().with_server_name("workers.example").unwrap();
    run(refused(
        carrier,
        Some(ca.server("localhost")),
        Some(client),
        "localhost",
        Told {
            client: &["the fixed name", "workers.example", "localhost"],
            server: &["this side's certificate does not fit"],
        },
    ));
}

/// Workers whose addresses change share a name.
fn a_fixed_name_stands_for_any_host(carrier: Carrier) {
    run(async move {
        let ca = Authority::new();
        let server = ca.mutual_server("workers.example");
        let worker = Worker::start(carrier, Some(server), "127.0.0.1");
        let client = ca.client_of(&ca).with_server_name("workers.example");
        worker.call(carrier, Some(client.unwrap())).await.unwrap();
    });
}

fn client_of_a_name_that_is_not_allowed(carrier: Carrier) {
    let ca = Authority::new();
    let server = ca.mutual_server("localhost");
    let server = server.with_allowed_clients(["coordinator", "spiffe://example/client"]);
    run(refused(
        carrier,
        Some(server.unwrap()),
        Some(ca.client_of(&ca)),
        "localhost",
        Told {
            client: &[
                "does not let this side in",
                "must be among the clients that the peer allows",
            ],
            server: &["\"client\"", "`ServerTls::with_allowed_clients`", "list it"],
        },
    ));
}

/// Among allowed names are those of the CA's clients alone.
fn client_of_an_allowed_name_and_an_unknown_ca(carrier: Carrier) {
    let ca = Authority::new();
    let server = ca.mutual_server("localhost");
    run(refused(
        carrier,
        Some(server.with_allowed_clients(["client"]).unwrap()),
        Some(ca.client_of(&Authority::new())),
        "localhost",
        Told {
            client: &["does not trust the CA"],
            server: &["not signed by a CA that this side trusts"],
        },
    ));
}

/// A client is let in by any one of its names, of whichever sort.
fn clients_of_allowed_names(carrier: Carrier) {
    run(async move {
        let ca = CertificateAuthority::generate(DAY).unwrap();
        let pem = Pem::new(&ca);
        for names in [
            &["coordinator.example"][..],
            &["other", "coordinator.example"],
            &["*.hosts.example"],
            &["10.0.0.5"],
            &["other", "spiffe://example/client"],
        ] {
            let allowed = [
                "coordinator.example",
                "a.hosts.example",
                "10.0.0.5",
                "spiffe://example/client",
            ];
            let server = pem.server().with_allowed_clients(allowed).unwrap();
            let worker = Worker::start(carrier, Some(server), "localhost");
            pem.write_peer(&ca, "client", names);
            let called = worker.call(carrier, Some(pem.client())).await;
            called.unwrap_or_else(|err| panic!("{names:?}: {err}"));
        }
    });
}

/// The client offers what the server doesn't speak, and the other way round.
fn another_protocol(carrier: Carrier) {
    run(async move {
        let ca = Authority::new();
        let ours = match carrier.is_udp() {
            true => "dfdt/1",
            false => "dfdt-tcp/1",
        };
        let (addr, _foreign) = foreign_server(carrier, &ca).await;
        let url = url("localhost", addr);
        let err = call(carrier, Some(ca.client()), &url).await.unwrap_err();
        let err = err.to_string();
        let remedy = match carrier.is_udp() {
            true => "upgrade the older",
            false => "is this its port",
        };
        for words in [url.as_str(), "handshake failed", ours, remedy] {
            assert!(err.contains(words), "`{words}` is not in: {err}");
        }

        let log = Log::capture();
        let (addr, _listener) = listen(carrier, Some(ca.server("localhost")));
        let told = [
            "accept 127.0.0.1:",
            "no protocol that this side speaks",
            ours,
            "is it meant for this port",
        ];
        foreign_client(carrier, &ca, addr).await;
        within("the server logs why", PROMPTLY, log.wait_for(&told)).await;
    });
}

const FOREIGN: &[&[u8]] = &[b"dfdt/7"];

async fn foreign_server(carrier: Carrier, ca: &Authority) -> (SocketAddr, AbortOnDropHandle<()>) {
    let tls = ca.server("localhost").current(FOREIGN).await;
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let (addr, serving) = if carrier.is_udp() {
        let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
        let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
        let endpoint = quinn::Endpoint::server(config, any).unwrap();
        let addr = endpoint.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let _ = incoming.await;
            }
        });
        (addr, serving)
    } else {
        let port = tokio::net::TcpListener::bind(any).await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(tls);
        let addr = port.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = port.accept().await {
                let _ = acceptor.accept(socket).await;
            }
        });
        (addr, serving)
    };
    (addr, AbortOnDropHandle::new(serving))
}

async fn foreign_client(carrier: Carrier, ca: &Authority, addr: SocketAddr) {
    let tls = ca.client().current(FOREIGN).await;
    if carrier.is_udp() {
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(tls));
        let connecting = endpoint.connect_with(config, addr, "localhost").unwrap();
        within("a refusal", PROMPTLY, connecting).await.unwrap_err();
    } else {
        let socket = tokio::net::TcpStream::connect(addr).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let connecting = tokio_rustls::TlsConnector::from(tls).connect(name, socket);
        within("a refusal", PROMPTLY, connecting).await.unwrap_err();
    }
}

fn plaintext_client(carrier: Carrier) {
    let ca = Authority::new();
    run(refused(
        carrier,
        Some(ca.server("localhost")),
        None,
        "localhost",
        Told {
            client: &["the peer expects TLS", "plaintext", "configure both alike"],
            server: &[
                "the peer does not speak TLS",
                "plaintext",
                "configure both alike",
            ],
        },
    ));
}

fn plaintext_server(carrier: Carrier) {
    let ca = Authority::new();
    run(refused(
        carrier,
        None,
        Some(ca.client()),
        "localhost",
        Told {
            client: &[
                "the peer does not speak TLS",
                "plaintext",
                "configure both alike",
            ],
            server: &["the peer expects TLS", "plaintext", "configure both alike"],
        },
    ));
}

/// A client that believes anybody says so when it is made. It still shows who it is.
fn danger_without_verification(carrier: Carrier) {
    run(async move {
        let log = Log::capture();
        let ca = Authority::new();
        let (cert, key) = ca.sign("client");
        let worker = Worker::start(carrier, Some(ca.mutual_server("worker-7")), "localhost");
        let client = ClientTls::danger_without_verification(Some((&cert, &key))).unwrap();
        let told = ["WARN", "danger_without_verification", "not for production"];
        log.wait_for(&told).await;
        assert!(!connector(carrier, Some(client.clone())).authenticates());
        assert!(connector(carrier, Some(ca.client())).authenticates());
        worker.call(carrier, Some(client)).await.unwrap();
    });
}

/// Whoever renews certificates, and whoever changes the CA, cuts no connection: what is connected goes on, and the next
/// connection is made with the new files of both sides.
fn renewed_files_hold_from_the_next_connection_on(carrier: Carrier) {
    run(async move {
        let [old, new] = [(); 2].map(|()| CertificateAuthority::generate(DAY).unwrap());
        let pem = Pem::new(&old);
        let (addr, listener) = listen(carrier, Some(pem.server()));
        let _serving = AbortOnDropHandle::new(tokio::spawn(echo_all(listener)));
        let url = url("localhost", addr);
        let client = connector(carrier, Some(pem.client()));
        let of_old = connector(carrier, Some(Pem::new(&old).client()));
        let of_new = connector(carrier, Some(Pem::new(&new).client()));

        let connection = client.connect(&url).await.unwrap();
        let mut data = connection.open(StreamClass::Bulk).await.unwrap();
        assert!(round_trip(&mut data).await && reaches(&of_old, &url).await);
        assert!(!reaches(&of_new, &url).await);

        pem.write(&new);
        // The files are looked at once a second.
        for client in [&of_new, &client] {
            let reached = async {
                while !reaches(client, &url).await {
                    assert!(round_trip(&mut data).await);
                }
            };
            within("new files are used", SOON, reached).await;
        }
        assert!(!reaches(&of_old, &url).await);
        assert!(round_trip(&mut data).await);
        assert!(connection.close_reason().is_none());
    });
}

/// Whether a connection is made, and carries data: a server may look at a certificate only after the client is done.
async fn reaches(client: &Arc<dyn Connector>, url: &Url) -> bool {
    let reached = async {
        let connection = client.connect(url).await.ok()?;
        let mut stream = connection.open(StreamClass::Bulk).await.ok()?;
        round_trip(&mut stream).await.then_some(())
    };
    within("an answer", SOON, reached).await.is_some()
}

/// More than fits into one packet, there and back.
async fn round_trip(stream: &mut BiStream) -> bool {
    const BYTES: usize = 10_000;
    let trip = async {
        send(stream.send.as_mut(), vec![7; BYTES]).await.ok()?;
        let mut heard = 0;
        while heard < BYTES {
            heard += read(stream.recv.as_mut(), BYTES).await.ok()??.len();
        }
        Some(())
    };
    within("an echo", SOON, trip).await.is_some()
}

/// Sends back what arrives.
async fn echo_all(mut listener: Box<dyn Listener>) {
    let mut streams = JoinSet::new();
    while let Some(connection) = listener.accept().await {
        streams.spawn(async move {
            while let Ok(BiStream { mut send, mut recv }) = connection.accept().await {
                while let Ok(Some(chunk)) = read(recv.as_mut(), usize::MAX).await {
                    let mut chunk = VecDeque::from([chunk]);
                    if write(send.as_mut(), &mut chunk).await.is_err() {
                        break;
                    }
                }
            }
        });
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// The files of a worker and of a client.
struct Pem(TempDir);

impl Pem {
    fn new(ca: &CertificateAuthority) -> Self {
        let pem = Self(tempfile::tempdir().unwrap());
        pem.write(ca);
        pem
    }

    fn write(&self, ca: &CertificateAuthority) {
        std::fs::write(self.file("ca.pem"), ca.certificate_pem()).unwrap();
        self.write_peer(ca, "worker", &["localhost"]);
        self.write_peer(ca, "client", &["client"]);
    }

    fn write_peer(&self, ca: &CertificateAuthority, peer: &str, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let issued = ca.issue(&names, DAY).unwrap();
        let (cert, key) = self.pair(peer);
        std::fs::write(cert, issued.certificate_pem).unwrap();
        std::fs::write(key, issued.key_pem).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn pair(&self, peer: &str) -> (PathBuf, PathBuf) {
        let file = |kind| self.file(&format!("{peer}.{kind}"));
        (file("pem"), file("key"))
    }

    fn server(&self) -> ServerTls {
        let (cert, key) = self.pair("worker");
        ServerTls::from_pem_files(&cert, &key, Some(&self.file("ca.pem"))).unwrap()
    }

    fn client(&self) -> ClientTls {
        let (cert, key) = self.pair("client");
        ClientTls::from_pem_files(&self.file("ca.pem"), Some((&cert, &key))).unwrap()
    }
}

/// A test of each case over each transport that has certificates.
macro_rules! over_tls {
    ($($case:ident),+ $(,)?) => {
        over!(quic: Quic, $($case),+);
        over!(tcp_tls: TcpTls, $($case),+);
    };
}

over_tls!(
    no_client_certificate,
    client_of_an_unknown_ca,
    server_of_an_unknown_ca,
    expired_client,
    expired_server,
    client_before_its_time,
    server_before_its_time,
    server_of_another_name,
    server_of_another_name_than_the_fixed_one,
    a_fixed_name_stands_for_any_host,
    client_of_a_name_that_is_not_allowed,
    client_of_an_allowed_name_and_an_unknown_ca,
    clients_of_allowed_names,
    another_protocol,
    danger_without_verification,
    renewed_files_hold_from_the_next_connection_on,
);

// There is no QUIC in the clear.
over!(tls_on_one_side: TcpTls, plaintext_client, plaintext_server);
