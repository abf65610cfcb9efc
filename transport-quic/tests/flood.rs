//! Handshakes that nobody goes on with, many a second and from several addresses: they hold a bounded number of places, and
//! keep nobody out.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Authority, io, listen, send, soon, url};
use datafusion_transport_core::connection::{Connection, Connector, Listener, StreamClass, read};
use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::testing::{DEADLINE, Flood, first_packets};
use datafusion_transport_quic::{QuicConfig, QuicConnector, QuicListener};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Few places, and silent peers that stay for longer than a test: only the bounds end them.
fn config() -> QuicConfig {
    QuicConfig {
        handshake_timeout: DEADLINE,
        idle_timeout: DEADLINE,
        max_handshakes: 64,
        max_handshakes_per_address: 16,
        ..QuicConfig::default()
    }
}

fn connector(authority: &Authority) -> QuicConnector {
    QuicConnector::new(QuicConfig::default(), authority.client(), &io()).unwrap()
}

/// A client with the default timeouts connects, and its connection works.
async fn honest_client(listener: &mut QuicListener, connector: &QuicConnector) {
    let url = url("127.0.0.1", listener.local_addr());
    let (client, server) = tokio::join!(connector.connect(&url), soon(listener.accept()));
    let (client, server) = (client.unwrap(), server.unwrap());
    let mut ours = soon(client.open(StreamClass::Bulk)).await.unwrap();
    send(ours.send.as_mut(), &b"?"[..]).await.unwrap();
    let mut theirs = soon(server.accept()).await.unwrap();
    let question = soon(read(theirs.recv.as_mut(), 1)).await.unwrap();
    assert_eq!(&b"?"[..], question.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_bounded_and_honest_clients_get_in() {
    let authority = Authority::new();
    let mut listener = listen(config(), authority.server("127.0.0.1"));
    let connector = connector(&authority);
    let packets = first_packets(Arc::new(connector.clone()), 200).await;
    let flood = Flood::udp(listener.local_addr(), packets);
    flood.goes_on(200).await;
    // None of the flood has shown that it receives at its address: the other places stay free.
    let unproven = config().max_handshakes_per_address;
    for _ in 0..20 {
        honest_client(&mut listener, &connector).await;
        in_progress(&listener, unproven).await;
        flood.goes_on(10).await;
    }
}

/// Stands between a client and the listener, and lets through to the client only the listener's first `answers` datagrams.
/// With one, a Retry, the client shows that it receives at the relay's address, and then its handshake comes to rest.
async fn relay(source: [u8; 4], server: SocketAddr, answers: usize) -> (SocketAddr, JoinSet<()>) {
    let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let far = Arc::new(
        UdpSocket::bind(SocketAddr::from((source, 0)))
            .await
            .unwrap(),
    );
    far.connect(server).await.unwrap();
    let here = near.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    let (client_sender, client_address) = tokio::sync::watch::channel(None);
    let (near_in, far_out) = (Arc::clone(&near), Arc::clone(&far));
    tasks.spawn(async move {
        let mut datagram = [0; 2000];
        loop {
            let (length, client) = near_in.recv_from(&mut datagram).await.unwrap();
            // An empty one only asks whether anybody is here, and comes from another port.
            if length > 0 {
                client_sender.send_replace(Some(client));
                let _ = far_out.send(&datagram[..length]).await;
            }
        }
    });
    tasks.spawn(async move {
        let mut datagram = [0; 2000];
        for _ in 0..answers {
            let length = far.recv(&mut datagram).await.unwrap();
            let client = client_address.borrow().unwrap();
            near.send_to(&datagram[..length], client).await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    (here, tasks)
}

/// Handshakes from one address that has shown to be its peers' own, and that come to rest.
struct Stalled {
    dials: JoinSet<Result<Arc<dyn Connection>, TransportError>>,
    relays: Vec<JoinSet<()>>,
}

impl Stalled {
    async fn start(
        count: usize,
        source: [u8; 4],
        listener: &QuicListener,
        by: &QuicConnector,
    ) -> Self {
        let mut stalled = Self {
            dials: JoinSet::new(),
            relays: vec![],
        };
        let before = listener.handshakes();
        for number in 1..=count {
            let (here, tasks) = relay(source, listener.local_addr(), 1).await;
            stalled.relays.push(tasks);
            let (connector, url) = (by.clone(), url("127.0.0.1", here));
            stalled
                .dials
                .spawn(async move { connector.connect(&url).await });
            in_progress(listener, before + number).await;
        }
        stalled
    }
}

async fn in_progress(listener: &QuicListener, count: usize) {
    soon(async {
        while listener.handshakes() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_nobody_goes_on_with_ends_in_time() {
    let authority = Authority::new();
    let config = QuicConfig {
        handshake_timeout: Duration::from_millis(300),
        ..config()
    };
    let listener = listen(config.clone(), authority.server("127.0.0.1"));
    let packets = first_packets(Arc::new(connector(&authority)), 1).await;
    let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let began = Instant::now();
    let packet = packets.first().unwrap();
    peer.send_to(packet, listener.local_addr()).await.unwrap();
    in_progress(&listener, 1).await;
    in_progress(&listener, 0).await;
    let took = began.elapsed();
    assert!(
        (config.handshake_timeout..DEADLINE / 2).contains(&took),
        "{took:?}"
    );
}

/// Everybody is asked to show that it receives at its address.
fn always_validating() -> QuicConfig {
    QuicConfig {
        max_handshakes: 3,
        max_handshakes_per_address: 2,
        ..config()
    }
}

fn patient(authority: &Authority) -> QuicConnector {
    QuicConnector::new(config(), authority.client(), &io()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_over_its_share_is_refused_and_told() {
    let authority = Authority::new();
    let mut listener = listen(always_validating(), authority.server("127.0.0.1"));
    let patient = patient(&authority);
    let other = [127, 0, 0, 2];
    let _stalled = Stalled::start(2, other, &listener, &patient).await;
    // Nothing is wrong with this one but where it comes from.
    let (here, _relay) = relay(other, listener.local_addr(), usize::MAX).await;
    let refused = soon(patient.connect(&url("127.0.0.1", here))).await;
    let err = refused.err().unwrap();
    assert_eq!(ErrorKind::Connect, err.kind());
    assert!(err.detail().contains("too many handshakes"), "{err}");
    assert_eq!(2, listener.handshakes());
    honest_client(&mut listener, &connector(&authority)).await;
    in_progress(&listener, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_places_are_taken_the_address_with_most_makes_room() {
    let authority = Authority::new();
    let mut listener = listen(always_validating(), authority.server("127.0.0.1"));
    let patient = patient(&authority);
    let _most = Stalled::start(2, [127, 0, 0, 2], &listener, &patient).await;
    let _one = Stalled::start(1, [127, 0, 0, 3], &listener, &patient).await;
    assert_eq!(3, listener.handshakes());
    honest_client(&mut listener, &connector(&authority)).await;
    in_progress(&listener, 2).await;
}
