//! The limit on connections: which connection gives its place to a new one.
//!
//! This must never:
//! - close a connection with a valid login;
//! - let one host take the places of others: a connection gives its place to another host only if
//!   its own host has more connections without a login, or if it has had the time to log in.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use shunt_admin::Pages;
use shunt_reactor::{ClientHost, HostShares};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::limits::{CONNECTIONS_MAX, LOGIN_QUIET};
use crate::login::Login;

/// The connections that are open, the oldest first.
#[derive(Default)]
pub(crate) struct Connections(VecDeque<Place>);

struct Place {
    host: ClientHost,
    login: Arc<Login>,
    since: Instant,
    task: AbortHandle,
}

impl Connections {
    /// Makes room for a connection from an address. Returns false if there is no room.
    pub(crate) fn make_room(&mut self, from: IpAddr, now: Instant, pages: &Pages) -> bool {
        self.0.retain(|place| !place.task.is_finished());
        if self.0.len() < CONNECTIONS_MAX {
            return true;
        }
        let Some(place) = self.displaced(ClientHost::counted(from), now, pages) else {
            return false;
        };
        if let Some(place) = self.0.remove(place) {
            place.task.abort();
        }
        true
    }

    /// Adds a connection that has come now.
    pub(crate) fn add(&mut self, from: IpAddr, now: Instant, login: Arc<Login>, task: AbortHandle) {
        self.0.push_back(Place { host: ClientHost::counted(from), login, since: now, task });
    }

    /// Index of the connection that gives its place to a connection of this host.
    fn displaced(&self, new: ClientHost, now: Instant, pages: &Pages) -> Option<usize> {
        let places = self.0.iter().enumerate();
        let early: Vec<(usize, &Place)> =
            places.filter(|(_, place)| !place.login.is_valid(pages)).collect();
        let mut shares = HostShares::default();
        early.iter().for_each(|(_, place)| shares.add(place.host));
        shares.add(new);
        let oldest = |host| early.iter().find(|(_, place)| place.host == host);
        // Hosts with as many do not take each other's places in turn.
        let is_late = |place: &Place| now.duration_since(place.since) >= LOGIN_QUIET;
        let found = match shares.displaced_by(new, 0) {
            Some(heaviest) => oldest(heaviest),
            None => oldest(new).or_else(|| early.iter().find(|(_, place)| is_late(place))),
        };
        found.map(|(index, _)| *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn host(last: u8) -> ClientHost {
        ClientHost::counted(address(last))
    }

    /// All places taken: a connection of each of these hosts, the last ones with a login.
    fn full(early: &[u8], now: Instant) -> Connections {
        let mut connections = Connections::default();
        let logged_in = vec![9; CONNECTIONS_MAX - early.len()];
        for (number, last) in early.iter().chain(&logged_in).enumerate() {
            let login = Arc::<Login>::default();
            if number >= early.len() {
                login.end(&[]);
            }
            let task = tokio::spawn(std::future::pending::<()>());
            connections.add(address(*last), now, login, task.abort_handle());
        }
        connections
    }

    /// Hosts of the connections without a login, after one has come; `None` if it has no place.
    fn left(mut connections: Connections, from: IpAddr, now: Instant) -> Option<Vec<ClientHost>> {
        let pages = Pages::new("0.1.0", Vec::new());
        let has_place = connections.make_room(from, now, &pages);
        let early = connections.0.iter().filter(|place| !place.login.is_valid(&pages));
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
            let expected = Some(vec![host(2), host(1), host(1)]);
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
            assert_eq!(left(pair(), address(3), late), Some(vec![host(1)]));
            assert_eq!(left(pair(), address(1), late), Some(vec![host(2)]));
            assert_eq!(left(full(&[], now), address(3), late), None, "all have a login");
        });
    }
}
