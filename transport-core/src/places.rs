//! [`Places`]: who may have handshakes in progress, and who gives way when there are too many.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Where a peer is, as far as fairness goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// An IPv4 address, or the first address of an IPv6 network of 64 bits: a host may use all of those.
    Network(IpAddr),
    /// A process on this host, over a Unix socket.
    Local,
    /// Somewhere: an address that a peer states and has not shown to be its own. All such are one.
    Unproven,
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        // A socket that serves both families sees IPv4 addresses mapped into one network of IPv6.
        Self::Network(match address.to_canonical() {
            IpAddr::V6(v6) => {
                const NETWORK: u128 = !(u64::MAX as u128);
                Ipv6Addr::from_bits(v6.to_bits() & NETWORK).into()
            }
            v4 => v4,
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Self::Network(address) => address.fmt(f),
            Self::Local => f.write_str("this host"),
            Self::Unproven => f.write_str("unproven addresses"),
        }
    }
}

/// A bounded number of places, of which each [`Origin`] has a share. Clones are the same places.
///
/// Nobody is kept out by others: an origin that has its share loses its own oldest place for a new one, and when all
/// places are taken, the origin that has most of them loses its oldest.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    share: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    next_number: u64,
    /// Oldest first; none is empty.
    by_origin: HashMap<Origin, VecDeque<Seat>>,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    lost: CancellationToken,
}

/// A place that is taken. Dropping it frees it.
#[derive(Debug)]
#[must_use = "dropping a place frees it"]
pub struct Place {
    places: Places,
    origin: Origin,
    number: u64,
    lost: CancellationToken,
}

impl Places {
    /// `total` places, of which one origin has `share` at most. Both are at least 1 whatever is asked for.
    pub fn new(total: usize, share: usize) -> Self {
        Self(Arc::new(Shared {
            total: total.max(1),
            share: share.max(1),
            taken: Mutex::default(),
        }))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.lock().count
    }

    /// Whether `origin` has less than its share.
    pub fn has_share_left(&self, origin: Origin) -> bool {
        self.lock().held(origin) < self.0.share
    }

    /// Takes a place, always: where none is left for `origin`, whoever loses one for it is told by [`Place::lost`], and
    /// should end at once.
    pub fn take(&self, origin: Origin) -> Place {
        let mut taken = self.lock();
        if taken.held(origin) >= self.0.share {
            taken.evict(origin);
        } else if taken.count >= self.0.total
            && let Some(most) = taken.holder_of_most(origin)
        {
            taken.evict(most);
        }
        let lost = CancellationToken::new();
        let number = taken.add(origin, lost.clone());
        drop(taken);
        Place {
            places: self.clone(),
            origin,
            number,
            lost,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn held(&self, origin: Origin) -> usize {
        self.by_origin.get(&origin).map_or(0, VecDeque::len)
    }

    fn add(&mut self, origin: Origin, lost: CancellationToken) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.count += 1;
        let seats = self.by_origin.entry(origin).or_default();
        seats.push_back(Seat { number, lost });
        number
    }

    /// Among equals `newcomer`: who has as many as anybody takes from itself.
    fn holder_of_most(&self, newcomer: Origin) -> Option<Origin> {
        let held = self.by_origin.iter();
        let most = held.max_by_key(|(origin, seats)| (seats.len(), **origin == newcomer));
        most.map(|(origin, _)| *origin)
    }

    fn evict(&mut self, origin: Origin) {
        let oldest = self.by_origin.get(&origin).and_then(VecDeque::front);
        if let Some(number) = oldest.map(|seat| seat.number)
            && let Some(seat) = self.remove(origin, number)
        {
            seat.lost.cancel();
        }
    }

    fn remove(&mut self, origin: Origin, number: u64) -> Option<Seat> {
        let seats = self.by_origin.get_mut(&origin)?;
        let index = seats.iter().position(|seat| seat.number == number)?;
        let seat = seats.remove(index);
        if seats.is_empty() {
            self.by_origin.remove(&origin);
        }
        self.count -= 1;
        seat
    }
}

impl Place {
    /// Waits until another has this place. Cancel safe.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whose it is.
    pub fn origin(&self) -> Origin {
        self.origin
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // One that was lost is gone already.
        self.places.lock().remove(self.origin, self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn origin(address: &str) -> Origin {
        Origin::from(address.parse::<IpAddr>().unwrap())
    }

    fn lost(places: &[Place]) -> Vec<bool> {
        places.iter().map(|it| it.lost.is_cancelled()).collect()
    }

    #[test]
    fn a_network_of_ipv6_is_one_origin_and_each_ipv4_address_is_one() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:2"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_ne!(origin("127.0.0.1"), origin("127.0.0.2"));
        // As a dual-stack socket sees it.
        assert_eq!(origin("127.0.0.1"), origin("::ffff:127.0.0.1"));
        assert_ne!(origin("::ffff:127.0.0.2"), origin("::ffff:127.0.0.1"));
        assert_eq!("2001:db8::/64", origin("2001:db8::1").to_string());
        assert_eq!("127.0.0.1", origin("::ffff:127.0.0.1").to_string());
    }

    #[test]
    fn an_origin_over_its_share_loses_its_own_oldest() {
        let places = Places::new(10, 2);
        let (flood, honest) = (origin("10.0.0.1"), origin("10.0.0.2"));
        let oldest_of_all = places.take(honest);
        assert!(places.has_share_left(flood));
        let mut flooding: Vec<_> = (0..2).map(|_| places.take(flood)).collect();
        assert!(!places.has_share_left(flood) && places.has_share_left(honest));
        flooding.extend((0..2).map(|_| places.take(flood)));
        assert_eq!([true, true, false, false], lost(&flooding)[..]);
        assert!(!oldest_of_all.lost.is_cancelled());
        assert_eq!(3, places.taken());
    }

    #[test]
    fn when_all_are_taken_the_origin_with_most_loses_its_oldest() {
        let places = Places::new(4, 3);
        let (flood, honest) = (origin("10.0.0.1"), origin("10.0.0.2"));
        let early = places.take(honest);
        let flooding: Vec<_> = (0..3).map(|_| places.take(flood)).collect();
        let late = places.take(Origin::Local);
        assert_eq!([true, false, false], lost(&flooding)[..]);
        let also_late = places.take(Origin::Local);
        assert_eq!([true, true, false], lost(&flooding)[..]);
        // Local has most now, and takes from itself.
        let last = places.take(Origin::Local);
        assert!(late.lost.is_cancelled());
        for place in [&early, &also_late, &last] {
            assert!(!place.lost.is_cancelled());
        }
        assert_eq!(4, places.taken());
    }

    #[test]
    fn among_equals_the_newcomer_takes_from_itself() {
        let places = Places::new(4, 4);
        let (a, b) = (origin("10.0.0.1"), origin("10.0.0.2"));
        let held = [
            places.take(a),
            places.take(a),
            places.take(b),
            places.take(b),
        ];
        let _b = places.take(b);
        assert_eq!([false, false, true, false], lost(&held)[..]);
    }

    #[test]
    fn a_place_is_freed_once_and_leaves_nothing_behind() {
        let places = Places::new(4, 1);
        let first = places.take(Origin::Unproven);
        let second = places.take(Origin::Unproven);
        assert!(first.lost.is_cancelled());
        drop(first);
        assert_eq!(1, places.taken());
        drop(second);
        assert_eq!(0, places.taken());
        assert!(places.lock().by_origin.is_empty());
        assert!(places.has_share_left(Origin::Unproven));
    }

    #[test]
    fn zero_places_are_one() {
        let places = Places::new(0, 0);
        let first = places.take(Origin::Local);
        let second = places.take(origin("10.0.0.1"));
        assert!(first.lost.is_cancelled() && !second.lost.is_cancelled());
        assert_eq!(1, places.taken());
    }

    #[tokio::test]
    async fn a_place_that_is_lost_says_so() {
        let places = Places::new(2, 1);
        let place = places.take(Origin::Local);
        let (_newer, ()) = tokio::join!(async { places.take(Origin::Local) }, place.lost());
        assert_eq!(Origin::Local, place.origin());
    }
}
