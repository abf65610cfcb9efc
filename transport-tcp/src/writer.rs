//! The writer task: from the streams to the socket.

use crate::link::Link;
use crate::mux::Outgoing;
use crate::socket::BoxWrite;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncWriteExt;

/// Frames are taken from the streams until there is this much: what comes after, however urgent, waits for it, and for the
/// rest of the last frame. A system call for so many bytes costs little by itself.
const BATCH_BYTES: usize = 64 * 1024;
/// Slices of one system call.
const MAX_SLICES: usize = 64;

/// Writes until the connection is closed and the peer was told why.
pub(crate) async fn run(link: Arc<Link>, mut socket: BoxWrite) -> io::Result<()> {
    let mut out = Outgoing::default();
    loop {
        out.clear();
        let filled = poll_fn(|cx| {
            link.with(|state, wakes| state.poll_fill(cx, &mut out, BATCH_BYTES, wakes))
        });
        if !filled.await {
            return socket.shutdown().await;
        }
        link.traffic.writing.store(true, Ordering::Relaxed);
        write_all(&link, &mut socket, &mut out.slices).await?;
        socket.flush().await?;
        link.traffic.writing.store(false, Ordering::Relaxed);
    }
}

async fn write_all(
    link: &Link,
    socket: &mut BoxWrite,
    slices: &mut VecDeque<Bytes>,
) -> io::Result<()> {
    while !slices.is_empty() {
        let mut vector = [IoSlice::new(&[]); MAX_SLICES];
        let used = slices.len().min(MAX_SLICES);
        for (target, slice) in vector.iter_mut().zip(slices.iter()) {
            *target = IoSlice::new(slice);
        }
        let written = socket
            .write_vectored(vector.get(..used).unwrap_or_default())
            .await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        link.traffic
            .sent
            .fetch_add(written as u64, Ordering::Relaxed);
        advance(slices, written);
    }
    Ok(())
}

fn advance(slices: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(first) = slices.front_mut() {
        if first.len() > written {
            return first.advance(written);
        }
        written -= first.len();
        slices.pop_front();
    }
}
