//! [`ExemptClose`]: a congestion controller that does not hold up the last packet.

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Lets a connection's close leave although its congestion window is full.
///
/// Quinn holds a close back like data, and once closed it counts no acknowledgements any more: a connection that is
/// closed with a full window, as under load, would never tell its peer, who would wait for the idle timeout.
pub(crate) fn exempt_close(connection: &quinn::Connection) {
    if let Ok(controller) = connection
        .congestion_state()
        .into_any()
        .downcast::<ExemptClose>()
    {
        controller.closing.store(true, Ordering::Relaxed);
    }
}

/// Builds controllers that [`exempt_close`] knows.
pub(crate) struct ExemptCloseFactory(pub(crate) Arc<dyn ControllerFactory + Send + Sync>);

impl ControllerFactory for ExemptCloseFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(ExemptClose {
            inner: Arc::clone(&self.0).build(now, current_mtu),
            closing: Arc::default(),
        })
    }
}

/// Another controller until the connection closes, no limit from then on.
struct ExemptClose {
    inner: Box<dyn Controller>,
    /// Shared with the copies that quinn hands out.
    closing: Arc<AtomicBool>,
}

impl Controller for ExemptClose {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        // Quinn does not pace a window as large as this either.
        match self.closing.load(Ordering::Relaxed) {
            true => u64::MAX,
            false => self.inner.window(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            closing: Arc::clone(&self.closing),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
