//! Deadlines: repeating groups, falling back to TCP, and failing multigets.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::net::SocketAddr;

use super::gather::{Key, State};
use super::send::Way;
use super::state::{Client, Event, Failure, Server, Ticket, leaves_out};
use crate::limits;

/// Marks the deadline in place of a group's number.
const DEADLINE: u16 = u16::MAX;
/// Ratio of stale entries to live ones, and a fixed number, beyond which stale ones are removed.
const STALE_FACTOR: usize = 4;
const STALE_MIN: usize = 1024;

impl Client {
    /// Time of the next call of [`look`](Client::look).
    pub fn due_at_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Does the work that is due.
    pub fn look(&mut self, now_ns: u64, out: &mut dyn FnMut(SocketAddr, &[u8])) {
        self.throw_out();
        while let Some(Reverse((at_ns, ticket, group))) = self.due.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            self.due.pop();
            if self.get(ticket).is_none() {
                continue;
            }
            if group == DEADLINE {
                self.fail(ticket);
            } else {
                self.ask_again(now_ns, ticket, group, out);
            }
        }
        self.pump(now_ns, out);
    }

    /// Removes stale entries; otherwise those of ended multigets would stay until their time.
    pub(super) fn throw_out(&mut self) {
        let alive = self.multigets.len() + self.alive_groups;
        if self.due.len() > STALE_FACTOR * alive + STALE_MIN {
            let mut due = std::mem::take(&mut self.due);
            due.retain(|Reverse((_, ticket, _))| self.get(*ticket).is_some());
            self.due = due;
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.retain(|(ticket, _)| self.get(*ticket).is_some());
            self.waiting = waiting;
            for server in 0..self.servers.len() {
                let mut waiting = std::mem::take(&mut self.servers[server].waiting);
                waiting.retain(|(ticket, _)| self.get(*ticket).is_some());
                self.servers[server].waiting = waiting;
            }
        }
    }

    fn fail(&mut self, ticket: Ticket) {
        if leaves_out!(self, no_deadline) {
            return;
        }
        let Some(multiget) = self.remove(ticket) else { return };
        let unsent: HashSet<u16> = multiget
            .groups
            .iter()
            .filter(|group| group.attempts == 0)
            .flat_map(|group| group.keys.clone())
            .collect();
        let mut keys = multiget.keys.iter().zip(0..);
        let missed = keys.find(|(key, position)| key.state.is_open() && !unsent.contains(position));
        let deadline =
            |(key, _): (&Key, u16)| Failure::Deadline { server: usize::from(key.server) };
        self.counts.failed += 1;
        let failure = missed.map_or(Failure::NotSent, deadline);
        self.events.push_back(Event::Failed { user: multiget.user, failure });
    }

    fn ask_again(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        index: u16,
        out: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        let (resend_ns, no_fallback) = (self.options.resend_ns, leaves_out!(self, no_fallback));
        let Some(multiget) = self.get_mut(ticket) else { return };
        let Some(group) =
            multiget.groups.get_mut(usize::from(index)).filter(|group| group.in_flight)
        else {
            return;
        };
        let server = usize::from(group.server);
        let (coordinated, is_switched) =
            (group.coordinated.take(), std::mem::take(&mut group.is_switched));
        if group.attempts < limits::ATTEMPTS_MAX {
            group.attempts += 1;
            let at_ns = now_ns.saturating_add(resend_ns.saturating_mul(1 << (group.attempts - 1)));
            coordinated.into_iter().for_each(|id| self.missed(now_ns, id));
            if is_switched {
                self.unswitched(now_ns, server);
            }
            self.due.push(Reverse((at_ns, ticket, index)));
            self.counts.repeated += 1;
            self.send(now_ns, ticket, &[index], Way::Straight, out);
            return;
        }
        if no_fallback {
            return;
        }
        let keys: Vec<u16> = group.keys.clone();
        let open = keys
            .iter()
            .filter(|position| multiget.keys[usize::from(**position)].state == State::Wanted)
            .count();
        self.servers[server].fell_back(now_ns, open < keys.len());
        self.counts.fell_back += open as u64;
        self.fetch(ticket, &keys);
        self.settle(ticket, &keys);
    }
}

impl Server {
    /// Notes that the rest of a group goes over TCP. A server that answered a part is alive, but
    /// only a few such halves are allowed: their cause may hold up others too.
    fn fell_back(&mut self, now_ns: u64, is_half: bool) {
        if is_half {
            self.halves = self.halves.saturating_add(1);
        }
        if !self.is_silent && (!is_half || self.halves >= limits::HALVES_MAX) {
            self.is_silent = true;
            self.probe_at_ns = now_ns.saturating_add(limits::PROBE_NS);
        }
    }
}
