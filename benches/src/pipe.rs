//! [`Pipe`]: two multiplexers with a pipe in memory between them, to measure them without a network.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{BiStream, Connection, StreamClass, read, write};
use datafusion_transport_tcp::{Multiplexer, TcpConfig};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Of the pipe; as much as a socket has.
const PIPE_BYTES: usize = 1 << 20;

/// A connection and a stream on it, all on the caller's runtime.
pub struct Pipe {
    near: Arc<dyn Connection>,
    far: Arc<dyn Connection>,
    sends: BiStream,
    receives: BiStream,
    _multiplexer: Multiplexer,
}

impl Pipe {
    /// Connects both ends and opens a stream.
    pub async fn connect() -> Self {
        let io = IoRuntime::from_handle(Handle::current());
        let multiplexer = Multiplexer::new(TcpConfig::default(), &io).unwrap();
        let (one, other) = tokio::io::duplex(PIPE_BYTES);
        let (near, far) = tokio::join!(
            multiplexer.connect(one, "pipe://near"),
            multiplexer.accept(other, "pipe://far"),
        );
        let (near, far) = (near.unwrap(), far.unwrap());
        let mut sends = near.open(StreamClass::Bulk).await.unwrap();
        let mut first = VecDeque::from([Bytes::from_static(b"!")]);
        write(&mut *sends.send, &mut first).await.unwrap();
        let mut receives = far.accept().await.unwrap();
        read(&mut *receives.recv, 1).await.unwrap();
        Self {
            near,
            far,
            sends,
            receives,
            _multiplexer: multiplexer,
        }
    }

    /// A message from one end to the other, on the stream that is open.
    pub async fn carry(&mut self, message: Bytes) {
        let length = message.len();
        let sent = async {
            let mut chunks = VecDeque::from([message]);
            write(&mut *self.sends.send, &mut chunks).await.unwrap();
        };
        let arrived = async {
            let mut arrived = 0;
            while arrived < length {
                let chunk = read(&mut *self.receives.recv, usize::MAX).await.unwrap();
                arrived += chunk.unwrap().len();
            }
        };
        tokio::join!(sent, arrived);
    }

    /// A stream of its own: a byte there, a byte back, the end.
    pub async fn call(&self) {
        let mut asks = self.near.open(StreamClass::Bulk).await.unwrap();
        let byte = || VecDeque::from([Bytes::from_static(b"?")]);
        write(&mut *asks.send, &mut byte()).await.unwrap();
        let mut answers = self.far.accept().await.unwrap();
        read(&mut *answers.recv, 1).await.unwrap();
        write(&mut *answers.send, &mut byte()).await.unwrap();
        answers.send.finish();
        while read(&mut *asks.recv, 1).await.unwrap().is_some() {}
        asks.send.finish();
        while read(&mut *answers.recv, 1).await.unwrap().is_some() {}
    }
}
