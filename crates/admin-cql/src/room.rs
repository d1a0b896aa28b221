//! Room for connections: which of them makes place for a new one.
//!
//! This must never:
//! - close a connection with a valid login;
//! - let one host take the places of others: only a host with more connections without a login
//!   loses one to another host, or one that has had the time to log in.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use shunt_admin::Pages;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::limits::{CONNECTIONS_MAX, LOGIN_QUIET};
use crate::login::Login;

/// The connections that are open, the oldest first.
#[derive(Default)]
pub(crate) struct Room(VecDeque<Place>);

struct Place {
    host: IpAddr,
    login: Arc<Login>,
    since: Instant,
    task: AbortHandle,
}

/// The host of an address: one of IPv6 has 64 bits of addresses.
fn host(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        IpAddr::V4(_) => address,
    }
}

impl Room {
    /// Makes place for a connection from an address. False if there is none.
    pub(crate) fn make(&mut self, from: IpAddr, now: Instant, pages: &Pages) -> bool {
        self.0.retain(|place| !place.task.is_finished());
        if self.0.len() < CONNECTIONS_MAX {
            return true;
        }
        let Some(place) = self.displaced(host(from), now, pages) else { return false };
        if let Some(place) = self.0.remove(place) {
            place.task.abort();
        }
        true
    }

    /// Adds a connection that has come now.
    pub(crate) fn add(&mut self, from: IpAddr, now: Instant, login: Arc<Login>, task: AbortHandle) {
        self.0.push_back(Place { host: host(from), login, since: now, task });
    }

    /// Index of the connection that makes place for one of this host.
    fn displaced(&self, new: IpAddr, now: Instant, pages: &Pages) -> Option<usize> {
        let places = self.0.iter().enumerate();
        let early: Vec<(usize, &Place)> =
            places.filter(|(_, place)| !place.login.is_valid(pages)).collect();
        let count = |host: IpAddr| early.iter().filter(|(_, place)| place.host == host).count();
        let (heaviest, most) = early
            .iter()
            .map(|(index, place)| (*index, count(place.host)))
            .min_by_key(|(_, most)| Reverse(*most))?;
        if most > count(new) + 1 {
            return Some(heaviest);
        }
        // Hosts with as many do not take each other's places in turn.
        let is_late = |place: &Place| now.duration_since(place.since) >= LOGIN_QUIET;
        let own = early.iter().find(|(_, place)| place.host == new);
        let found = own.or_else(|| early.iter().find(|(_, place)| is_late(place)));
        found.map(|(index, _)| *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// A full room: a connection of each of these hosts, the last ones with a login.
    fn full(early: &[u8], now: Instant) -> Room {
        let mut room = Room::default();
        let logged_in = vec![9; CONNECTIONS_MAX - early.len()];
        for (number, last) in early.iter().chain(&logged_in).enumerate() {
            let login = Arc::<Login>::default();
            if number >= early.len() {
                login.end(&[]);
            }
            let task = tokio::spawn(std::future::pending::<()>());
            room.add(address(*last), now, login, task.abort_handle());
        }
        room
    }

    /// Hosts of the connections without a login, after one has come; `None` if it has no place.
    fn left(mut room: Room, from: IpAddr, now: Instant) -> Option<Vec<IpAddr>> {
        let pages = Pages::new("0.1.0", Vec::new());
        let has_place = room.make(from, now, &pages);
        let early = room.0.iter().filter(|place| !place.login.is_valid(&pages));
        has_place.then(|| early.map(|place| place.host).collect())
    }

    fn block_on(test: impl FnOnce(Instant)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async { test(Instant::now()) });
    }

    #[test]
    fn a_host_with_many_connections_takes_no_place_of_another() {
        block_on(|now| {
            let crowd = || full(&[2, 1, 1, 1], now);
            let expected = Some(vec![address(2), address(1), address(1)]);
            assert_eq!(left(crowd(), address(1), now), expected, "its own oldest goes");
            assert_eq!(left(crowd(), address(3), now), expected, "and so for another host");
            let late = now + LOGIN_QUIET;
            assert_eq!(left(crowd(), address(3), late), expected);
            assert_eq!(left(crowd(), address(1), late), expected);
        });
    }

    #[test]
    fn hosts_with_as_many_wait_for_each_other() {
        block_on(|now| {
            let pair = || full(&[2, 1], now);
            let late = now + LOGIN_QUIET;
            assert_eq!(left(pair(), address(3), now), None);
            assert_eq!(left(pair(), address(3), late), Some(vec![address(1)]));
            assert_eq!(left(pair(), address(1), late), Some(vec![address(2)]));
            assert_eq!(left(full(&[], now), address(3), late), None, "all have a login");
        });
    }

    #[test]
    fn a_host_of_ipv6_is_its_network() {
        let [one, other, third] = ["2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1"]
            .map(|text| host(text.parse().expect("an address")));
        assert!(one == other && one != third);
    }
}
