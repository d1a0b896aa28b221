//! Clients that have not logged in, by host. When a core has no place left, a new client of another
//! host takes the place of the oldest client without a login of the host that has the most of them.
//!
//! This must never:
//! - take the place of a client that has logged in, or of one that is told why it is turned away;
//! - take the place of a client of a host with few pending logins: up to a sixteenth of the places;
//! - let two hosts take each other's places in turn: only a host with fewer pending logins gains a
//!   place.

use std::collections::BTreeSet;

use shunt_reactor::{ClientHost, HostShares};

use crate::ids::ClientRef;

/// Part of a core's places that the clients of one host always have before they log in.
const HOST_PARTS: usize = 16;

/// The clients of a core that have not logged in.
#[derive(Default)]
pub(crate) struct PendingLogins {
    /// Number of the last client that connected.
    last: u64,
    /// Clients by host and number, with slot and id: the oldest client of a host is its first.
    clients: BTreeSet<(ClientHost, u64, u32, u32)>,
    shares: HostShares,
}

impl PendingLogins {
    /// Adds a client that has connected. Returns its number.
    pub(super) fn join(&mut self, host: ClientHost, client: ClientRef) -> u64 {
        self.last += 1;
        self.clients.insert((host, self.last, client.slot, client.id));
        self.shares.add(host);
        self.last
    }

    /// Removes a client that has logged in, is gone, or gets no place.
    pub(super) fn leave(&mut self, host: ClientHost, number: u64, client: ClientRef) {
        if self.clients.remove(&(host, number, client.slot, client.id)) {
            self.shares.remove(host);
        }
    }

    /// The client that makes room for one of this host, which has been counted, on a core with this
    /// many places.
    pub(super) fn displaced_by(&self, host: ClientHost, places: usize) -> Option<ClientRef> {
        let heaviest = self.shares.displaced_by(host, places.div_ceil(HOST_PARTS))?;
        let mut oldest_first = self.clients.range((heaviest, 0, 0, 0)..);
        let (.., slot, id) = *oldest_first.next()?;
        Some(ClientRef { slot, id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> ClientHost {
        ClientHost::Network(std::net::IpAddr::from([192, 0, 2, last]))
    }

    fn client(slot: u32) -> ClientRef {
        ClientRef { slot, id: slot + 1 }
    }

    /// A client of each of these hosts, in slots from 0, and their numbers.
    fn connected(hosts: &[u8]) -> (PendingLogins, Vec<u64>) {
        let mut logins = PendingLogins::default();
        let numbers = hosts.iter().zip(0..);
        let numbers = numbers.map(|(last, slot)| logins.join(host(*last), client(slot))).collect();
        (logins, numbers)
    }

    #[test]
    fn the_oldest_of_the_host_with_the_most_makes_room() {
        let (mut logins, numbers) = connected(&[2, 1, 1, 2, 1, 3]);
        assert_eq!(logins.displaced_by(host(3), 16), Some(client(1)));
        logins.leave(host(1), numbers[1], client(1));
        logins.leave(host(1), numbers[1], client(1));
        logins.leave(host(1), numbers[4], client(4));
        assert_eq!(logins.displaced_by(host(3), 16), Some(client(0)), "two of host 2");
    }

    #[test]
    fn hosts_with_as_many_or_few_pending_logins_keep_their_places() {
        let (mut logins, _) = connected(&[1, 1, 1, 2, 2]);
        assert_eq!(logins.displaced_by(host(1), 16), None, "it has the most itself");
        assert_eq!(logins.displaced_by(host(2), 48), None, "a sixteenth of the places");
        assert_eq!(logins.displaced_by(host(2), 47), None, "rounded up");
        assert_eq!(logins.displaced_by(host(2), 32), Some(client(0)));
        logins.join(host(2), client(5));
        assert_eq!(logins.displaced_by(host(2), 32), None, "as many as the other host");
    }

    #[test]
    fn clients_that_leave_are_forgotten_with_their_host() {
        let (mut logins, numbers) = connected(&[1, 2, 1]);
        for (slot, last) in [(0, 1), (1, 2), (2, 1)] {
            logins.leave(host(last), numbers[slot as usize], client(slot));
        }
        assert!(logins.clients.is_empty() && logins.shares.hosts() == 0);
        assert_eq!(logins.displaced_by(host(3), 16), None);
    }
}
