//! Servers with their shims, and the switch.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_wire::netmc::{Trim, split};

use crate::client::Values;
use crate::shim::{Asked, Coordinator, CoordinatorOptions, Found, Shim, ShimOptions};

pub(super) fn address(last: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, last], port).into()
}

pub(super) fn shim_address(server: usize) -> SocketAddr {
    address(10 + server as u8, 9700)
}

/// State of a shim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Up,
    /// Input is lost.
    Killed,
    /// Input waits.
    Paused,
}

#[derive(Debug)]
pub(super) struct Server {
    shim: Shim,
    coordinator: Option<Coordinator>,
    /// Options for a restarted coordinator.
    options: CoordinatorOptions,
    pub(super) state: State,
    pub(super) queue: VecDeque<(SocketAddr, Vec<u8>)>,
    /// If false, neither shim nor clients reach it over TCP.
    pub(super) has_store: bool,
}

impl Server {
    /// Creates server `index` of `servers`, with or without a coordinator.
    pub(super) fn new(index: usize, servers: usize, coordinates: bool, seed: u64) -> Self {
        let options = ShimOptions {
            allow: vec!["192.0.2.0/24".parse().unwrap()],
            rate: 1_000_000,
            others_rate: 0,
        };
        let peers: Vec<SocketAddr> = (0..servers).map(shim_address).collect();
        let shim = if coordinates {
            Shim::coordinating(&options, &peers, index)
        } else {
            Shim::new(&options)
        };
        let options = CoordinatorOptions { peers, own: shim_address(index), seed };
        let coordinator = coordinates.then(|| Coordinator::new(&options));
        Self {
            shim,
            coordinator,
            options,
            state: State::Up,
            queue: VecDeque::new(),
            has_store: true,
        }
    }

    /// Kills the shim: requests under way are forgotten.
    pub(super) fn kill(&mut self) {
        self.state = State::Killed;
        self.options.seed = self.options.seed.wrapping_mul(3);
        self.coordinator = self.coordinator.take().map(|_| Coordinator::new(&self.options));
    }

    /// The coordinator, if the server has one that is up.
    pub(super) fn coordinator(&mut self) -> Option<&mut Coordinator> {
        self.coordinator.as_mut().filter(|_| self.state == State::Up)
    }

    pub(super) fn due_at_ns(&self) -> Option<u64> {
        self.coordinator.as_ref().filter(|_| self.state == State::Up)?.due_at_ns()
    }

    /// Number of requests under way at its coordinator.
    pub(super) fn under_way(&self) -> usize {
        self.coordinator
            .as_ref()
            .filter(|_| self.state == State::Up)
            .map_or(0, Coordinator::under_way)
    }

    pub(super) fn datagram(&mut self, now_ns: u64, from: SocketAddr, data: &[u8]) -> Option<Asked> {
        match self.state {
            State::Up => self.shim.datagram(now_ns, from, data).ok(),
            State::Killed => None,
            State::Paused => {
                self.queue.push_back((from, data.to_vec()));
                None
            }
        }
    }

    pub(super) fn answers(&self, asked: &Asked, values: &[Option<Vec<u8>>]) -> Vec<Vec<u8>> {
        let found = values.iter().map(|value| match (self.has_store, value) {
            (false, _) => Found::Error,
            (true, Some(value)) => Found::Value(value),
            (true, None) => Found::Nothing,
        });
        let mut replies = Vec::new();
        asked.answer(found, &mut Vec::new(), |reply| replies.push(reply.to_vec()));
        replies
    }
}

/// Replies of a coordinator.
pub(super) fn coordinated(asked: &Asked, values: &Values) -> Vec<Vec<u8>> {
    let mut replies = Vec::new();
    asked.answer_gathered(values, &mut Vec::new(), |reply| replies.push(reply.to_vec()));
    replies
}

/// A host that splits.
#[derive(Debug)]
pub(super) struct Switch {
    /// Addresses of the servers; some may be wrong.
    pub(super) table: Vec<SocketAddr>,
    pub(super) is_up: bool,
    pub(super) trim: Trim,
}

impl Switch {
    pub(super) fn address() -> SocketAddr {
        address(1, 9700)
    }

    pub(super) fn parts(&self, data: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut parts = Vec::new();
        if self.is_up {
            let each = |server: u8, part: &[u8]| {
                parts.push((self.table[usize::from(server)], part.to_vec()))
            };
            split(data, self.trim, &mut Vec::new(), each).expect("clients send what is sound");
        }
        parts
    }
}
