//! Requests that another answers for all servers. It is the shim of the server with the most keys
//! of the request, so that most of the answer is near it. One that leaves several requests
//! unanswered is not asked any more, but for one from time to time; and no request waits for it:
//! what has no answer in time is asked of its servers.

use shunt_wire::netmc::Group as Head;

use super::state::{Client, Server};
use crate::limits;
use crate::mode::Mode;

impl Client {
    /// Who is to answer for all of these groups; none if each is asked of its server.
    pub(super) fn coordinator(&mut self, now_ns: u64, heads: &[Head]) -> Option<u8> {
        if self.options.mode != Mode::Coordinator || heads.len() == 1 {
            return None;
        }
        // One of a silent server is there to find out if its shim answers, and another shim's
        // answer does not say that.
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

    /// A coordinator has answered this request, or a part of it.
    pub(super) fn heard(&mut self, id: u32, coordinator: u8) {
        if let Some(sent) = self.ids.get_mut(&id) {
            sent.is_settled = true;
        }
        self.servers[usize::from(coordinator)].misses = 0;
    }

    /// Keys of this request have to be asked for again. Whose silence that is counts once for a
    /// request.
    pub(super) fn missed(&mut self, now_ns: u64, id: u32) {
        let Some(sent) = self.ids.get_mut(&id).filter(|sent| !sent.is_settled) else { return };
        sent.is_settled = true;
        let Some(coordinator) = sent.coordinator else { return };
        self.counts.uncoordinated += 1;
        self.servers[usize::from(coordinator)].miss(now_ns);
    }
}

impl Server {
    /// Once more nothing came of what was left to it, or to the switch for it.
    pub(super) fn miss(&mut self, now_ns: u64) {
        self.misses = self.misses.saturating_add(1);
        if self.is_absent() {
            self.tried_at_ns = now_ns.saturating_add(limits::PROBE_NS);
        }
    }

    /// It coordinates nothing, or is sent nothing by the switch, or not lately.
    pub(super) fn is_absent(&self) -> bool {
        self.misses >= limits::MISSES_MAX
    }
}
