//! A shim that answers for all servers: like a client it asks their shims, its own among them, and
//! merges the answers.
//!
//! A coordinator never uses TCP. It reports keys that need TCP to the client, which then fetches
//! them; and it gives up long before its client does.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_wire::netmc::Op;
use slab::Slab;

use super::Asked;
use crate::client::{Client, ClientOptions, Event, Refused, Values};
use crate::limits;
use crate::mode::Mode;

/// Options of a coordinating shim.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// Shims of all servers, in the order that determines the placement of keys.
    pub peers: Vec<SocketAddr>,
    /// Address of this shim.
    pub own: SocketAddr,
    /// Seed of the ids of requests.
    pub seed: u64,
}

impl CoordinatorOptions {
    /// Number of this shim among the peers; if it is absent, their count, so that it takes no
    /// server's requests.
    pub fn own_number(&self) -> usize {
        self.peers.iter().position(|peer| *peer == self.own).unwrap_or(self.peers.len())
    }
}

/// Requests under way at a coordinator.
#[derive(Debug)]
pub struct Coordinator {
    client: Client,
    asked: Slab<Asked>,
    answered: VecDeque<(Asked, Values)>,
}

impl Coordinator {
    /// Creates a coordinator without requests.
    ///
    /// # Panics
    /// The number of peers is 0 or above [`limits::SERVERS_MAX`].
    pub fn new(options: &CoordinatorOptions) -> Self {
        let client = Client::without_tcp(ClientOptions {
            shims: options.peers.clone(),
            mode: Mode::Cli,
            deadline_ns: limits::COORDINATED_NS,
            resend_ns: limits::COORDINATOR_RESEND_NS,
            seed: options.seed,
        });
        Self { client, asked: Slab::new(), answered: VecDeque::new() }
    }

    /// Starts fetching the keys of a whole request.
    ///
    /// # Errors
    /// Too many are under way.
    pub fn begin(
        &mut self,
        now_ns: u64,
        asked: Asked,
        out: &mut dyn FnMut(SocketAddr, &[u8]),
    ) -> Result<(), Refused> {
        let user = self.asked.insert(asked);
        let begun =
            self.client.begin(now_ns, user as u64, Op::MultiGet, self.asked[user].keys(), out);
        if begun.is_err() {
            self.asked.remove(user);
        }
        self.gather();
        begun
    }

    /// Takes a reply of a server's shim.
    pub fn datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        data: &[u8],
        out: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        self.client.datagram(now_ns, from, data, out);
        self.gather();
    }

    /// Does the work that is due.
    pub fn look(&mut self, now_ns: u64, out: &mut dyn FnMut(SocketAddr, &[u8])) {
        self.client.look(now_ns, out);
        self.gather();
    }

    /// Time of the next call of [`look`](Self::look).
    pub fn due_at_ns(&self) -> Option<u64> {
        self.client.due_at_ns()
    }

    /// Takes the next answered request, if there is one.
    pub fn answered(&mut self) -> Option<(Asked, Values)> {
        self.answered.pop_front()
    }

    /// Number of requests under way.
    pub fn under_way(&self) -> usize {
        self.asked.len()
    }

    fn gather(&mut self) {
        while let Some(event) = self.client.event() {
            match event {
                Event::Done { user, values } => {
                    if let Some(asked) = self.asked.try_remove(user as usize) {
                        self.answered.push_back((asked, values));
                    }
                }
                // The client has turned to the servers meanwhile.
                Event::Failed { user, .. } => drop(self.asked.try_remove(user as usize)),
                Event::Fetch { .. } => debug_assert!(false, "it asks nobody over TCP"),
            }
        }
    }
}
