//! A shim that answers for all servers: it asks their shims, its own among them, as a client does,
//! and puts the answers together.
//!
//! It asks nobody over TCP. What needs that it tells the client, which does; and it gives up long
//! before its client does.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_wire::netmc::Op;
use slab::Slab;

use super::Asked;
use crate::client::{Client, ClientOptions, Event, Refused, Values};
use crate::limits;
use crate::mode::Mode;

/// Options of a shim that coordinates.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// The shims of all servers, in the order that says which keys are whose.
    pub peers: Vec<SocketAddr>,
    /// Which of them this one is.
    pub own: SocketAddr,
    /// For the IDs of requests.
    pub seed: u64,
}

impl CoordinatorOptions {
    /// Its own place among the peers; behind them if it is none of them, and so for no server's
    /// requests.
    pub fn own_number(&self) -> usize {
        self.peers.iter().position(|peer| *peer == self.own).unwrap_or(self.peers.len())
    }
}

/// What a coordinator has under way.
#[derive(Debug)]
pub struct Coordinator {
    client: Client,
    asked: Slab<Asked>,
    answered: VecDeque<(Asked, Values)>,
}

impl Coordinator {
    /// A coordinator that nobody has asked.
    ///
    /// # Panics
    /// There is no peer, or more than [`limits::SERVERS_MAX`].
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

    /// Asks for the keys of a whole request.
    ///
    /// # Errors
    /// There are too many under way.
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

    /// Does what is due.
    pub fn look(&mut self, now_ns: u64, out: &mut dyn FnMut(SocketAddr, &[u8])) {
        self.client.look(now_ns, out);
        self.gather();
    }

    /// When [`look`](Self::look) is to be called, at the latest.
    pub fn due_at_ns(&self) -> Option<u64> {
        self.client.due_at_ns()
    }

    /// The next request that has its answer; ask again until there is none.
    pub fn answered(&mut self) -> Option<(Asked, Values)> {
        self.answered.pop_front()
    }

    /// Requests under way.
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
                // Its client has asked the servers by then.
                Event::Failed { user, .. } => drop(self.asked.try_remove(user as usize)),
                Event::Fetch { .. } => debug_assert!(false, "it asks nobody over TCP"),
            }
        }
    }
}
