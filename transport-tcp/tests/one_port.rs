//! One port for this protocol and HTTP/2 (`docs/tcp.md`, T-22 to T-24): each gets its own, and others are told.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Authority, Log, Pair, connected, io, listen, soon, url};
use datafusion_transport_core::connection::{Connector, Listener};
use datafusion_transport_core::error::ErrorKind;
use datafusion_transport_tcp::{
    ClientTls, Http2Connections, Http2Stream, ServerTls, TcpConfig, TcpConnector, TcpListener,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn shared(
    config: TcpConfig,
    tls: Option<ServerTls>,
) -> (TcpListener, Http2Connections, SocketAddr) {
    let any = ([127, 0, 0, 1], 0).into();
    let (listener, http2) = TcpListener::bind_shared(any, config, tls, &io()).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, http2, addr)
}

/// A TLS client that offers `protocols`.
async fn over_tls(addr: SocketAddr, tls: ClientTls, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
    let connector = TlsConnector::from(tls.current(protocols).await);
    let name = "127.0.0.1".try_into().unwrap();
    let socket = TcpStream::connect(addr).await.unwrap();
    connector.connect(name, socket).await.unwrap()
}

/// The server's side has what the client's says, from the first byte on, and answers.
async fn talk(client: &mut (impl AsyncRead + AsyncWrite + Unpin), server: &mut Http2Stream) {
    client.write_all(b"and so on").await.unwrap();
    client.flush().await.unwrap();
    let mut heard = vec![0; PREFACE.len() + 9];
    soon(server.read_exact(&mut heard)).await.unwrap();
    assert_eq!([PREFACE, b"and so on"].concat(), heard);
    server.write_all(b"answer").await.unwrap();
    server.shutdown().await.unwrap();
    let mut answer = Vec::new();
    soon(client.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(&b"answer"[..], answer);
}

/// What the server answers until it closes, which it does at once.
async fn answer(mut client: impl AsyncRead + AsyncWrite + Unpin, says: &[u8]) -> Vec<u8> {
    let began = Instant::now();
    client.write_all(says).await.unwrap();
    let mut answer = Vec::new();
    // A close while bytes are under way may be a reset.
    let _ = soon(client.read_to_end(&mut answer)).await;
    assert!(began.elapsed() < TcpConfig::default().handshake_timeout / 2);
    answer
}

async fn ours(listener: TcpListener, tls: Option<ClientTls>) -> TcpListener {
    let url = url("127.0.0.1", listener.local_addr().unwrap());
    let pair = connected(listener, &url, TcpConfig::default(), tls).await;
    pair.transfer(1 << 20).await;
    let Pair { listener, .. } = pair;
    listener
}

#[tokio::test(flavor = "multi_thread")]
async fn each_protocol_gets_its_own() {
    let (listener, mut http2, addr) = shared(TcpConfig::default(), None);
    let _listener = ours(listener, None).await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    // In pieces: a single `P` decides nothing.
    for piece in [&PREFACE[..1], &PREFACE[1..13], &PREFACE[13..]] {
        client.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut server = soon(http2.accept()).await.unwrap();
    assert_eq!(client.local_addr().unwrap(), server.peer());
    assert!(!server.is_encrypted());
    talk(&mut client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_protocol_gets_its_own_over_tls() {
    let authority = Authority::new();
    let tls = authority.mutual_server("127.0.0.1");
    let client_tls = authority.client_of(&authority);
    let (listener, mut http2, addr) = shared(TcpConfig::default(), Some(tls));
    let _listener = ours(listener, Some(client_tls.clone())).await;
    for protocols in [&[&b"h2"[..]][..], &[b"http/1.1", b"h2"], &[]] {
        let mut client = over_tls(addr, client_tls.clone(), protocols).await;
        client.write_all(PREFACE).await.unwrap();
        let mut server = soon(http2.accept()).await.unwrap();
        assert!(server.is_encrypted());
        talk(&mut client, &mut server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_clients_need_a_certificate_too() {
    let authority = Authority::new();
    let tls = authority.mutual_server("127.0.0.1");
    let (mut listener, mut http2, addr) = shared(TcpConfig::default(), Some(tls));
    for protocols in [&[&b"h2"[..]][..], &[]] {
        // In TLS 1.3 the client is done before the server has seen what it lacks.
        let client = over_tls(addr, authority.client(), protocols).await;
        assert!(answer(client, PREFACE).await.is_empty());
    }
    soon(listener.close()).await;
    assert!(soon(http2.accept()).await.is_none());
}

#[tokio::test]
async fn others_are_closed_and_named() {
    let log = Log::capture();
    let (_listener, _http2, addr) = shared(TcpConfig::default(), None);
    for (says, words) in [
        (&b"SSH-2.0-OpenSSH\r\n"[..], "began `SSH-2.0-Open`"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1"),
        (b"PRI * HTTP/1.1\r\n\r\n", "began `PRI * HTTP/1`"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\0", "expects TLS"),
        (b"\xdfDF-TCP\n\x07\0\0\0", "version 7"),
    ] {
        let client = TcpStream::connect(addr).await.unwrap();
        let peer = client.local_addr().unwrap().to_string();
        answer(client, says).await;
        log.wait_for(&[words, &peer]).await;
    }
}

#[tokio::test]
async fn others_over_tls_are_closed_and_named() {
    let log = Log::capture();
    let authority = Authority::new();
    let tls = authority.server("127.0.0.1");
    let (_listener, _http2, addr) = shared(TcpConfig::default(), Some(tls));
    let client = over_tls(addr, authority.client(), &[]).await;
    answer(client, b"SSH-2.0-OpenSSH\r\n").await;
    log.wait_for(&["named no protocol", "began `SSH-2.0-Open`"])
        .await;
    // This protocol is not guessed: it must be named (T-20).
    let client = over_tls(addr, authority.client(), &[]).await;
    answer(client, b"\xdfDF-TCP\n\x01\0\0\0").await;
    log.wait_for(&["named no protocol", r"began `\xdfDF-TCP\n"])
        .await;
    let client = TcpStream::connect(addr).await.unwrap();
    answer(client, b"GET / HTTP/1.1\r\n\r\n").await;
    log.wait_for(&["does not speak TLS"]).await;
    let client = TcpStream::connect(addr).await.unwrap();
    answer(client, b"POST / HTTP/1.1\r\n\r\n").await;
    log.wait_for(&["does not speak TLS, which this side requires"])
        .await;
}

/// Of a client; empty.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const HEADERS: &[u8] = &[0, 0, 0, 1, 4, 0, 0, 0, 1];

/// In the frames of HTTP/2, so that a gRPC client can show the words.
fn refused_in_words(answer: &[u8], words: &str) {
    let frames = answer.strip_prefix(SETTINGS).unwrap();
    let (go_away, rest) = frames.split_at(9);
    assert_eq!([0, 0, rest.len() as u8, 7, 0, 0, 0, 0, 0], go_away);
    assert_eq!([0, 0, 0, 0, 0, 0, 0, 1], rest[..8]);
    let reason = std::str::from_utf8(&rest[8..]).unwrap();
    assert!(reason.contains(words), "{reason}");
}

#[tokio::test]
async fn http2_is_refused_in_words_where_nobody_serves_it() {
    let log = Log::capture();
    let alone = listen(TcpConfig::default(), None);
    let (shared, http2, _) = shared(TcpConfig::default(), None);
    drop(http2);
    for listener in [alone, shared] {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let answer = answer(client.unwrap(), &[PREFACE, SETTINGS, HEADERS].concat()).await;
        refused_in_words(&answer, "no gRPC");
        log.wait_for(&["HTTP/2 (gRPC), which this port does not serve"])
            .await;
        log.clear();
    }
}

#[tokio::test]
async fn plaintext_http2_at_a_tls_port_is_refused_in_words() {
    let log = Log::capture();
    let authority = Authority::new();
    let alone = listen(TcpConfig::default(), Some(authority.server("127.0.0.1")));
    let tls = authority.server("127.0.0.1");
    let (shared, mut http2, _) = shared(TcpConfig::default(), Some(tls));
    for mut listener in [alone, shared] {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        refused_in_words(&answer(client.unwrap(), PREFACE).await, "expects TLS");
        log.wait_for(&["HTTP/2 (gRPC) in plaintext and this side requires TLS"])
            .await;
        log.clear();
        soon(listener.close()).await;
    }
    assert!(soon(http2.accept()).await.is_none());
}

/// A client that was refused before it asked for anything would not show the reason.
#[tokio::test]
async fn a_refusal_waits_for_the_request() {
    const WAIT: Duration = Duration::from_millis(500);
    let listener = listen(TcpConfig::default(), None);
    let refused_after = async |says: &[&[u8]]| {
        let began = Instant::now();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        refused_in_words(&answer(client.unwrap(), &says.concat()).await, "no gRPC");
        began.elapsed()
    };
    assert!(refused_after(&[PREFACE, SETTINGS]).await >= WAIT);
    // Not at the first try where the machine is busy.
    for _ in 0..20 {
        if refused_after(&[PREFACE, SETTINGS, HEADERS]).await < WAIT {
            return;
        }
    }
    panic!("it waits although the request is there");
}

/// This one sends much, and asks for nothing.
#[tokio::test]
async fn a_refusal_reads_no_more_than_a_request_needs() {
    const WAIT: Duration = Duration::from_millis(500);
    // A frame of a kind that nobody knows, longer than all that is read.
    let filler = [&[0, 0x60, 0, 99, 0, 0, 0, 0, 0][..], &[0; 0x6000]].concat();
    let listener = listen(TcpConfig::default(), None);
    // Not at the first try where the machine is busy.
    for _ in 0..20 {
        let began = Instant::now();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let says = [PREFACE, SETTINGS, &filler].concat();
        refused_in_words(&answer(client.unwrap(), &says).await, "no gRPC");
        if began.elapsed() < WAIT {
            return;
        }
    }
    panic!("it waits for a request although it was sent too much");
}

/// Without the option `h2` is not even agreed on.
#[tokio::test(flavor = "multi_thread")]
async fn http2_over_tls_is_refused_where_nobody_serves_it() {
    let authority = Authority::new();
    let listener = listen(TcpConfig::default(), Some(authority.server("127.0.0.1")));
    let config = authority.client().current(&[b"h2"]).await;
    let socket = TcpStream::connect(listener.local_addr().unwrap()).await;
    let name = "127.0.0.1".try_into().unwrap();
    let connecting = TlsConnector::from(config).connect(name, socket.unwrap());
    let err = soon(connecting).await.unwrap_err();
    assert!(err.to_string().contains("NoApplicationProtocol"), "{err}");
}

/// Plaintext and TLS are mixed up: both sides say so.
#[tokio::test]
async fn tls_on_one_side_only_is_named_on_both() {
    let log = Log::capture();
    let authority = Authority::new();
    let (server_tls, client_tls) = (authority.server("127.0.0.1"), authority.client());
    for (server, client, theirs, words) in [
        (Some(server_tls), None, "expects TLS", "does not speak TLS"),
        (None, Some(client_tls), "does not speak TLS", "expects TLS"),
    ] {
        let (_listener, _http2, addr) = shared(TcpConfig::default(), server);
        let connector = TcpConnector::new(TcpConfig::default(), client, &io()).unwrap();
        let began = Instant::now();
        let err = soon(connector.connect(&url("127.0.0.1", addr)))
            .await
            .err()
            .unwrap();
        assert_eq!(ErrorKind::Handshake, err.kind());
        assert!(err.detail().contains(theirs), "{err}");
        log.wait_for(&[words]).await;
        assert!(began.elapsed() < TcpConfig::default().handshake_timeout / 2);
        log.clear();
    }
}

/// Some began to speak HTTP/2, some to shake hands, and all stopped.
#[tokio::test(flavor = "multi_thread")]
async fn dawdlers_keep_nobody_out() {
    let (listener, mut http2, addr) = shared(TcpConfig::default(), None);
    let mut dawdlers = Vec::new();
    for number in 0..300 {
        let mut dawdler = TcpStream::connect(addr).await.unwrap();
        dawdler.write_all(&PREFACE[..number % 24]).await.unwrap();
        dawdlers.push(dawdler);
    }
    let began = Instant::now();
    let _listener = ours(listener, None).await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(PREFACE).await.unwrap();
    let mut server = soon(http2.accept()).await.unwrap();
    talk(&mut client, &mut server).await;
    assert!(began.elapsed() < TcpConfig::default().handshake_timeout / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_say_what_it_is_is_closed_in_time() {
    let config = TcpConfig {
        handshake_timeout: Duration::from_millis(300),
        ..TcpConfig::default()
    };
    let authority = Authority::new();
    let (_plain, _http2, plain) = shared(config.clone(), None);
    let (_tls, _http2_tls, tls) = shared(config.clone(), Some(authority.server("127.0.0.1")));
    for (addr, says) in [
        (plain, &b""[..]),
        (plain, &PREFACE[..20]),
        (tls, b""),
        (tls, b"PRI"),
    ] {
        let began = Instant::now();
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(says).await.unwrap();
        soon(client.read_to_end(&mut Vec::new())).await.unwrap_or(0);
        assert!(began.elapsed() >= config.handshake_timeout);
    }
    let began = Instant::now();
    let mut client = over_tls(tls, authority.client(), &[]).await;
    let _ = soon(client.read_to_end(&mut Vec::new())).await;
    assert!(began.elapsed() >= config.handshake_timeout);
}

/// As many as wait for the other server are kept, and one more for as long as a handshake may take.
#[tokio::test(flavor = "multi_thread")]
async fn http2_connections_that_nobody_takes_are_closed() {
    const BACKLOG: usize = 64;
    let config = TcpConfig {
        handshake_timeout: Duration::from_millis(300),
        ..TcpConfig::default()
    };
    let (listener, mut http2, addr) = shared(config, None);
    let mut clients = Vec::new();
    for _ in 0..=BACKLOG {
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(PREFACE).await.unwrap();
        clients.push(client);
    }
    let is_closed = |client: &TcpStream| match client.try_read(&mut [0]) {
        Ok(read) => read == 0,
        Err(err) => err.kind() != std::io::ErrorKind::WouldBlock,
    };
    let closed = || clients.iter().filter(|client| is_closed(client)).count();
    soon(async {
        while closed() == 0 || listener.handshakes() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(1, closed());
    for _ in 0..BACKLOG {
        soon(http2.accept()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_outlive_the_listener() {
    let (mut listener, mut http2, addr) = shared(TcpConfig::default(), None);
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(PREFACE).await.unwrap();
    let mut server = soon(http2.accept()).await.unwrap();
    soon(listener.close()).await;
    assert!(soon(http2.accept()).await.is_none());
    talk(&mut client, &mut server).await;
}
