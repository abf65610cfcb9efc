//! Connections that must not come about, or only for the right peer: each failure in words that say what to do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Authority, io, listen, soon, url};
use datafusion_transport_core::connection::{Connection, Connector, Listener, StreamClass, read};
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use datafusion_transport_quic::{ALPN, ClientTls, QuicConfig, QuicConnector, ServerTls};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

async fn connect(tls: ClientTls, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
    connect_with(QuicConfig::default(), tls, url).await
}

async fn connect_with(
    config: QuicConfig,
    tls: ClientTls,
    url: &Url,
) -> Result<Arc<dyn Connection>, TransportError> {
    let connector = QuicConnector::new(config, tls, &io()).unwrap();
    soon(connector.connect(url)).await
}

/// Connects to a server with `server`, which must fail.
async fn refusal(server: ServerTls, client: ClientTls, host: &str) -> TransportError {
    let listener = listen(QuicConfig::default(), server);
    let url = url(host, listener.local_addr());
    let err = connect(client, &url).await.expect_err("connected");
    assert_eq!(url.as_str(), err.peer());
    assert_eq!(Delivery::NotDelivered, err.delivery());
    err
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_private_ca_is_accepted() {
    let authority = Authority::new();
    let mut listener = listen(QuicConfig::default(), authority.mutual_server("localhost"));
    let tls = authority.client_of(&authority);
    // By name, so that `localhost` is looked up and an address where nobody listens is passed over.
    let url = url("localhost", listener.local_addr());
    let (client, server) = tokio::join!(connect(tls, &url), soon(listener.accept()));
    assert_eq!(url.as_str(), client.unwrap().peer());
    assert!(server.unwrap().peer().contains("127.0.0.1:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_ca_is_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let err = refusal(theirs.server("localhost"), ours.client(), "localhost").await;
    assert_eq!(ErrorKind::Handshake, err.kind());
    assert!(
        err.detail()
            .contains("not signed by a CA that this side trusts"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_name_is_refused_with_its_names() {
    let authority = Authority::new();
    let server = authority.server("worker-7");
    let err = refusal(server, authority.client(), "127.0.0.1").await;
    assert_eq!(ErrorKind::Handshake, err.kind());
    for words in ["host name in the URL", "127.0.0.1", "worker-7"] {
        assert!(err.detail().contains(words), "{err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let (cert, key) = authority.sign_expired("localhost");
    let server = ServerTls::from_pem_files(&cert, &key, None).unwrap();
    let err = refusal(server, authority.client(), "localhost").await;
    assert_eq!(ErrorKind::Handshake, err.kind());
    assert!(err.detail().contains("expired"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_protocol_version_is_refused_and_both_are_named() {
    let authority = Authority::new();
    let tls = authority.server("localhost").as_last_read(&[b"dfdt/7"]);
    let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let server = quinn::ServerConfig::with_crypto(Arc::new(tls));
    let endpoint = quinn::Endpoint::server(server, "127.0.0.1:0".parse().unwrap());
    let endpoint = endpoint.unwrap();
    let url = url("localhost", endpoint.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let _ = incoming.await;
        }
    });
    let err = connect(authority.client(), &url)
        .await
        .expect_err("connected");
    assert_eq!(
        (ErrorKind::Handshake, url.as_str()),
        (err.kind(), err.peer())
    );
    let ours = std::str::from_utf8(ALPN).unwrap();
    assert!(
        err.detail().contains(ours) && err.detail().contains("dfdt/7"),
        "{err}"
    );
    serving.abort();
}

/// The server checks a client's certificate after the client's handshake is done, so the refusal comes as a close.
async fn refused_client(client: ClientTls, authority: &Authority) -> TransportError {
    let mut listener = listen(QuicConfig::default(), authority.mutual_server("localhost"));
    let url = url("localhost", listener.local_addr());
    let err = match connect(client, &url).await {
        Ok(connection) => soon(connection.closed()).await,
        Err(err) => err,
    };
    assert_eq!(
        (ErrorKind::Handshake, Delivery::NotDelivered),
        (err.kind(), err.delivery())
    );
    // And the peer was never handed out.
    soon(listener.close()).await;
    assert!(soon(listener.accept()).await.is_none());
    err
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_certificate_is_refused() {
    let authority = Authority::new();
    let err = refused_client(authority.client(), &authority).await;
    assert!(
        err.detail().contains("requires a client certificate"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_ca_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let client = authority.client_of(&other);
    let err = refused_client(client, &authority).await;
    assert!(err.detail().contains("does not trust the CA"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_a_listener_is_refused_at_once() {
    let free = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = url("localhost", free);
    let started = Instant::now();
    let err = connect(Authority::new().client(), &url)
        .await
        .expect_err("connected");
    assert_eq!((ErrorKind::Connect, url.as_str()), (err.kind(), err.peer()));
    assert!(
        err.detail().contains("is the worker serving QUIC there?"),
        "{err}"
    );
    assert!(started.elapsed() < QuicConfig::default().handshake_timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_peer_is_an_error_after_the_handshake_timeout() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = url("127.0.0.1", silent.local_addr().unwrap());
    let config = QuicConfig {
        handshake_timeout: Duration::from_millis(300),
        ..QuicConfig::default()
    };
    let err = connect_with(config, Authority::new().client(), &url).await;
    let err = err.expect_err("connected");
    assert_eq!((ErrorKind::Timeout, url.as_str()), (err.kind(), err.peer()));
    assert_eq!(Delivery::NotDelivered, err.delivery());
    assert!(
        err.detail().contains("no QUIC answer on UDP 127.0.0.1:"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_host_is_an_error() {
    let url = "quic://no-such-host.invalid:1".parse().unwrap();
    let err = connect(Authority::new().client(), &url)
        .await
        .expect_err("connected");
    assert_eq!(ErrorKind::Connect, err.kind());
    assert!(err.detail().contains("no-such-host.invalid"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_falls_silent_is_an_error_within_the_idle_timeout() {
    let config = QuicConfig {
        keep_alive_interval: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(1000),
        ..QuicConfig::default()
    };
    let authority = Authority::new();
    // The server runs on a runtime of its own, which is then frozen.
    let server = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let tls = authority.server("localhost");
    let mut listener = {
        let _context = server.enter();
        listen(config.clone(), tls)
    };
    let url = url("localhost", listener.local_addr());
    let (connected, frozen) = tokio::sync::oneshot::channel::<()>();
    let (thaw, thawed) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        server.block_on(async {
            let connection = listener.accept().await;
            frozen.await.unwrap();
            // Blocks the only thread of the server.
            thawed.recv().unwrap();
            drop((connection, listener));
        });
    });
    let client = connect_with(config.clone(), authority.client(), &url)
        .await
        .unwrap();
    let mut stream = client.open(StreamClass::Bulk).await.unwrap();
    let began = Instant::now();
    connected.send(()).unwrap();
    let err = soon(client.closed()).await;
    // With room for a busy machine.
    assert!(
        began.elapsed() < config.idle_timeout * 3,
        "{:?}",
        began.elapsed()
    );
    assert_eq!(ErrorKind::ConnectionLost, err.kind());
    assert!(err.detail().contains("no packet for 1s"), "{err}");
    soon(read(stream.recv.as_mut(), 1)).await.unwrap_err();
    thaw.send(()).unwrap();
    tokio::task::spawn_blocking(move || thread.join().unwrap())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_peers_delay_nobody() {
    let authority = Authority::new();
    let config = QuicConfig::default();
    let mut listener = listen(config, authority.mutual_server("localhost"));
    let url = url("localhost", listener.local_addr());
    let stranger = Authority::new().client();
    for _ in 0..20 {
        connect(stranger.clone(), &url)
            .await
            .expect_err("connected");
    }
    let tls = authority.client_of(&authority);
    let (client, server) = tokio::join!(connect(tls, &url), soon(listener.accept()));
    client.unwrap();
    server.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_peers_connect_at_once() {
    const PEERS: usize = 100;
    let authority = Authority::new();
    let mut listener = listen(QuicConfig::default(), authority.server("localhost"));
    let url = url("localhost", listener.local_addr());
    let connector = QuicConnector::new(QuicConfig::default(), authority.client(), &io()).unwrap();
    let mut dials = tokio::task::JoinSet::new();
    for _ in 0..PEERS {
        let (connector, url) = (connector.clone(), url.clone());
        dials.spawn(async move { connector.connect(&url).await });
    }
    let mut accepted = Vec::new();
    while accepted.len() < PEERS {
        accepted.push(soon(listener.accept()).await.unwrap());
    }
    while let Some(dial) = soon(dials.join_next()).await {
        dial.unwrap().unwrap();
    }
}
