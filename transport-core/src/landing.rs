//! [`Landing`]: the one allocation that a large message arrives in.
//!
//! A batch of usual size is so large that the allocator takes its pages from the system and gives them back each time, and
//! to have them mapped costs more than to copy the batch (`docs/decisions/0016-buffers-are-used-again.md`). So these
//! allocations are kept and used again: the last one that was let go is the next one taken, while it is in the cache.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// What arrays are aligned to, in bytes: what Arrow recommends for its buffers.
const ALIGNMENT_BYTES: usize = 64;

/// From here on an allocation is kept. Smaller ones the allocator has at hand.
const KEPT_FROM_BYTES: usize = 32 * 1024;

/// As much as is kept at most for the process: what sixteen partitions may have under way when they begin, twice.
const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// Bytes that arrive in pieces and then are read in one. Dropped, the allocation is there for the next one.
#[derive(Debug)]
pub struct Landing {
    bytes: Vec<u8>,
    /// Where the first byte lies: at the address that was asked for.
    start: usize,
}

impl Landing {
    /// Room for `bytes`, the first of which lies at an address that is `place` modulo 64. Allocates at most an
    /// eighth more than that.
    pub fn new(bytes: usize, place: u64) -> Self {
        let mut allocation = KEPT.take(bytes + ALIGNMENT_BYTES);
        let address = allocation.as_ptr().addr() as u64;
        let start = place.wrapping_sub(address) as usize % ALIGNMENT_BYTES;
        allocation.resize(start, 0);
        Self {
            bytes: allocation,
            start,
        }
    }

    /// How much has arrived.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much there is room for.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    /// Adds bytes. Where there is no room for them, all move to a new allocation, aligned as this one.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        if self.capacity() - self.len() < bytes.len() {
            let room = (self.capacity() * 2).max(self.len() + bytes.len());
            let address = self.bytes.as_ptr().addr() + self.start;
            let mut wider = Self::new(room, address as u64);
            wider.bytes.extend_from_slice(self.as_ref());
            *self = wider;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Where to read what is still to come, no more than there is room for, or the alignment is lost.
    pub fn unfilled(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What arrived. The allocation is let go with the last part of it.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Landing {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        KEPT.put(std::mem::take(&mut self.bytes));
    }
}

static KEPT: LazyLock<Kept> = LazyLock::new(Kept::default);

/// Allocations that nobody uses.
#[derive(Debug, Default)]
struct Kept(Mutex<Shelves>);

#[derive(Debug, Default)]
struct Shelves {
    by_capacity: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

impl Kept {
    /// An empty allocation of this capacity or up to an eighth more.
    fn take(&self, capacity: usize) -> Vec<u8> {
        if capacity < KEPT_FROM_BYTES {
            return Vec::with_capacity(capacity);
        }
        // Eight sizes between a power of two and the next.
        let step = 1 << (capacity.ilog2() - 3);
        let capacity = capacity.next_multiple_of(step);
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = shelves.by_capacity.get_mut(&capacity).and_then(Vec::pop);
        if kept.is_some() {
            shelves.bytes -= capacity;
        }
        drop(shelves);
        kept.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Keeps an allocation, in place of those of another size where there is no room.
    fn put(&self, mut allocation: Vec<u8>) {
        let capacity = allocation.capacity();
        if !(KEPT_FROM_BYTES..=KEPT_BYTES).contains(&capacity) {
            return;
        }
        allocation.clear();
        let mut freed = vec![];
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while shelves.bytes + capacity > KEPT_BYTES {
            let Some(other) = shelves.take_of_other(capacity) else {
                return;
            };
            freed.push(other);
        }
        shelves.bytes += capacity;
        shelves
            .by_capacity
            .entry(capacity)
            .or_default()
            .push(allocation);
        drop(shelves);
    }
}

impl Shelves {
    fn take_of_other(&mut self, capacity: usize) -> Option<Vec<u8>> {
        let mut others = self
            .by_capacity
            .iter_mut()
            .filter(|(size, _)| **size != capacity);
        let (size, allocation) = others.find_map(|(size, shelf)| Some((*size, shelf.pop()?)))?;
        self.bytes -= size;
        Some(allocation)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_arrive_at_the_address_asked_for(
            room in 0usize..200_000,
            place in 0u64..200,
            pieces in prop::collection::vec(0usize..60_000, 0..8),
        ) {
            let mut landing = Landing::new(room, place);
            prop_assert!(landing.capacity() >= room);
            let mut expected = vec![];
            for (number, piece) in pieces.into_iter().enumerate() {
                let piece = vec![number as u8; piece];
                landing.extend_from_slice(&piece);
                expected.extend_from_slice(&piece);
                prop_assert_eq!(landing.len(), expected.len());
            }
            let bytes = landing.freeze();
            prop_assert_eq!(bytes.as_ref(), expected.as_slice());
            if !bytes.is_empty() {
                prop_assert_eq!(bytes.as_ptr().addr() as u64 % 64, place % 64);
            }
        }
    }

    #[test]
    fn what_was_let_go_is_used_again_and_no_more_is_taken_than_an_eighth() {
        let kept = Kept::default();
        let first = kept.take(434_000);
        assert!((434_000..=434_000 * 9 / 8).contains(&first.capacity()));
        let address = first.as_ptr();
        kept.put(first);
        // Another size is another shelf.
        let other = kept.take(200_000);
        assert_ne!(other.as_ptr(), address);
        let again = kept.take(433_000);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }

    #[test]
    fn what_is_kept_is_bounded_and_of_the_sizes_in_use() {
        let kept = Kept::default();
        let all = |bytes: usize| (0..100).map(|_| kept.take(bytes)).collect::<Vec<_>>();
        for bytes in [1 << 20, 1 << 19, 3 << 18] {
            for allocation in all(bytes) {
                kept.put(allocation);
            }
            let shelves = kept.0.lock().unwrap();
            let held = |(size, shelf): (&usize, &Vec<Vec<u8>>)| size * shelf.len();
            assert_eq!(
                shelves.by_capacity.iter().map(held).sum::<usize>(),
                shelves.bytes
            );
            assert!(shelves.bytes <= KEPT_BYTES);
            let kept = shelves.by_capacity.get(&bytes).map_or(0, Vec::len);
            assert!(kept >= KEPT_BYTES / bytes / 2, "{kept} of {bytes} bytes");
        }
    }
}
