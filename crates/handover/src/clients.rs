//! Which clients' connections the event loops of one process have, wherever those are.
//!
//! All loops of a process steer by one table of the kernel's, and each speaks with agents for
//! itself. An agent may name a connection that a process before this one has handed over; whoever
//! believes it sends that client's packets to the agent's host. So a loop has to know of the
//! clients of all others, and of what another has taken over just now. The kernel knows only part
//! of it: a connection that is away has no socket here, and an entry does not say whose it is.
//!
//! It is written when a client's connection is accepted and when it is gone for good, never for a
//! request, nor for a hand-over. That takes a lock, of one of many parts that are chosen by a hash,
//! so that loops hardly ever meet; it is held for one step of a map, and nothing waits for anything
//! while it has it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::types::Flow;

/// Many more than there are loops.
const PARTS: usize = 64;

/// As the kernel's table has them: one way to write an address.
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

/// Clients' connections of all event loops of a process; copies are the same.
#[derive(Clone, Debug)]
pub struct Clients(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    hash: RandomState,
    /// How many there are of each: the next one of the same addresses may come to another loop
    /// before this one has seen the end of the last.
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
        // Each step leaves the map whole.
        parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client's connection has come to one of the loops.
    pub fn came(&self, flow: Flow) {
        let key = Key::of(flow);
        *self.part(&key).entry(key).or_default() += 1;
    }

    /// It is gone for good, or what was claimed is claimed no more.
    pub fn left(&self, flow: Flow) {
        let key = Key::of(flow);
        let mut part = self.part(&key);
        let Some(count) = part.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            part.remove(&key);
            // What a crowd of clients took is given back.
            if part.len() < part.capacity() / 8 {
                part.shrink_to_fit();
            }
        }
    }

    /// Claims a connection of which an agent says that it has it. False if one of the loops has a
    /// client of its addresses, or has claimed it.
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let count = |part: &Mutex<HashMap<Key, u32>>| {
            part.lock().unwrap_or_else(PoisonError::into_inner).len()
        };
        self.0.parts.iter().map(count).sum()
    }

    /// True if there are none.
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
    fn what_one_loop_has_no_other_claims_however_its_addresses_are_written() {
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
