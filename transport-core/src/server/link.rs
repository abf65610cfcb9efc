//! [`Link`]: how fast a connection takes bytes while it is what everybody waits for.
//!
//! Only the time counts in which some writer is blocked by the transport's own flow control. A wait for credit is not seen here: it
//! means that the consumer is slow. A link that blocks nobody isn't slow, whatever little it carries.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A window of observation ends after this many bytes: many packets and some batches, and a tenth of a second at 10 MB/s.
const WINDOW_BYTES: u64 = 1 << 20;

/// Or after so much blocked time, so that a link that is slower still shows itself soon.
const WINDOW_BLOCKED: Duration = Duration::from_millis(100);

/// A rate that was not confirmed while batches of this much were compressed is forgotten. Compressed, they may no longer fill the link, and then
/// nothing is learned of it: the next window, and what the transport buffers besides, goes uncompressed and tells. That is less than a tenth.
const FORGET_BYTES: u64 = 64 << 20;

/// What all streams of a connection observe together.
#[derive(Debug, Default)]
pub(super) struct Link(Mutex<Observed>);

/// Marks a writer as blocked until it is dropped.
pub(super) struct Blocked<'a> {
    link: &'a Link,
    bytes: u64,
}

/// A frame that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) wire_bytes: u64,
    /// What its batch was before it was compressed; `None` where it was not.
    pub(super) compressed_from: Option<u64>,
}

#[derive(Debug, Default)]
struct Observed {
    /// Writers that are blocked now.
    blocked: usize,
    /// Since when some writer is, as far as not counted yet.
    since: Option<Instant>,
    window: Window,
    /// Bytes per second, where the link was what held up its writers of late.
    rate: Option<f64>,
    /// Bytes of batches, before compression, since the rate was last confirmed.
    unconfirmed_bytes: u64,
}

#[derive(Debug, Default)]
struct Window {
    bytes: u64,
    /// Those that a writer had to wait for.
    blocked_bytes: u64,
    blocked_time: Duration,
}

impl Link {
    /// Wire bytes per second, or `None` for a link that holds up nobody.
    pub(super) fn rate(&self) -> Option<f64> {
        self.lock().rate
    }

    /// A writer is blocked with this many bytes left to write.
    pub(super) fn block(&self, bytes: u64) -> Blocked<'_> {
        self.lock().block(Instant::now());
        Blocked { link: self, bytes }
    }

    /// A frame was written, the last of it after the wait that `blocked` stands for.
    pub(super) fn sent(&self, frame: Sent, blocked: Option<Blocked<'_>>) {
        let blocked_bytes = blocked.as_ref().map_or(0, |blocked| blocked.bytes);
        drop(blocked);
        self.lock().sent(frame, blocked_bytes, Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.link.lock().unblock(Instant::now());
    }
}

impl Observed {
    fn block(&mut self, now: Instant) {
        self.blocked += 1;
        self.since.get_or_insert(now);
    }

    fn unblock(&mut self, now: Instant) {
        self.count_time(now);
        self.blocked = self.blocked.saturating_sub(1);
        if self.blocked == 0 {
            self.since = None;
        }
    }

    /// Time in which several writers are blocked counts once.
    fn count_time(&mut self, now: Instant) {
        if let Some(since) = &mut self.since {
            self.window.blocked_time += now.saturating_duration_since(*since);
            *since = now;
        }
    }

    fn sent(&mut self, frame: Sent, blocked_bytes: u64, now: Instant) {
        self.count_time(now);
        self.window.bytes += frame.wire_bytes;
        self.window.blocked_bytes += blocked_bytes;
        self.unconfirmed_bytes += frame.compressed_from.unwrap_or(0);
        if self.window.bytes >= WINDOW_BYTES || self.window.blocked_time >= WINDOW_BLOCKED {
            match std::mem::take(&mut self.window).rate() {
                Some(rate) => {
                    self.rate = Some(self.rate.map_or(rate, |before| (before + rate) / 2.0));
                    self.unconfirmed_bytes = 0;
                }
                None if frame.compressed_from.is_none() => self.rate = None,
                None => {}
            }
        }
        if self.unconfirmed_bytes >= FORGET_BYTES {
            self.rate = None;
            self.unconfirmed_bytes = 0;
        }
    }
}

impl Window {
    /// Where most bytes had to wait, the link was full.
    fn rate(&self) -> Option<f64> {
        let full = self.blocked_bytes * 2 >= self.bytes && !self.blocked_time.is_zero();
        full.then(|| self.blocked_bytes as f64 / self.blocked_time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Writes of 100 kB each, of which all bytes wait for a link of this rate; `None`: none does.
    fn send(
        link: &mut Observed,
        now: &mut Instant,
        bytes: u64,
        rate: Option<u64>,
        compressed: bool,
    ) {
        for _ in 0..bytes / 100_000 {
            let blocked_bytes = rate.map_or(0, |rate| {
                link.block(*now);
                *now += Duration::from_secs_f64(100_000.0 / rate as f64);
                link.unblock(*now);
                100_000
            });
            *now += Duration::from_millis(5);
            link.sent(frame(100_000, compressed), blocked_bytes, *now);
        }
    }

    /// Compressed, it is a fifth of what it was.
    fn frame(wire_bytes: u64, compressed: bool) -> Sent {
        Sent {
            wire_bytes,
            compressed_from: compressed.then_some(wire_bytes * 5),
        }
    }

    fn is_about(rate: Option<f64>, expected: u64) -> bool {
        rate.is_some_and(|rate| (rate / expected as f64 - 1.0).abs() < 0.1)
    }

    #[test]
    fn only_blocked_time_counts() {
        let (mut link, mut now) = (Observed::default(), Instant::now());
        send(&mut link, &mut now, 5 * MB, Some(10 * MB), false);
        assert!(is_about(link.rate, 10 * MB), "{link:?}");
    }

    #[test]
    fn a_link_that_blocks_nobody_is_not_slow() {
        let (mut link, mut now) = (Observed::default(), Instant::now());
        send(&mut link, &mut now, 50 * MB, None, false);
        assert_eq!(link.rate, None);
    }

    #[test]
    fn the_rate_follows_a_link_that_changes() {
        let (mut link, mut now) = (Observed::default(), Instant::now());
        send(&mut link, &mut now, 5 * MB, Some(10 * MB), true);
        send(&mut link, &mut now, 20 * MB, Some(500 * MB), true);
        assert!(is_about(link.rate, 500 * MB), "{link:?}");
        send(&mut link, &mut now, 5 * MB, None, false);
        assert_eq!(link.rate, None, "uncompressed, it would have been full");
    }

    #[test]
    fn compressed_bytes_that_leave_the_link_idle_say_nothing_for_a_while() {
        let (mut link, mut now) = (Observed::default(), Instant::now());
        send(&mut link, &mut now, 5 * MB, Some(10 * MB), false);
        send(&mut link, &mut now, 10 * MB, None, true);
        assert!(is_about(link.rate, 10 * MB), "{link:?}");
        send(&mut link, &mut now, 10 * MB, None, true);
        assert_eq!(link.rate, None, "time to look again");
    }

    #[test]
    fn writers_that_are_blocked_together_share_the_link() {
        let (mut link, begun) = (Observed::default(), Instant::now());
        let mut now = begun;
        for _ in 0..40 {
            link.block(now);
            link.block(now);
            now += Duration::from_millis(10);
            link.unblock(now);
            link.sent(frame(50_000, false), 50_000, now);
            link.unblock(now);
            link.sent(frame(50_000, false), 50_000, now);
        }
        assert!(is_about(link.rate, 10 * MB), "{link:?}");
    }

    #[test]
    fn a_very_slow_link_shows_itself_before_a_window_is_full() {
        let (mut link, mut now) = (Observed::default(), Instant::now());
        send(&mut link, &mut now, 100_000, Some(MB / 2), false);
        assert!(is_about(link.rate, MB / 2), "{link:?}");
    }
}
