//! [`QuinnRuntime`]: runs quinn's tasks, timers and sockets on one tokio runtime, whoever calls.

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use std::future::Future;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;

/// Quinn's view of the I/O runtime. Without it quinn would use the runtime of whoever calls `connect`, and its drivers
/// would starve behind computing operators.
#[derive(Clone, Debug)]
pub(crate) struct QuinnRuntime(Handle);

impl QuinnRuntime {
    /// Everything will run on the runtime behind `io`, which needs its I/O and time drivers enabled.
    pub(crate) fn new(io: Handle) -> Self {
        Self(io)
    }
}

impl Runtime for QuinnRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let _context = self.0.enter();
        TokioRuntime.new_timer(at)
    }

    /// Quinn owns what it spawns: a driver ends with the last handle to its endpoint or connection.
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        drop(self.0.spawn(driver));
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> std::io::Result<Arc<dyn AsyncUdpSocket>> {
        let _context = self.0.enter();
        TokioRuntime.wrap_udp_socket(socket)
    }
}
