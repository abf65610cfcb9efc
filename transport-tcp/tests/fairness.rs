//! What a control message waits for: what is in the socket, and one batch of frames; not what bulk streams have queued.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use bytes::Bytes;
use common::{io, send, soon, url};
use datafusion_transport_core::connection::{BiStream, Connector, StreamClass};
use datafusion_transport_tcp::{TcpConfig, TcpConnector};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const FRAME_BYTES: usize = 128 << 10;
/// The writer task takes frames from the streams until it has this much.
const BATCH_BYTES: usize = 64 << 10;
const SOCKET_BYTES: usize = 64 << 10;
/// The kernel doubles what is asked for, to have room for its own.
const IN_SOCKETS_BYTES: usize = 2 * 2 * SOCKET_BYTES;
const MESSAGE: &[u8] = b"overtakes all that waits";

fn config() -> TcpConfig {
    TcpConfig {
        max_frame_bytes: FRAME_BYTES as u32,
        socket_send_buffer_bytes: Some(SOCKET_BYTES),
        ..TcpConfig::default()
    }
}

/// A peer that takes part in the handshake and then reads only when told. Its preamble says: windows and frames of 16 MiB, 100 streams.
async fn peer(listener: TcpListener) -> TcpStream {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut preamble = b"\xdfDF-TCP\n\x01\0\0\0".to_vec();
    for field in [16_u32 << 20, 16 << 20, 100, 16 << 20, 1 << 30] {
        preamble.extend_from_slice(&field.to_le_bytes());
    }
    socket.write_all(&preamble).await.unwrap();
    let mut theirs = [0; 32];
    socket.read_exact(&mut theirs).await.unwrap();
    socket
}

/// Writes until nothing more is taken. Returns how much was.
async fn fill(stream: &mut BiStream) -> usize {
    const OFFERED: usize = 16 << 20;
    let mut chunks = VecDeque::from([Bytes::from(vec![0; OFFERED])]);
    let written = poll_fn(|cx| Poll::Ready(stream.send.poll_write(cx, &mut chunks)));
    let _ = written.await;
    OFFERED - chunks.iter().map(Bytes::len).sum::<usize>()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_message_waits_for_the_socket_and_one_batch() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(SOCKET_BYTES as u32).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = url("127.0.0.1", listener.local_addr().unwrap());
    let connector = TcpConnector::new(config(), None, &io()).unwrap();
    let (client, mut peer) =
        soon(async { tokio::join!(connector.connect(&address), peer(listener)) }).await;
    let client = client.unwrap();
    let mut bulk = Vec::new();
    for _ in 0..3 {
        bulk.push(soon(client.open(StreamClass::Bulk)).await.unwrap());
    }
    let mut control = soon(client.open(StreamClass::Control)).await.unwrap();
    // Until socket and send buffer are full: two rounds in which nothing was taken, and nothing was sent in between.
    let (mut queued, mut sent, mut quiet) = (0, 0, 0);
    while quiet < 20 {
        let mut taken = 0;
        for stream in &mut bulk {
            taken += fill(stream).await;
        }
        queued += taken;
        let now = client.stats().bytes_sent;
        quiet = if taken == 0 && now == sent {
            quiet + 1
        } else {
            0
        };
        sent = now;
        tokio::task::yield_now().await;
    }
    assert!(queued > 4 << 20);
    send(control.send.as_mut(), MESSAGE).await.unwrap();

    let mut before = 0;
    let mut window = Vec::new();
    loop {
        let mut bytes = vec![0; 16 << 10];
        let read = soon(peer.read(&mut bytes)).await.unwrap();
        assert!(read > 0);
        window.extend_from_slice(&bytes[..read]);
        if let Some(place) = window.windows(MESSAGE.len()).position(|w| w == MESSAGE) {
            before += place;
            break;
        }
        let passed = window.len().saturating_sub(MESSAGE.len());
        window.drain(..passed);
        before += passed;
    }
    println!("{before} bytes went before, of {queued}");
    assert!(
        before <= BATCH_BYTES + FRAME_BYTES + IN_SOCKETS_BYTES,
        "{before}"
    );
}
