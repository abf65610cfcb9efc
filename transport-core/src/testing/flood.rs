//! [`Flood`]: peers that mean no good, many a second, from several addresses of loopback (Linux).

use super::soon;
use crate::connection::Connector;
use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Peers that come from 127.0.0.2 to 127.0.0.9 in turn, 200 a second. One half says no more, the other says what makes no
/// sense; none leaves before some 1000 others have come. Runs on a thread of its own; dropping it ends it.
#[derive(Debug)]
pub struct Flood {
    attempts: Arc<AtomicUsize>,
    held: Arc<Mutex<VecDeque<Peer>>>,
    over: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Peer {
    Tcp(TcpStream),
    Udp(#[allow(dead_code, reason = "keeps its port")] UdpSocket),
}

/// 200 a second.
const INTERVAL: Duration = Duration::from_millis(5);
const SOURCES: usize = 8;
/// More than any listener has places for.
const HELD: usize = 1024;
/// Other protocols, and beginnings of this project's TCP protocol and of TLS.
const NONSENSE: [&[u8]; 5] = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n",
    b"\xdfDF-TCP\n\x01\0\0\0",
    b"\x16\x03\x01\xff\xff\x01",
    &[0; 64],
];

impl Flood {
    /// Floods a TCP port with connections.
    pub fn tcp(target: SocketAddr) -> Self {
        Self::start(async move |number| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(source(number)).unwrap();
            // The kernel may let it wait.
            let connected = timeout(Duration::from_millis(100), socket.connect(target)).await;
            let stream = connected.ok()?.ok()?;
            if number % 2 == 1 {
                stream.writable().await.ok()?;
                let _ = stream.try_write(pick(&NONSENSE, number / 2));
            }
            Some(Peer::Tcp(stream))
        })
    }

    /// Floods a UDP port with these [`first_packets`], and with noise. Nobody reads the answers.
    pub fn udp(target: SocketAddr, first_packets: Vec<Vec<u8>>) -> Self {
        // A long header of an unknown version, too short for an answer.
        let noise = vec![0xc3; 1000];
        Self::start(async move |number| {
            let socket = UdpSocket::bind(source(number)).await.unwrap();
            let datagram = match number % 2 {
                0 => pick(&first_packets, number / 2),
                _ => &noise,
            };
            let _ = socket.send_to(datagram, target).await;
            Some(Peer::Udp(socket))
        })
    }

    fn start(attempt: impl AsyncFn(usize) -> Option<Peer> + Send + 'static) -> Self {
        let attempts = Arc::new(AtomicUsize::new(0));
        let held = Arc::<Mutex<VecDeque<_>>>::default();
        let over = CancellationToken::new();
        let (counter, kept, end) = (Arc::clone(&attempts), Arc::clone(&held), over.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(end.run_until_cancelled(attack(attempt, &counter, &kept)));
        });
        Self {
            attempts,
            held,
            over,
            thread: Some(thread),
        }
    }

    /// Peers that have come so far.
    pub fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Waits until so many more have come.
    pub async fn goes_on(&self, attempts: usize) {
        let enough = self.attempts() + attempts;
        soon(async {
            while self.attempts() < enough {
                tokio::time::sleep(INTERVAL).await;
            }
        })
        .await;
    }

    /// TCP connections that their other side has not closed.
    pub fn open(&self) -> usize {
        let held = self.held.lock().unwrap();
        held.iter().filter(|peer| peer.is_open()).count()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.cancel();
        // If it panicked, say so.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the flood broke off");
        }
    }
}

impl Peer {
    fn is_open(&self) -> bool {
        let Self::Tcp(stream) = self else {
            return false;
        };
        let mut answer = [0; 64];
        loop {
            match stream.try_read(&mut answer) {
                Ok(1..) => {}
                Ok(0) => return false,
                Err(err) => return err.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

async fn attack(
    attempt: impl AsyncFn(usize) -> Option<Peer>,
    attempts: &AtomicUsize,
    held: &Mutex<VecDeque<Peer>>,
) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        let peer = attempt(attempts.load(Ordering::Relaxed)).await;
        attempts.fetch_add(1, Ordering::Relaxed);
        let mut held = held.lock().unwrap();
        held.extend(peer);
        let surplus = held.len().saturating_sub(HELD);
        held.drain(..surplus);
    }
}

fn source(number: usize) -> SocketAddr {
    let host = u8::try_from(2 + number % SOURCES).unwrap();
    (Ipv4Addr::new(127, 0, 0, host), 0).into()
}

fn pick<T: AsRef<[u8]>>(from: &[T], number: usize) -> &[u8] {
    from.iter()
        .cycle()
        .nth(number % from.len())
        .unwrap()
        .as_ref()
}

/// The first packets of so many QUIC connections that `connector` would make, each good for one handshake that nobody
/// goes on with.
pub async fn first_packets(connector: Arc<dyn Connector>, count: usize) -> Vec<Vec<u8>> {
    let sink = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", sink.local_addr().unwrap());
    let url: url::Url = url.parse().unwrap();
    let mut known = HashSet::new();
    let mut packets = Vec::new();
    while packets.len() < count {
        let (connector, url) = (Arc::clone(&connector), url.clone());
        let dial = async move { connector.connect(&url).await.map(drop) };
        let _dialling = AbortOnDropHandle::new(tokio::spawn(dial));
        loop {
            let mut packet = vec![0; 1500];
            let length = soon(sink.recv(&mut packet)).await.unwrap();
            packet.truncate(length);
            if is_first(&packet, &mut known) {
                packets.push(packet);
                break;
            }
        }
    }
    packets
}

/// Whether it is to a connection ID that is not known yet: what else comes are repetitions, farewells, and empty datagrams
/// that only ask whether anybody is here.
fn is_first(packet: &[u8], known: &mut HashSet<Vec<u8>>) -> bool {
    let id_length = packet.get(5).copied().unwrap_or(0);
    let id = packet.get(6..6 + usize::from(id_length));
    id.is_some_and(|id| known.insert(id.to_vec()))
}
