//! Limits on concurrent users, in all and per address, so that one address cannot use up the room
//! of all others.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shunt_reactor::{ClientHost, Full, HostShares};

use crate::limits::PEER_PART;

/// A limited number of places.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    max: usize,
    shares: Mutex<HostShares>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    limit: Arc<ConcurrencyLimit>,
    peer: ClientHost,
}

impl ConcurrencyLimit {
    /// A limit of `max` users, a [`PEER_PART`]th of them from one address.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, shares: Mutex::default() })
    }

    /// Number of places taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().taken()
    }

    fn lock(&self) -> MutexGuard<'_, HostShares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a place is free.
    pub(crate) fn has_room(&self) -> bool {
        self.taken() < self.max
    }

    /// Takes a place for this address.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Result<Place, Full> {
        let peer = ClientHost::counted(peer);
        self.lock().take(peer, self.max, self.max / PEER_PART)?;
        Ok(Place { limit: Arc::clone(self), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.lock().remove(self.peer);
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
        let limit = ConcurrencyLimit::new(4);
        let hostile: Vec<_> =
            (0..2).map(|_| limit.enter(peer("10.0.0.1")).expect("room")).collect();
        assert_eq!(limit.enter(peer("10.0.0.1")).err(), Some(Full::Host));
        assert_eq!(
            limit.enter(peer("::ffff:10.0.0.1")).err(),
            Some(Full::Host),
            "the same address"
        );
        let others: Vec<_> = ["10.0.0.2", "10.0.0.3"].map(|other| limit.enter(peer(other))).into();
        assert!(others.iter().all(Result::is_ok) && !limit.has_room());
        assert_eq!(limit.enter(peer("10.0.0.4")).err(), Some(Full::All));
        drop((hostile, others));
        assert_eq!(limit.taken(), 0);
        assert_eq!(limit.lock().hosts(), 0, "nothing is kept of who was there");
        assert!(limit.enter(peer("10.0.0.1")).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let limit = ConcurrencyLimit::new(2);
        let _first = limit.enter(peer("2001:db8::1")).expect("room");
        assert_eq!(limit.enter(peer("2001:db8::ffff:1")).err(), Some(Full::Host));
        assert!(limit.enter(peer("2001:db8:0:1::1")).is_ok());
    }
}
