//! Requests that a switch splits. The client judges the switch separately for each server: it may
//! be away, or send one server's parts to another host. After several lost parts in a row the
//! client sends that server its requests itself, except one from time to time. No request waits for
//! the switch: keys without an answer in time are requested from their servers.

use super::state::Client;
use crate::limits;
use crate::mode::Mode;

/// Groups of one request, and groups that go straight to their servers.
type Ways = (Vec<u16>, Vec<u16>);

impl Client {
    /// Divides these groups, with their servers, between the switch and the straight way. A request
    /// for one server needs no switch, except to test it.
    pub(super) fn ways(&mut self, now_ns: u64, open: &[(u16, usize)]) -> Ways {
        let (mut switched, mut straight, mut is_trial) = (Vec::new(), Vec::new(), false);
        for (group, server) in open {
            let server = &mut self.servers[*server];
            match self.options.mode {
                Mode::Netmc { .. } if !server.is_absent() => switched.push(*group),
                Mode::Netmc { .. } if now_ns >= server.tried_at_ns => {
                    server.tried_at_ns = now_ns.saturating_add(limits::PROBE_NS);
                    is_trial = true;
                    switched.push(*group);
                }
                _ => straight.push(*group),
            }
        }
        if switched.len() == 1 && !is_trial {
            straight.append(&mut switched);
        }
        (switched, straight)
    }

    /// Notes that a part sent to this server through the switch got no answer.
    pub(super) fn unswitched(&mut self, now_ns: u64, server: usize) {
        self.counts.unswitched += 1;
        self.servers[server].miss(now_ns);
    }
}
