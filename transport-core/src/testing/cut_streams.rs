//! [`cut_streams_cost_nothing`]: what a connection is worth after streams were cut on it.

use super::{drain, send, soon};
use crate::connection::{BiStream, Connection, StreamClass, StreamCode, StreamError, read};
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const STREAMS: usize = 10_000;
/// To be many times a stream's window: a stream that is not cut does not get through.
const DATA_BYTES: usize = 1 << 20;

/// Both ends of a connection.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The end that connected.
    pub client: Arc<dyn Connection>,
    /// The end that accepted.
    pub server: Arc<dyn Connection>,
}

impl Ends {
    async fn stream(&self) -> (BiStream, BiStream) {
        let mut ours = soon(self.client.open(StreamClass::Bulk)).await.unwrap();
        // An opened stream shows itself to the peer only by its first bytes.
        send(ours.send.as_mut(), &b"?"[..]).await.unwrap();
        let mut theirs = soon(self.server.accept()).await.unwrap();
        assert!(soon(read(theirs.recv.as_mut(), 1)).await.unwrap().is_some());
        (ours, theirs)
    }
}

/// Cuts 10,000 streams in mid-data on `used`, in every way there is. After that `places` streams can be open at once, and a transfer
/// many times any window goes through, in about the time that it takes on `fresh`. To be called on a multi-thread runtime.
pub async fn cut_streams_cost_nothing(used: &Ends, fresh: &Ends, places: usize) {
    let server = Arc::clone(&used.server);
    let serving = tokio::spawn(async move {
        let mut calls = JoinSet::new();
        for _ in 0..STREAMS {
            calls.spawn(serve(soon(server.accept()).await.unwrap()));
            while let Some(served) = calls.try_join_next() {
                served.unwrap();
            }
        }
        while let Some(served) = calls.join_next().await {
            served.unwrap();
        }
    });
    let mut calls = JoinSet::new();
    for number in 0..STREAMS {
        // A few at a time, so that cuts of one stream meet data of others.
        if calls.len() >= 8 {
            calls.join_next().await.unwrap().unwrap();
        }
        calls.spawn(call(Arc::clone(&used.client), number));
    }
    while let Some(called) = soon(calls.join_next()).await {
        called.unwrap();
    }
    soon(serving).await.unwrap();

    let mut all = Vec::new();
    for _ in 0..places {
        all.push(used.stream().await);
    }
    drop(all);
    let (used, fresh) = (transfer_time(used).await, transfer_time(fresh).await);
    assert!(
        used < 4 * fresh,
        "{used:?}, on a fresh connection {fresh:?}"
    );
}

/// How a stream of data from server to client is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    ReaderStops,
    ReaderIsDropped,
    BothHalvesOfTheReaderAreDropped,
    WriterResets,
    WriterIsDropped,
    BothHalvesOfTheWriterAreDropped,
}

const CUTS: [Cut; 6] = [
    Cut::ReaderStops,
    Cut::ReaderIsDropped,
    Cut::BothHalvesOfTheReaderAreDropped,
    Cut::WriterResets,
    Cut::WriterIsDropped,
    Cut::BothHalvesOfTheWriterAreDropped,
];

impl Cut {
    fn is_the_writers(self) -> bool {
        use Cut::{BothHalvesOfTheWriterAreDropped, WriterIsDropped, WriterResets};
        matches!(
            self,
            WriterResets | WriterIsDropped | BothHalvesOfTheWriterAreDropped
        )
    }
}

/// Writes what the connection takes at once. That is a part, unless the reader keeps up.
async fn write_a_part(stream: &mut BiStream) {
    let mut chunks = VecDeque::from([Bytes::from(vec![0; DATA_BYTES])]);
    let written = poll_fn(|cx| Poll::Ready(stream.send.poll_write(cx, &mut chunks)));
    assert!(!matches!(written.await, Poll::Ready(Err(_))));
}

async fn serve(mut stream: BiStream) {
    let which = soon(read(stream.recv.as_mut(), 1)).await.unwrap().unwrap();
    let cut = *CUTS.get(usize::from(*which.first().unwrap())).unwrap();
    if !cut.is_the_writers() {
        let cut = soon(send(stream.send.as_mut(), vec![0; DATA_BYTES])).await;
        assert!(matches!(cut, Err(StreamError::Stopped(_))));
        return;
    }
    write_a_part(&mut stream).await;
    match cut {
        Cut::WriterResets => stream.send.reset(StreamCode(77)),
        Cut::WriterIsDropped => {
            drop(stream.send);
            // The request is read to its end, as by one who goes on.
            assert_eq!(0, soon(drain(stream.recv.as_mut())).await.unwrap());
        }
        _ => drop(stream),
    }
}

async fn call(connection: Arc<dyn Connection>, number: usize) {
    let which = number % CUTS.len();
    let mut stream = soon(connection.open(StreamClass::Bulk)).await.unwrap();
    send(stream.send.as_mut(), vec![which as u8]).await.unwrap();
    let cut = *CUTS.get(which).unwrap();
    if cut.is_the_writers() {
        stream.send.finish();
        let err = soon(drain(stream.recv.as_mut())).await.unwrap_err();
        let code = match cut {
            Cut::WriterResets => StreamCode(77),
            _ => StreamCode::ABANDONED,
        };
        assert!(
            matches!(err, StreamError::Reset(got) if got == code),
            "{err}"
        );
        return;
    }
    let first = soon(read(stream.recv.as_mut(), 1000)).await.unwrap();
    assert!(first.is_some());
    match cut {
        Cut::ReaderStops => stream.recv.stop(StreamCode(78)),
        Cut::ReaderIsDropped => {
            drop(stream.recv);
            stream.send.finish();
        }
        _ => drop(stream),
    }
}

/// The best of three: what else the machine does is no matter.
async fn transfer_time(ends: &Ends) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        let (mut ours, mut theirs) = ends.stream().await;
        let writing = tokio::spawn(async move {
            send(theirs.send.as_mut(), vec![0; 32 * DATA_BYTES])
                .await
                .unwrap();
            theirs.send.finish();
        });
        let bytes = soon(drain(ours.recv.as_mut())).await.unwrap();
        assert_eq!(32 * DATA_BYTES, bytes);
        soon(writing).await.unwrap();
        best = best.min(began.elapsed());
    }
    best
}
