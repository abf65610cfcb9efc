//! [`Arrival`]: what a connection that was accepted turns out to be, and its handshake if it is this protocol's.

use crate::handshake::{Failure, Fresh, answer, leave};
use crate::http2::{self, H2, Http2Start};
use crate::mux::{Limits, VERSIONED_BYTES};
use crate::socket::{Duplex, release_tcp};
use crate::tls::{ALPN, check_alpn};
use datafusion_transport_core::tls::ServerTls;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) enum Arrival {
    Ours(Duplex, Limits),
    Http2(Http2Start),
}

/// What a listener offers.
pub(crate) struct Offer<'a> {
    pub(crate) tls: Option<&'a ServerTls>,
    pub(crate) limits: Limits,
    /// Somebody takes HTTP/2 connections (T-22).
    pub(crate) http2: bool,
}

const EXPECTS_TLS: &str =
    "this port expects TLS: use an https URL and the certificates of the cluster";
const NO_HTTP2: &str =
    "this port serves the TCP transport of distributed DataFusion alone and no gRPC";

/// The listener's side of a handshake. Bounded in bytes; the caller bounds it in time.
pub(crate) async fn receive(socket: Fresh, offer: &Offer<'_>) -> Result<Arrival, Failure> {
    match (socket, offer.tls) {
        (Fresh::Unix(mut stream), _) => {
            let theirs = answer(&mut stream, Vec::new(), offer.limits).await?;
            Ok(Arrival::Ours(Duplex::unix(stream), theirs))
        }
        (Fresh::Tcp(stream), None) => receive_plain(stream, offer).await,
        (Fresh::Tcp(stream), Some(tls)) => receive_tls(stream, tls, offer).await,
    }
}

async fn receive_plain(mut stream: TcpStream, offer: &Offer<'_>) -> Result<Arrival, Failure> {
    let mut seen = Vec::new();
    let begun = http2::begins(&mut stream, &mut seen, VERSIONED_BYTES).await;
    match (begun.map_err(Failure::io)?, offer.http2) {
        (false, _) => {
            let theirs = answer(&mut stream, seen, offer.limits).await?;
            Ok(Arrival::Ours(Duplex::tcp(stream), theirs))
        }
        (true, true) => {
            let peer = release_tcp(&stream).map_err(Failure::io)?;
            Ok(Arrival::Http2(Http2Start {
                socket: Duplex::tcp(stream),
                seen,
                peer,
                encrypted: false,
            }))
        }
        (true, false) => {
            let _ = http2::refuse(&mut stream, NO_HTTP2).await;
            leave(&mut stream).await;
            Err(Failure::because(
                "the peer speaks HTTP/2 (gRPC), which this port does not serve",
            ))
        }
    }
}

async fn receive_tls(
    mut stream: TcpStream,
    tls: &ServerTls,
    offer: &Offer<'_>,
) -> Result<Arrival, Failure> {
    refuse_plain_http2(&mut stream).await?;
    let protocols: &[&[u8]] = match offer.http2 {
        true => &[ALPN, H2],
        false => &[ALPN],
    };
    let acceptor = TlsAcceptor::from(tls.current(protocols).await);
    let mut stream = acceptor.accept(stream).await.map_err(Failure::io)?;
    let agreed = stream.get_ref().1.alpn_protocol();
    match agreed {
        Some(H2) if offer.http2 => http2_over_tls(stream, Vec::new()),
        None if offer.http2 => {
            // T-23: from clients that know no ALPN.
            let mut seen = Vec::new();
            let begun = http2::begins(&mut stream, &mut seen, VERSIONED_BYTES).await;
            match begun.map_err(Failure::io)? {
                true => http2_over_tls(stream, seen),
                false => Err(Failure::foreign_over_tls(&seen)),
            }
        }
        agreed => {
            check_alpn(agreed).map_err(Failure)?;
            let theirs = answer(&mut stream, Vec::new(), offer.limits).await?;
            Ok(Arrival::Ours(Duplex::split(stream), theirs))
        }
    }
}

fn http2_over_tls(stream: TlsStream<TcpStream>, seen: Vec<u8>) -> Result<Arrival, Failure> {
    let peer = release_tcp(stream.get_ref().0).map_err(Failure::io)?;
    Ok(Arrival::Http2(Http2Start {
        socket: Duplex::split(stream),
        seen,
        peer,
        encrypted: true,
    }))
}

/// T-24: a gRPC client without TLS would make nothing of a TLS alert. No TLS record begins with a `P`.
async fn refuse_plain_http2(stream: &mut TcpStream) -> Result<(), Failure> {
    let mut first = [0];
    let waiting = stream.peek(&mut first).await.map_err(Failure::io)?;
    if waiting == 0 || first != *b"P" {
        return Ok(());
    }
    let begun = http2::begins(stream, &mut Vec::new(), VERSIONED_BYTES).await;
    if begun.map_err(Failure::io)? {
        let _ = http2::refuse(stream, EXPECTS_TLS).await;
        leave(stream).await;
        return Err(Failure::because(
            "the peer speaks HTTP/2 (gRPC) in plaintext and this side requires TLS",
        ));
    }
    Err(Failure::because(
        "the peer does not speak TLS, which this side requires",
    ))
}
