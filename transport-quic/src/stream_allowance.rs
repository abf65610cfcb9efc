//! [`StreamAllowance`]: how many streams the peer may have open, raised while many are.

use std::sync::{Arc, Mutex, PoisonError};

/// Quinn keeps a table entry for every stream that the peer is allowed to open, so the allowance starts moderate.
/// When half of it is in use it doubles, up to a limit: a peer with many streams waits a few round trips once, and
/// an idle connection costs little.
#[derive(Debug)]
pub(crate) struct StreamAllowance {
    max: u32,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    open: u32,
    allowed: u32,
}

/// A stream that the peer opened; counted until dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<StreamAllowance>);

impl StreamAllowance {
    /// `initial` is what the peer was already told.
    pub(crate) fn new(initial: u32, max: u32) -> Self {
        Self {
            max,
            counts: Mutex::new(Counts {
                open: 0,
                allowed: initial,
            }),
        }
    }

    /// Counts a stream that the peer opened, and calls `raise` with the new allowance when it grows.
    pub(crate) fn opened(this: &Arc<Self>, raise: impl FnOnce(u32)) -> OpenStream {
        let stream = OpenStream(Arc::clone(this));
        this.update(|counts| {
            counts.open = counts.open.saturating_add(1);
            if counts.open >= counts.allowed / 2 && counts.allowed < this.max {
                counts.allowed = counts.allowed.saturating_mul(2).min(this.max);
                // Under the lock: a smaller allowance must not overtake a larger one.
                raise(counts.allowed);
            }
        });
        stream
    }

    fn update(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0
            .update(|counts| counts.open = counts.open.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_at_half_and_stops_at_the_limit() {
        let allowance = Arc::new(StreamAllowance::new(4, 10));
        let mut raised = Vec::new();
        let open: Vec<_> = (0..20)
            .map(|_| StreamAllowance::opened(&allowance, |allowed| raised.push(allowed)))
            .collect();
        assert_eq!(vec![8, 10], raised);
        drop(open);
        let _stream = StreamAllowance::opened(&allowance, |allowed| raised.push(allowed));
        assert_eq!(2, raised.len());
    }

    #[test]
    fn streams_that_are_gone_do_not_count() {
        let allowance = Arc::new(StreamAllowance::new(4, 100));
        let mut raised = 0;
        for _ in 0..100 {
            drop(StreamAllowance::opened(&allowance, |_| raised += 1));
        }
        assert_eq!(0, raised);
    }
}
