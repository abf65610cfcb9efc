//! [`Throttle`]: warnings about what peers do, which may do it often.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Warnings of one kind, one a second at most: a flood of peers that fail must not become a flood of log lines. Each says
/// how many were left out since the one before it; those are logged at level debug.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the last line was let through.
    last: Option<Instant>,
    suppressed: u64,
}

/// Enough to see that something goes wrong, and what.
const INTERVAL: Duration = Duration::from_secs(1);

impl Throttle {
    /// Logs a warning, or at level debug where there was one less than a second ago.
    pub fn warn(&self, what: impl Display) {
        match self.permit(Instant::now()) {
            Some(0) => tracing::warn!("{what}"),
            Some(suppressed) => {
                tracing::warn!("{what} ({suppressed} more such warnings were suppressed before)");
            }
            None => tracing::debug!("{what}"),
        }
    }

    /// Whether a line may be logged at `now`, and how many were not since the last one that was.
    fn permit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let too_soon = |last| now.saturating_duration_since(last) < INTERVAL;
        if state.last.is_some_and(too_soon) {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_which_says_how_many_were_left_out() {
        let throttle = Throttle::default();
        let began = Instant::now();
        let permits = [0, 1, 999, 1000, 1001, 1999, 2000, 60_000]
            .map(|ms| throttle.permit(began + Duration::from_millis(ms)));
        let some = Some;
        let expected = [some(0), None, None, some(2), None, None, some(2), some(0)];
        assert_eq!(expected, permits);
    }

    #[test]
    fn a_clock_that_another_thread_read_earlier_is_the_same_second() {
        let throttle = Throttle::default();
        let early = Instant::now();
        assert_eq!(Some(0), throttle.permit(early + INTERVAL));
        assert_eq!(None, throttle.permit(early));
    }

    #[test]
    fn kinds_do_not_silence_each_other() {
        let (one, other) = (Throttle::default(), Throttle::default());
        let now = Instant::now();
        assert_eq!(Some(0), one.permit(now));
        assert_eq!(Some(0), other.permit(now));
    }
}
