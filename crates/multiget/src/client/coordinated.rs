//! Requests that one shim answers for all servers: the shim of the server with the most keys of the
//! request, so that most of the answer is near it. A coordinator that leaves several requests
//! unanswered gets no more, except one from time to time. No request waits for it: keys without an
//! answer in time are requested from their servers.

use shunt_wire::netmc::Group as Head;

use super::state::{Client, Server};
use crate::limits;
use crate::mode::Mode;

impl Client {
    /// Coordinator for these groups; `None` if each goes to its server.
    pub(super) fn coordinator(&mut self, now_ns: u64, heads: &[Head]) -> Option<u8> {
        if self.options.mode != Mode::Coordinator || heads.len() == 1 {
            return None;
        }
        // A group for a silent server tests whether its own shim answers, which a coordinator's
        // answer would not show.
        if heads.iter().any(|head| self.servers[usize::from(head.server)].is_silent) {
            return None;
        }
        let is_there = |server: &Server| !server.is_absent() || now_ns >= server.tried_at_ns;
        let there = heads.iter().filter(|head| is_there(&self.servers[usize::from(head.server)]));
        let chosen = there.max_by_key(|head| head.keys)?.server;
        let server = &mut self.servers[usize::from(chosen)];
        if server.is_absent() {
            server.tried_at_ns = now_ns.saturating_add(limits::PROBE_NS);
        }
        self.counts.coordinated += 1;
        Some(chosen)
    }

    /// Notes that a coordinator has answered this request, or a part of it.
    pub(super) fn heard(&mut self, id: u32, coordinator: u8) {
        if let Some(sent) = self.ids.get_mut(&id) {
            sent.is_settled = true;
        }
        self.servers[usize::from(coordinator)].misses = 0;
    }

    /// Notes that keys of this request must be repeated. Each request counts at most once against
    /// its coordinator.
    pub(super) fn missed(&mut self, now_ns: u64, id: u32) {
        let Some(sent) = self.ids.get_mut(&id).filter(|sent| !sent.is_settled) else { return };
        sent.is_settled = true;
        let Some(coordinator) = sent.coordinator else { return };
        self.counts.uncoordinated += 1;
        self.servers[usize::from(coordinator)].miss(now_ns);
    }
}

impl Server {
    /// Counts another failure of the server as a coordinator, or of the switch for it.
    pub(super) fn miss(&mut self, now_ns: u64) {
        self.misses = self.misses.saturating_add(1);
        if self.is_absent() {
            self.tried_at_ns = now_ns.saturating_add(limits::PROBE_NS);
        }
    }

    /// True if the server coordinates nothing, or the switch does not reach it, for now.
    pub(super) fn is_absent(&self) -> bool {
        self.misses >= limits::MISSES_MAX
    }
}
