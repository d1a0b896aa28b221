//! Limits on concurrent users, in all and per address, so that one address cannot use up the room
//! of all others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::PEER_PART;

/// A limited number of places.
#[derive(Debug)]
pub(crate) struct Room {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// Reason why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All places are taken.
    All,
    /// This address has its share.
    Peer,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    peer: IpAddr,
}

impl Room {
    /// Makes room for `max` users, a [`PEER_PART`]th of them from one address.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// Number of places taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }

    /// True if a place is free.
    pub(crate) fn has_room(&self) -> bool {
        self.taken() < self.max
    }

    /// Takes a place for this address.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Result<Place, Full> {
        let peer = network_of(peer);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.max {
            return Err(Full::All);
        }
        if taken.of.get(&peer).is_some_and(|count| *count >= self.max / PEER_PART) {
            return Err(Full::Peer);
        }
        taken.all += 1;
        *taken.of.entry(peer).or_default() += 1;
        Ok(Place { room: Arc::clone(self), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(count) = taken.of.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&self.peer);
            }
        }
    }
}

/// Unit of the limit per address: for IPv6 the /64, because each user has 2^64 addresses.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        text.parse().expect("address")
    }

    #[test]
    fn one_address_gets_its_part_and_places_come_back() {
        let room = Room::new(4);
        let hostile: Vec<_> = (0..2).map(|_| room.enter(peer("10.0.0.1")).expect("room")).collect();
        assert_eq!(room.enter(peer("10.0.0.1")).err(), Some(Full::Peer));
        assert_eq!(room.enter(peer("::ffff:10.0.0.1")).err(), Some(Full::Peer), "the same address");
        let others: Vec<_> = ["10.0.0.2", "10.0.0.3"].map(|other| room.enter(peer(other))).into();
        assert!(others.iter().all(Result::is_ok) && !room.has_room());
        assert_eq!(room.enter(peer("10.0.0.4")).err(), Some(Full::All));
        drop((hostile, others));
        assert_eq!(room.taken(), 0);
        assert!(
            room.taken.lock().expect("not poisoned").of.is_empty(),
            "nothing is kept of who was there"
        );
        assert!(room.enter(peer("10.0.0.1")).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let room = Room::new(2);
        let _first = room.enter(peer("2001:db8::1")).expect("room");
        assert_eq!(room.enter(peer("2001:db8::ffff:1")).err(), Some(Full::Peer));
        assert!(room.enter(peer("2001:db8:0:1::1")).is_ok());
    }
}
