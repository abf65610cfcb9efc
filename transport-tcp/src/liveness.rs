//! Notices a peer that is silent, or takes nothing of what is written.

use crate::config::TcpConfig;
use crate::link::Link;
use datafusion_transport_core::error::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::{MissedTickBehavior, interval};

/// The idle timeout is counted in this many ticks. Ticks and not time: after a pause of this whole process one tick
/// has passed, and what arrived meanwhile is read before the next.
const TICKS: u32 = 10;
/// The peer is lost after so many without a sign; the first may have been nearly over, so it is less than all.
const LOST_AFTER_TICKS: u32 = TICKS - 2;

/// Runs until the connection is lost.
pub(crate) async fn run(link: Arc<Link>, config: TcpConfig) {
    let tick = config.idle_timeout / TICKS;
    let pings_every = config.keep_alive_interval.div_duration_f64(tick).floor() as u32;
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let traffic = &link.traffic;
    let (mut received, mut sent) = (0, 0);
    let (mut silent, mut stalled) = (0, 0);
    for number in 0_u32.. {
        ticks.tick().await;
        let received_now = traffic.received.load(Ordering::Relaxed);
        let sent_now = traffic.sent.load(Ordering::Relaxed);
        let writing = traffic.writing.load(Ordering::Relaxed);
        silent = if received_now == received {
            silent + 1
        } else {
            0
        };
        stalled = if writing && sent_now == sent {
            stalled + 1
        } else {
            0
        };
        (received, sent) = (received_now, sent_now);
        let idle = config.idle_timeout;
        if stalled >= LOST_AFTER_TICKS {
            let detail =
                format!("a write made no progress for {idle:?}: the peer is stuck or unreachable");
            return link.fail(ErrorKind::ConnectionLost, detail, None);
        }
        if silent >= LOST_AFTER_TICKS {
            let detail = format!("no answer for {idle:?}: the peer is silent or unreachable");
            return link.fail(ErrorKind::ConnectionLost, detail, None);
        }
        if number % pings_every.max(1) == 0 {
            link.with(|state, wakes| state.send_ping(traffic.ping(), wakes));
        }
    }
}
