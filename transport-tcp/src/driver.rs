//! The tasks of a connection: reader, writer and liveness, and how they end.

use crate::config::TcpConfig;
use crate::link::Link;
use crate::socket::{Duplex, failure};
use crate::{liveness, reader, writer};
use datafusion_transport_core::error::ErrorKind;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Drives a connection to its end, which comes at most `close_timeout` after it was closed. Runs on the I/O runtime.
/// Dropping the future closes the connection and its socket at once.
pub(crate) async fn drive(link: Arc<Link>, socket: Duplex, config: TcpConfig) {
    let lost = LostRuntime(link);
    let link = &lost.0;
    let max_frame_bytes = config.max_frame_bytes;
    let mut writing = owned(tokio::spawn(writer::run(Arc::clone(link), socket.write)));
    let mut reading = owned(tokio::spawn(reader::run(
        Arc::clone(link),
        socket.read,
        max_frame_bytes,
    )));
    let _liveness = owned(tokio::spawn(liveness::run(
        Arc::clone(link),
        config.clone(),
    )));
    let written = tokio::select! {
        _ = link.closed() => None,
        written = &mut writing => Some(written),
    };
    // The reader may be about to find the reason why nothing can be written.
    if let Some(Ok(Err(err))) = &written {
        let _ = timeout(config.close_timeout, link.closed()).await;
        link.fail(ErrorKind::ConnectionLost, failure(err), None);
        return;
    }
    // Neither task panics; should one, it takes its connection with it.
    link.fail(ErrorKind::ConnectionLost, "this side's I/O failed", None);
    let told = async {
        if written.is_none() {
            let _ = (&mut writing).await;
        }
        // The peer closes in turn. To close before would destroy what it has not read yet.
        let _ = (&mut reading).await;
    };
    if timeout(config.close_timeout, told).await.is_err() {
        tracing::debug!(
            peer = link.peer(),
            "the peer did not confirm that the connection is closed"
        );
    }
}

fn owned<T>(handle: JoinHandle<T>) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(handle)
}

/// Nobody waits for ever on a connection whose driver was dropped.
struct LostRuntime(Arc<Link>);

impl Drop for LostRuntime {
    fn drop(&mut self) {
        let detail = "the I/O runtime of this side is gone";
        self.0.fail(ErrorKind::ConnectionLost, detail, None);
    }
}
