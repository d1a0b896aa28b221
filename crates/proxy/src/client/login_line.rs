//! Logins that wait for room. A core has few pools whose login no node has accepted: in all, for a
//! role, and for a client's host. So one address with many wrong passwords keeps no other client
//! out.
//!
//! A login without room waits, up to the deadline of any login. It must never get an ERROR for want
//! of room: drivers take an ERROR for a wrong password, and some never try again. The hosts take
//! turns, and the logins of a host go in the order in which they came.

use std::collections::{BTreeMap, HashMap};

use shunt_reactor::ClientHost;

use crate::ids::ClientRef;
use crate::link::PoolKey;

/// A client's login, as it waits for room.
#[derive(Debug)]
pub(crate) struct HeldLogin {
    pub(crate) key: PoolKey,
    /// Stream id of the request to answer.
    pub(crate) stream: i16,
    /// Deadline, nanoseconds.
    pub(crate) deadline_ns: u64,
    /// Place of the login among those of its host.
    pub(super) place: u64,
}

impl HeldLogin {
    pub(crate) fn new(key: PoolKey, stream: i16, deadline_ns: u64) -> HeldLogin {
        HeldLogin { key, stream, deadline_ns, place: 0 }
    }

    /// Memory that it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.login.as_ref().map_or(0, |login| login.bytes().len())
    }
}

/// The clients in line, by host.
#[derive(Default)]
pub(crate) struct LoginLine {
    /// The number of the last place or turn.
    last: u64,
    hosts: HashMap<ClientHost, OfHost>,
    turns: BTreeMap<u64, ClientHost>,
}

/// The clients of a host that wait, by place.
struct OfHost {
    turn: u64,
    clients: BTreeMap<u64, ClientRef>,
}

impl LoginLine {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Puts a client behind those of its host. Returns its place.
    pub(super) fn join(&mut self, host: ClientHost, client: ClientRef) -> u64 {
        let (turn, place) = (self.number(), self.number());
        let of_host = self.hosts.entry(host).or_insert_with(|| {
            self.turns.insert(turn, host);
            OfHost { turn, clients: BTreeMap::new() }
        });
        of_host.clients.insert(place, client);
        place
    }

    /// Takes a client that has gone out of the line.
    pub(crate) fn forget(&mut self, host: ClientHost, held: &HeldLogin) {
        self.leave(host, held.place);
    }

    /// Takes a client out of the line.
    pub(super) fn leave(&mut self, host: ClientHost, place: u64) {
        let Some(of_host) = self.hosts.get_mut(&host) else { return };
        of_host.clients.remove(&place);
        if of_host.clients.is_empty() {
            self.turns.remove(&of_host.turn);
            self.hosts.remove(&host);
        }
    }

    /// The host whose turn it is, and its first client with its place.
    pub(super) fn first(&self) -> Option<(ClientHost, u64, ClientRef)> {
        let host = self.turns.values().next()?;
        let (place, client) = self.hosts.get(host)?.clients.first_key_value()?;
        Some((*host, *place, *client))
    }

    /// Gives the turn of a host to the next one.
    pub(super) fn pass(&mut self, host: ClientHost) {
        let turn = self.number();
        let Some(of_host) = self.hosts.get_mut(&host) else { return };
        self.turns.remove(&of_host.turn);
        of_host.turn = turn;
        self.turns.insert(turn, host);
    }

    /// Number of hosts with clients in line.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// True if clients of this host are in line.
    pub(super) fn has(&self, host: ClientHost) -> bool {
        self.hosts.contains_key(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> ClientHost {
        ClientHost::Network(std::net::IpAddr::from([192, 0, 2, last]))
    }

    fn client(slot: u32) -> ClientRef {
        ClientRef { slot, id: 1 }
    }

    /// The clients in the order in which they have their turn.
    fn order(line: &mut LoginLine) -> Vec<u32> {
        std::iter::from_fn(|| {
            let (host, place, client) = line.first()?;
            line.leave(host, place);
            line.pass(host);
            Some(client.slot)
        })
        .collect()
    }

    #[test]
    fn hosts_take_turns_and_each_has_its_order() {
        let mut line = LoginLine::default();
        let many: Vec<_> = (0..4).map(|slot| line.join(host(1), client(slot))).collect();
        line.join(host(2), client(10));
        line.join(host(3), client(20));
        line.leave(host(1), many[1]);
        assert_eq!(order(&mut line), [0, 10, 20, 2, 3]);
        assert!(line.hosts.is_empty() && line.turns.is_empty());
    }

    #[test]
    fn the_last_of_a_host_takes_its_turn_with_it() {
        let mut line = LoginLine::default();
        let place = line.join(host(1), client(0));
        line.leave(host(1), place);
        line.leave(host(1), place);
        assert!(line.first().is_none() && line.turns.is_empty() && !line.has(host(1)));
    }
}
