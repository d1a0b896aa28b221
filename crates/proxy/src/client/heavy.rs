//! Requests that take long to read: large texts, compressed bytes, alone or in segments, and many
//! small requests that the proxy itself answers. A loop reads a limited number of such bytes in a
//! turn. Then it serves other requests first, and a client that has sent more waits in line.
//!
//! Roles take turns in line, and so do hosts whose clients have no login, so that no number of
//! clients of one of them keeps the others waiting.
//!
//! This must never: hold back a request that is not heavy; leave a client in line when there is
//! room; let a later client of the same role or host go first.

use std::collections::{HashMap, VecDeque};

use shunt_reactor::ClientHost;
use shunt_wire::cql::compression::{self, Algorithm};
use shunt_wire::cql::envelope::{Header, flag, opcode};

use crate::client::Client;
use crate::client::account::Account;
use crate::ids::ClientRef;
use crate::limits;
use crate::link::Pools;

/// The owner of a turn in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A role.
    Account(Account),
    /// A host, for clients without a login.
    Host(ClientHost),
}

impl Owner {
    pub(crate) fn of(client: &Client, pools: &Pools) -> Owner {
        match client.pool.and_then(|pool| pools.get(pool)) {
            Some(pool) if pool.account != Account::default() => Owner::Account(pool.account),
            _ => Owner::Host(client.peer.counted_host()),
        }
    }
}

/// The heavy requests of a core.
#[derive(Default)]
pub(crate) struct Heavy {
    /// Bytes that this turn has read, or has promised to read.
    taken: usize,
    /// Owners with clients in line; the front one has the next turn.
    turns: VecDeque<Owner>,
    /// Their clients, with the bytes of the next requests.
    waiting: HashMap<Owner, VecDeque<(ClientRef, usize)>>,
}

impl Heavy {
    /// True if a request of this many bytes may be read now. The first request of a turn may have
    /// any size.
    pub(crate) fn admits(&mut self, bytes: usize) -> bool {
        let is_admitted = self.turns.is_empty() && Self::fits(self.taken, bytes);
        if is_admitted {
            self.taken += bytes;
        }
        is_admitted
    }

    fn fits(taken: usize, bytes: usize) -> bool {
        taken == 0 || taken + bytes <= limits::HEAVY_TURN_BYTES_MAX
    }

    /// Puts a client in line, with a request of this many bytes.
    pub(crate) fn wait(&mut self, owner: Owner, client: ClientRef, bytes: usize) {
        let clients = self.waiting.entry(owner).or_default();
        if clients.is_empty() {
            self.turns.push_back(owner);
        }
        clients.push_back((client, bytes));
    }

    /// Ends a turn: its bytes no longer count.
    pub(crate) fn end_turn(&mut self) {
        self.taken = 0;
    }

    /// The next client in line that is still there, if there is room for its request.
    pub(crate) fn next(&mut self, is_there: impl Fn(ClientRef) -> bool) -> Option<ClientRef> {
        while let Some(owner) = self.turns.front().copied() {
            let clients = self.waiting.entry(owner).or_default();
            let first = clients.front().copied();
            let is_there = first.is_some_and(|(client, _)| is_there(client));
            if let Some((_, bytes)) = first.filter(|_| is_there)
                && !Self::fits(self.taken, bytes)
            {
                return None;
            }
            clients.pop_front();
            let is_empty = clients.is_empty();
            if is_empty {
                self.waiting.remove(&owner);
            }
            // A client that is gone takes no turn.
            if is_there || is_empty {
                self.turns.pop_front();
                self.turns.extend((!is_empty).then_some(owner));
            }
            if let Some((client, bytes)) = first.filter(|_| is_there) {
                self.taken += bytes;
                return Some(client);
            }
        }
        None
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.turns.is_empty()
    }
}

/// True for a compressed body that holds many times its own bytes. A read takes hundreds of such
/// bodies, so each of them counts as what it holds, also below [`limits::HEAVY_BYTES_MIN`].
pub(crate) fn is_amplified(cost: usize, body: &[u8]) -> bool {
    cost >= limits::AMPLIFIED_BYTES_MIN && cost / limits::AMPLIFIED_TIMES >= body.len()
}

/// Approximate bytes to parse in a request: those of its text, or those that a compressed body
/// claims to hold. The values of an EXECUTE are only passed on.
pub(crate) fn cost(compression: Option<Algorithm>, header: &Header, body: &[u8]) -> usize {
    let is_compressed = header.version < 5 && header.flags & flag::COMPRESSION != 0;
    match compression {
        Some(algorithm) if is_compressed => match compression::claimed_bytes(algorithm, body) {
            // A larger claim is refused without being read.
            claimed if claimed > limits::REQUEST_BYTES_MAX as usize => body.len(),
            claimed => claimed.max(body.len()),
        },
        _ if header.opcode == opcode::EXECUTE => 0,
        _ => body.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = limits::HEAVY_TURN_BYTES_MAX;

    fn client(slot: u32) -> ClientRef {
        ClientRef { slot, id: 1 }
    }

    fn role(name: &str) -> Owner {
        Owner::Account(Account::of_identity(name))
    }

    fn next(heavy: &mut Heavy) -> Option<u32> {
        heavy.next(|_| true).map(|client| client.slot)
    }

    #[test]
    fn a_turn_reads_so_much_and_the_rest_waits_in_line() {
        let mut heavy = Heavy::default();
        assert!(heavy.admits(MAX / 2) && heavy.admits(MAX / 2) && !heavy.admits(1));
        heavy.wait(role("a"), client(1), MAX);
        heavy.wait(role("a"), client(2), 1);
        assert_eq!(next(&mut heavy), None);
        heavy.end_turn();
        assert!(!heavy.admits(1), "others wait already");
        assert_eq!((next(&mut heavy), next(&mut heavy)), (Some(1), None));
        heavy.end_turn();
        assert_eq!((next(&mut heavy), heavy.is_waited_for()), (Some(2), false));
        assert!(heavy.admits(1) && heavy.waiting.is_empty());
    }

    #[test]
    fn a_request_larger_than_a_turn_is_read_alone() {
        let mut heavy = Heavy::default();
        assert!(heavy.admits(16 * MAX) && !heavy.admits(1));
        heavy.end_turn();
        assert!(heavy.admits(1) && !heavy.admits(16 * MAX));
    }

    #[test]
    fn roles_and_hosts_take_turns() {
        let mut heavy = Heavy::default();
        let host = Owner::Host(ClientHost::Network([192, 0, 2, 1].into()));
        (0..100).for_each(|slot| heavy.wait(role("a"), client(slot), MAX));
        heavy.wait(role("b"), client(200), MAX);
        heavy.wait(host, client(300), MAX);
        let mut order = Vec::new();
        while heavy.is_waited_for() {
            heavy.end_turn();
            order.push(next(&mut heavy).expect("the first of a turn"));
        }
        assert_eq!(order[..5], [0, 200, 300, 1, 2]);
        assert_eq!(order.len(), 102);
    }

    #[test]
    fn a_body_that_holds_many_times_its_bytes_counts_however_short_it_is() {
        let body = [0; 1_000];
        assert!(is_amplified(60_000, &body[..300]) && is_amplified(2_000, &body[..100]));
        assert!(!is_amplified(6_000, &body), "a text compresses to a sixth");
        assert!(!is_amplified(900, &body[..20]) && !is_amplified(0, &body[..0]));
    }

    #[test]
    fn clients_that_are_gone_take_no_room() {
        let mut heavy = Heavy::default();
        (0..10).for_each(|slot| heavy.wait(role("a"), client(slot), MAX));
        heavy.wait(role("b"), client(20), MAX);
        let mut after = |gone: u32| {
            heavy.end_turn();
            heavy.next(|client| client.slot > gone).map(|client| client.slot)
        };
        assert_eq!((after(6), after(8), after(8), after(8)), (Some(7), Some(20), Some(9), None));
    }
}
