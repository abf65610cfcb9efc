//! Connections that must not come about: each failure in words that say what to do, on both sides, at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Authority, io, listen, soon, url};
use datafusion_transport_core::connection::{Connection, Connector, Listener};
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use datafusion_transport_tcp::{ClientTls, ServerTls, TcpConfig, TcpConnector};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener as Socket, TcpStream};
use url::Url;

async fn connect(
    config: TcpConfig,
    tls: Option<ClientTls>,
    url: &Url,
) -> Result<Arc<dyn Connection>, TransportError> {
    let connector = TcpConnector::new(config, tls, &io()).unwrap();
    soon(connector.connect(url)).await
}

/// Connects, which must fail, and quickly.
async fn refusal(tls: Option<ClientTls>, url: &Url) -> TransportError {
    let began = Instant::now();
    let err = connect(TcpConfig::default(), tls, url)
        .await
        .expect_err("connected");
    assert!(began.elapsed() < TcpConfig::default().handshake_timeout / 2);
    assert_eq!(url.as_str(), err.peer());
    assert_eq!(Delivery::NotDelivered, err.delivery());
    err
}

async fn refusal_by(server: Option<ServerTls>, client: Option<ClientTls>) -> TransportError {
    let listener = listen(TcpConfig::default(), server);
    refusal(client, &url("127.0.0.1", listener.local_addr().unwrap())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plaintext_client_at_a_tls_port_is_told() {
    let authority = Authority::new();
    let err = refusal_by(Some(authority.server("127.0.0.1")), None).await;
    assert_eq!(ErrorKind::Handshake, err.kind());
    assert!(err.detail().contains("expects TLS"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_client_at_a_plaintext_port_is_told() {
    let err = refusal_by(None, Some(Authority::new().client())).await;
    assert_eq!(ErrorKind::Handshake, err.kind());
    assert!(err.detail().contains("does not speak TLS"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let err = refusal_by(Some(theirs.server("127.0.0.1")), Some(ours.client())).await;
    assert!(
        err.detail()
            .contains("signed by a CA that this side trusts"),
        "{err}"
    );
    let err = refusal_by(Some(ours.server("worker-7")), Some(ours.client())).await;
    assert!(err.detail().contains("host name in the URL"), "{err}");
    let mutual = ours.mutual_server("127.0.0.1");
    let err = refusal_by(Some(mutual.clone()), Some(ours.client())).await;
    assert!(err.detail().contains("mutual TLS"), "{err}");
    let err = refusal_by(Some(mutual), Some(ours.client_of(&theirs))).await;
    assert!(err.detail().contains("does not trust the CA"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_protocol_over_tls_is_refused() {
    let authority = Authority::new();
    for protocols in [&[&b"h2"[..]][..], &[]] {
        let config = authority.server("127.0.0.1").as_last_read(protocols);
        let port = Socket::bind("127.0.0.1:0").await.unwrap();
        let url = url("127.0.0.1", port.local_addr().unwrap());
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        let serving = tokio::spawn(async move {
            let (socket, _) = port.accept().await.unwrap();
            let _ = acceptor.accept(socket).await;
        });
        let err = refusal(Some(authority.client()), &url).await;
        assert!(err.detail().contains("dfdt-tcp/1"), "{err}");
        soon(serving).await.unwrap();
    }
}

/// A server that says `answer` to whoever connects.
async fn server_that_says(answer: &'static [u8]) -> Url {
    let port = Socket::bind("127.0.0.1:0").await.unwrap();
    let url = url("127.0.0.1", port.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = port.accept().await.unwrap();
        socket.write_all(answer).await.unwrap();
        socket.shutdown().await.unwrap();
        let _ = socket.read_to_end(&mut Vec::new()).await;
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn other_servers_are_named() {
    for (answer, words) in [
        (&b"\xdfDF-TCP\n\x07\0\0\0"[..], ["version 7", "version 1"]),
        (b"HTTP/1.1 400 Bad Request", ["HTTP/1", ""]),
        (b"\0\0\x12\x04\0\0\0\0\0", ["gRPC", ""]),
        (b"SSH-2.0", ["unknown protocol", ""]),
        (b"", ["before it said anything", ""]),
        (
            b"\xdfDF-TCP\n\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ["T-3", ""],
        ),
    ] {
        let url = server_that_says(answer).await;
        let err = refusal(None, &url).await;
        assert_eq!(ErrorKind::Handshake, err.kind());
        for words in words {
            assert!(err.detail().contains(words), "{err}");
        }
    }
}

/// The server answers with its own version, so that the client can say what is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn another_version_gets_an_answer() {
    let listener = listen(TcpConfig::default(), None);
    for greeting in [&b"\xdfDF-TCP\n\x07\0\0\0"[..], b"GET / HTTP/1.1\r\n"] {
        let addr = listener.local_addr().unwrap();
        let mut socket = TcpStream::connect(addr).await.unwrap();
        socket.write_all(greeting).await.unwrap();
        let mut answer = Vec::new();
        soon(socket.read_to_end(&mut answer)).await.unwrap();
        assert_eq!(32, answer.len());
        assert_eq!(&b"\xdfDF-TCP\n\x01\0\0\0"[..], answer.get(..12).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_no_timeout() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url("127.0.0.1", port.local_addr().unwrap());
    drop(port);
    assert_eq!(ErrorKind::Connect, refusal(None, &url).await.kind());
    let url: Url = "unix:///nowhere/worker.sock".parse().unwrap();
    assert_eq!(ErrorKind::Connect, refusal(None, &url).await.kind());
    let url: Url = "https://127.0.0.1:1".parse().unwrap();
    assert_eq!(ErrorKind::Config, refusal(None, &url).await.kind());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_a_timeout() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url("127.0.0.1", port.local_addr().unwrap());
    let config = TcpConfig {
        handshake_timeout: Duration::from_millis(200),
        ..TcpConfig::default()
    };
    let err = connect(config, None, &url).await.expect_err("connected");
    assert_eq!((ErrorKind::Timeout, url.as_str()), (err.kind(), err.peer()));
}

/// Peers that say nothing, more than there are places for handshakes, keep nobody out.
#[tokio::test(flavor = "multi_thread")]
async fn bad_peers_delay_nobody() {
    let mut listener = listen(TcpConfig::default(), None);
    let addr = listener.local_addr().unwrap();
    let mut dawdlers = Vec::new();
    for _ in 0..300 {
        dawdlers.push(TcpStream::connect(addr).await.unwrap());
    }
    let began = Instant::now();
    let url = url("127.0.0.1", addr);
    let (client, server) = tokio::join!(
        connect(TcpConfig::default(), None, &url),
        soon(listener.accept())
    );
    let (_client, _server) = (client.unwrap(), server.unwrap());
    assert!(began.elapsed() < TcpConfig::default().handshake_timeout / 2);
}
