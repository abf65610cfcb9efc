//! [`Window`]: how much one partition may have under way and unread (`docs/protocol.md`, R-1 to R-6).
//!
//! A call's partitions share the engine's budget. Each starts with a small window, reserved in the memory pool, and
//! doubles it up to its share only when the worker was held up by the window while the reader was waiting: where the
//! reader is the slow one, memory stays small.

use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::Gauge;
use std::sync::Arc;

/// the least a partition gets, whatever the budget: a batch of usual size in a few pieces.
pub(crate) const MIN_WINDOW_BYTES: usize = 64 * 1024;

/// what a window starts with, where the share allows it: a round trip of 1 ms at 10 Gbit/s.
const INITIAL_WINDOW_BYTES: usize = 1024 * 1024;

/// A call's memory: the pool's reservation, and the boundary's gauge of its peak.
#[derive(Clone)]
pub(crate) struct CallMemory {
    reservation: Arc<MemoryReservation>,
    peak: Gauge,
    share_bytes: usize,
}

impl CallMemory {
    /// Divides `budget_bytes` among `partitions`.
    pub(crate) fn new(
        reservation: MemoryReservation,
        peak: Gauge,
        budget_bytes: usize,
        partitions: usize,
    ) -> Self {
        Self::with_share(reservation, peak, budget_bytes / partitions.max(1))
    }

    /// Gives each partition up to `share_bytes`, at least the minimum.
    pub(crate) fn with_share(
        reservation: MemoryReservation,
        peak: Gauge,
        share_bytes: usize,
    ) -> Self {
        Self {
            reservation: Arc::new(reservation),
            peak,
            share_bytes: share_bytes.max(MIN_WINDOW_BYTES),
        }
    }

    /// Reserves a partition's first window: the usual one, or the least one where the pool has no more.
    ///
    /// # Errors
    /// `ResourcesExhausted` where not even that is left.
    pub(crate) fn window(&self) -> Result<Window> {
        let usual = self.share_bytes.min(INITIAL_WINDOW_BYTES);
        let bytes = match self.reserve(usual) {
            Ok(()) => usual,
            Err(_) => {
                self.reserve(MIN_WINDOW_BYTES)?;
                MIN_WINDOW_BYTES
            }
        };
        Ok(Window {
            memory: self.clone(),
            reserved: bytes,
            size: bytes,
            granted: bytes as u64,
            received: 0,
        })
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        self.reservation.try_grow(bytes)?;
        self.note_peak();
        Ok(())
    }

    fn note_peak(&self) {
        self.peak.set_max(self.reservation.size());
    }
}

/// One partition's window. Dropping it returns the memory.
pub(crate) struct Window {
    memory: CallMemory,
    /// What the pool holds for this partition.
    reserved: usize,
    size: usize,
    granted: u64,
    received: u64,
}

impl Window {
    /// What the worker may send before it hears more.
    pub(crate) fn size(&self) -> u64 {
        self.size as u64
    }

    /// A message of this size has begun to arrive: what it takes beyond the window is reserved too.
    ///
    /// # Errors
    /// `ResourcesExhausted` where the pool has not that much.
    pub(crate) fn arriving(&mut self, message_bytes: u64) -> Result<()> {
        let extra = usize::try_from(message_bytes).unwrap_or(usize::MAX);
        let extra = extra.saturating_sub(self.reserved);
        if extra > 0 {
            self.memory.reserve(extra)?;
            self.reserved += extra;
        }
        Ok(())
    }

    /// A message was taken by the reader. Returns the credit to grant now, zero while half the window is still out.
    /// `starved`: the worker had to wait for credit while the reader was waiting for data.
    pub(crate) fn consumed(&mut self, message_bytes: u64, starved: bool) -> u64 {
        self.received += message_bytes;
        if self.reserved > self.size {
            self.memory.reservation.shrink(self.reserved - self.size);
            self.reserved = self.size;
        }
        if starved {
            self.widen();
        }
        let outstanding = self.granted.saturating_sub(self.received);
        if outstanding > self.size as u64 / 2 {
            return 0;
        }
        let target = self.received + self.size as u64;
        let grant = target.saturating_sub(self.granted);
        self.granted += grant;
        grant
    }

    fn widen(&mut self) {
        let wider = (self.size * 2).min(self.memory.share_bytes);
        if wider > self.size && self.memory.reserve(wider - self.size).is_ok() {
            self.reserved += wider - self.size;
            self.size = wider;
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.memory.reservation.shrink(self.reserved);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    fn memory(
        pool_bytes: usize,
        budget: usize,
        partitions: usize,
    ) -> (Arc<dyn MemoryPool>, CallMemory) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
        let reservation = MemoryConsumer::new("test").register(&pool);
        let memory = CallMemory::new(reservation, Gauge::new(), budget, partitions);
        (pool, memory)
    }

    #[test]
    fn windows_stay_within_the_budget_and_are_returned() {
        let budget = 8 << 20;
        let (pool, memory) = memory(1 << 30, budget, 4);
        let mut windows: Vec<_> = (0..4).map(|_| memory.window().unwrap()).collect();
        for window in &mut windows {
            for _ in 0..20 {
                window.consumed(1 << 20, true);
            }
        }
        assert_eq!(pool.reserved(), budget);
        assert_eq!(memory.peak.value(), budget);
        drop(windows);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn many_partitions_get_the_minimum_each() {
        let (pool, memory) = memory(1 << 30, 1 << 20, 1000);
        let windows: Vec<_> = (0..1000).map(|_| memory.window().unwrap()).collect();
        assert_eq!(pool.reserved(), 1000 * MIN_WINDOW_BYTES);
        assert!(windows.iter().all(|w| w.size() == MIN_WINDOW_BYTES as u64));
    }

    #[test]
    fn a_short_pool_gives_the_minimum_and_then_an_error() {
        let (_pool, memory) = memory(MIN_WINDOW_BYTES + 10, 8 << 20, 1);
        let window = memory.window().unwrap();
        assert_eq!(window.size(), MIN_WINDOW_BYTES as u64);
        assert!(memory.window().is_err());
    }

    #[test]
    fn credit_is_granted_when_half_is_used_and_never_beyond_the_window() {
        let (_pool, memory) = memory(1 << 30, 1 << 20, 1);
        let mut window = memory.window().unwrap();
        let size = window.size();
        assert_eq!(window.consumed(size / 2 - 1, false), 0);
        assert_eq!(window.consumed(1, false), size / 2);
        // A message that overdraws is made up for.
        assert_eq!(window.consumed(3 * size, false), 3 * size);
        assert_eq!(window.granted - window.received, size);
    }

    #[test]
    fn a_slow_reader_keeps_a_small_window() {
        let (pool, memory) = memory(1 << 30, 64 << 20, 1);
        let mut window = memory.window().unwrap();
        for _ in 0..100 {
            window.consumed(1 << 20, false);
        }
        assert_eq!(pool.reserved(), INITIAL_WINDOW_BYTES);
    }

    #[test]
    fn a_large_message_is_accounted_while_it_is_held() {
        let (pool, memory) = memory(20 << 20, 64 << 10, 1);
        let mut window = memory.window().unwrap();
        window.arriving(10 << 20).unwrap();
        assert_eq!(pool.reserved(), 10 << 20);
        window.consumed(10 << 20, false);
        assert_eq!(pool.reserved(), 64 << 10);
        assert!(
            window.arriving(1 << 40).is_err(),
            "the pool has not that much"
        );
    }
}
