//! Requests that a switch splits. Whether it does is seen of each server for itself: it may be
//! away, or send what is for one server to another host. A server of which several parts in a row
//! came to nothing is sent its own by the client, but for one from time to time; and no request
//! waits for it: what has no answer in time is asked of its servers.

use super::state::Client;
use crate::limits;
use crate::mode::Mode;

/// Groups of one request, and those that go straight to their servers.
type Ways = (Vec<u16>, Vec<u16>);

impl Client {
    /// Which of these groups, with their servers, are left to the switch. A request for one server
    /// needs none, but to see whether it is there.
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

    /// A part that the switch was to send to this server has no answer.
    pub(super) fn unswitched(&mut self, now_ns: u64, server: usize) {
        self.counts.unswitched += 1;
        self.servers[server].miss(now_ns);
    }
}
