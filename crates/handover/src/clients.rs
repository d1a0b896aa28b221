//! Clients' connections of all event loops of one process, wherever they are.
//!
//! All loops of a process share one steering table in the kernel, and each talks to agents itself.
//! An agent may claim a connection that an earlier process handed over; a loop that believes it
//! redirects that client's packets to the agent's host. So a loop must know the clients of all
//! others, and the connections that another loop has just taken over. The kernel knows only some: a
//! connection that is away has no socket here, and an entry does not name its owner.
//!
//! Loops write here when a client's connection is accepted and when it is gone for good, never for
//! a request or a hand-over. A write locks one of many parts chosen by a hash, so that loops hardly
//! ever meet, and holds the lock for one map operation without blocking.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::types::Flow;

/// Many more parts than loops.
const PARTS: usize = 64;

/// Addresses in the notation of the kernel's table: one form for each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    local: (IpAddr, u16),
    peer: (IpAddr, u16),
}

impl Key {
    fn of(flow: Flow) -> Self {
        let one = |address: std::net::SocketAddr| (address.ip().to_canonical(), address.port());
        Self { local: one(flow.local), peer: one(flow.peer) }
    }
}

/// Clients' connections of all event loops of a process; clones share the same set.
#[derive(Clone, Debug)]
pub struct Clients(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    hash: RandomState,
    /// Count for each pair of addresses: another loop may accept the next connection before this
    /// one has seen the last one end.
    parts: [Mutex<HashMap<Key, u32>>; PARTS],
}

impl Default for Clients {
    fn default() -> Self {
        let parts = std::array::from_fn(|_| Mutex::default());
        Self(Arc::new(Parts { hash: RandomState::new(), parts }))
    }
}

impl Clients {
    fn part(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, u32>> {
        let Parts { hash, parts } = &*self.0;
        let part = hash.hash_one(key) as usize % PARTS;
        // Each operation leaves the map consistent.
        parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A loop has accepted a client's connection.
    pub fn came(&self, flow: Flow) {
        let key = Key::of(flow);
        *self.part(&key).entry(key).or_default() += 1;
    }

    /// A connection is gone for good, or a claim has ended.
    pub fn left(&self, flow: Flow) {
        let key = Key::of(flow);
        let mut part = self.part(&key);
        let Some(count) = part.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            part.remove(&key);
            // Give back the memory of a burst of clients.
            if part.len() < part.capacity() / 8 {
                part.shrink_to_fit();
            }
        }
    }

    /// Claims a connection that an agent reports. False if a loop has a client of its addresses, or
    /// has claimed it.
    #[must_use]
    pub fn claim(&self, flow: Flow) -> bool {
        let key = Key::of(flow);
        let mut part = self.part(&key);
        let is_free = !part.contains_key(&key);
        if is_free {
            part.insert(key, 1);
        }
        is_free
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        let count = |part: &Mutex<HashMap<Key, u32>>| {
            part.lock().unwrap_or_else(PoisonError::into_inner).len()
        };
        self.0.parts.iter().map(count).sum()
    }

    /// True if there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(local: &str, port: u16) -> Flow {
        Flow { local: local.parse().unwrap(), peer: ([198, 51, 100, 7], port).into() }
    }

    #[test]
    fn a_connection_of_one_loop_is_claimed_by_no_other_in_any_form_of_its_addresses() {
        let (here, there) = {
            let one = Clients::default();
            (one.clone(), one)
        };
        let plain = flow("192.0.2.1:80", 1);
        let mapped = Flow {
            local: "[::ffff:192.0.2.1]:80".parse().unwrap(),
            peer: "[::ffff:198.51.100.7]:1".parse().unwrap(),
        };
        here.came(plain);
        assert!(!there.claim(plain) && !there.claim(mapped));
        assert!(there.claim(flow("192.0.2.1:80", 2)) && there.claim(flow("192.0.2.1:81", 1)));
        assert!(!here.claim(flow("192.0.2.1:80", 2)), "another has claimed it");
    }

    #[test]
    fn the_next_one_of_the_same_addresses_stays_when_the_last_goes() {
        let clients = Clients::default();
        let flow = flow("192.0.2.1:80", 1);
        clients.came(flow);
        clients.came(flow);
        clients.left(flow);
        assert!(!clients.claim(flow));
        clients.left(flow);
        clients.left(flow);
        assert!(clients.is_empty() && clients.claim(flow) && clients.len() == 1);
    }
}
