//! Output of requests: planned, held back by the window, sent, and sent again.

use std::cmp::Reverse;
use std::net::SocketAddr;

use shunt_wire::netmc::{Group as Head, KEYS_MAX, Trim, encode_request, split};

use super::gather::State;
use super::state::{Client, Event, Sent, Server, Ticket, leaves_out};
use crate::limits;
use crate::mode::Mode;

/// Receiver of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// The switch at this address, which splits it.
    Switch(SocketAddr),
    /// A coordinator, if one is chosen.
    First,
    /// The keys' servers.
    Straight,
}

impl Client {
    /// Decides which keys go in datagrams and which over TCP, and queues the former.
    pub(super) fn plan(&mut self, now_ns: u64, ticket: Ticket) {
        if self.options.mode == Mode::Tcp {
            let count = self.get(ticket).map_or(0, |multiget| multiget.keys.len());
            self.counts.over_tcp += count as u64;
            let all: Vec<u16> = (0..count as u16).collect();
            return self.fetch(ticket, &all);
        }
        let mut asked = [true; limits::SERVERS_MAX];
        for (asked, server) in asked.iter_mut().zip(&self.servers) {
            *asked = !server.is_silent || now_ns >= server.probe_at_ns;
        }
        let Some(multiget) = self.get_mut(ticket) else { return };
        let (mut too_long, mut silent) = (Vec::new(), Vec::new());
        for position in 0..multiget.keys.len() as u16 {
            if multiget.is_too_long(position) {
                too_long.push(position);
            } else if !asked[usize::from(multiget.keys[usize::from(position)].server)] {
                silent.push(position);
            }
        }
        (self.counts.over_tcp, self.counts.fell_back) = (
            self.counts.over_tcp + too_long.len() as u64,
            self.counts.fell_back + silent.len() as u64,
        );
        too_long.append(&mut silent);
        self.fetch(ticket, &too_long);
        let Some(multiget) = self.get_mut(ticket) else { return };
        multiget.group();
        let (batches, groups) = (multiget.batches.len() as u16, multiget.groups.len());
        self.alive_groups += groups;
        self.waiting.extend((0..batches).map(|batch| (ticket, batch)));
    }

    /// Requests keys over TCP, those of each server together.
    pub(super) fn fetch(&mut self, ticket: Ticket, positions: &[u16]) {
        let has_tcp = self.has_tcp;
        let Some(multiget) = self.get_mut(ticket) else { return };
        let mut wanted: Vec<(u8, u16)> = Vec::new();
        for position in positions {
            if !has_tcp {
                multiget.give_up(*position);
                continue;
            }
            let key = &mut multiget.keys[usize::from(*position)];
            if key.state == State::Wanted {
                key.state = State::Fetching;
                wanted.push((key.server, *position));
            }
        }
        let op = multiget.op;
        wanted.sort_unstable();
        for keys in wanted.chunk_by(|a, b| a.0 == b.0) {
            let (server, keys) =
                (usize::from(keys[0].0), keys.iter().map(|(_, position)| *position).collect());
            self.events.push_back(Event::Fetch { ticket, op, server, keys });
        }
        self.finish_if_done(ticket);
    }

    /// Sends as many requests as the window has room for.
    pub(super) fn pump(&mut self, now_ns: u64, out: &mut dyn FnMut(SocketAddr, &[u8])) {
        while let Some((line, ticket, batch)) = self.next_waiting() {
            let mut open = self.open_groups(ticket, batch);
            if open.iter().any(|(_, server)| self.servers[*server].is_silent) {
                self.ask_silent_over_tcp(now_ns, ticket, &open);
                open = self.open_groups(ticket, batch);
            }
            let is_full = self.in_flight > 0 && self.in_flight + open.len() > limits::WINDOW_GROUPS;
            if is_full && !leaves_out!(self, no_window) {
                return;
            }
            match line {
                Some(server) => self.servers[server].waiting.pop_front(),
                None => self.waiting.pop_front(),
            };
            let crowded =
                open.iter().map(|(_, server)| *server).find(|server| !self.has_room(*server));
            if let Some(server) = crowded.filter(|_| !leaves_out!(self, no_window)) {
                self.servers[server].waiting.push_back((ticket, batch));
                continue;
            }
            let resend_at_ns = now_ns.saturating_add(self.options.resend_ns);
            let (switched, straight) = self.ways(now_ns, &open);
            for (group, server) in open {
                if let Some(multiget) = self.get_mut(ticket) {
                    let group = &mut multiget.groups[usize::from(group)];
                    (group.attempts, group.in_flight) = (1, true);
                }
                let server = &mut self.servers[server];
                if server.is_silent {
                    server.probe_at_ns = now_ns.saturating_add(limits::PROBE_NS);
                }
                server.in_flight += 1;
                self.in_flight += 1;
                self.due.push(Reverse((resend_at_ns, ticket, group)));
            }
            if let Mode::Netmc { switch } = self.options.mode {
                self.send(now_ns, ticket, &switched, Way::Switch(switch), out);
            }
            self.send(now_ns, ticket, &straight, Way::First, out);
        }
    }

    /// The next request and its line: a server that has room again goes first, because its requests
    /// came first.
    fn next_waiting(&self) -> Option<(Option<usize>, Ticket, u16)> {
        let first = |(index, server): (usize, &Server)| {
            server
                .waiting
                .front()
                .filter(|_| self.has_room(index))
                .map(|(ticket, batch)| (Some(index), *ticket, *batch))
        };
        let of_server = self.servers.iter().enumerate().find_map(first);
        of_server.or_else(|| self.waiting.front().map(|(ticket, batch)| (None, *ticket, *batch)))
    }

    /// One of several servers may use at most half of the window, so that a silent one does not
    /// block the others.
    fn has_room(&self, server: usize) -> bool {
        self.servers.len() == 1 || self.servers[server].in_flight < limits::WINDOW_GROUPS / 2
    }

    /// Groups of a batch for which datagrams can still bring something, with their servers.
    fn open_groups(&self, ticket: Ticket, batch: u16) -> Vec<(u16, usize)> {
        let Some(multiget) = self.get(ticket) else { return Vec::new() };
        let Some(groups) = multiget.batches.get(usize::from(batch)).cloned() else {
            return Vec::new();
        };
        let groups = groups.map(|index| (index, &multiget.groups[usize::from(index)]));
        groups
            .filter(|(_, group)| !multiget.is_over(group))
            .map(|(index, group)| (index, usize::from(group.server)))
            .collect()
    }

    /// Moves unsent groups for a server that has become silent to TCP, except one group from time
    /// to time.
    fn ask_silent_over_tcp(&mut self, now_ns: u64, ticket: Ticket, open: &[(u16, usize)]) {
        for (index, server) in open.iter().copied() {
            if !self.servers[server].is_silent || leaves_out!(self, no_fallback) {
                continue;
            }
            let is_probe = now_ns >= self.servers[server].probe_at_ns;
            let Some(multiget) = self.get_mut(ticket) else { return };
            let mut positions = Vec::new();
            for (other, group) in multiget.groups.iter_mut().enumerate() {
                let is_kept = is_probe && other == usize::from(index);
                if usize::from(group.server) == server && group.attempts == 0 && !is_kept {
                    group.attempts = 1;
                    positions.extend_from_slice(&group.keys);
                }
            }
            self.counts.fell_back += positions.len() as u64;
            self.fetch(ticket, &positions);
        }
    }

    /// Sends the unanswered keys of these groups in one request.
    pub(super) fn send(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        groups: &[u16],
        way: Way,
        out: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        let all_again = leaves_out!(self, all_again);
        let id = self.unused_id();
        let Self { multigets, whole, .. } = self;
        let Some(multiget) = multigets.get_mut(ticket.slot as usize) else { return };
        let (mut sent, mut count) = ([0; KEYS_MAX], 0);
        let mut heads: Vec<Head> = Vec::with_capacity(groups.len());
        for index in groups {
            let group = &mut multiget.groups[usize::from(*index)];
            group.is_switched = matches!(way, Way::Switch(_));
            let before = count;
            for position in &group.keys {
                if all_again || multiget.keys[usize::from(*position)].state == State::Wanted {
                    sent[count] = *position;
                    count += 1;
                }
            }
            if count > before {
                heads.push(Head { server: group.server, keys: (count - before) as u8 });
            }
        }
        if heads.is_empty() {
            return;
        }
        whole.clear();
        let keys = sent[..count].iter().map(|position| multiget.key(*position));
        encode_request(whole, multiget.op, id, &heads, keys);
        multiget.ids.push(id);
        let op = multiget.op.reply();
        let coordinator = if way == Way::First { self.coordinator(now_ns, &heads) } else { None };
        if coordinator.is_some()
            && let Some(multiget) = self.get_mut(ticket)
        {
            groups
                .iter()
                .for_each(|index| multiget.groups[usize::from(*index)].coordinated = Some(id));
        }
        let (count, is_switched) = (count as u8, matches!(way, Way::Switch(_)));
        self.ids.insert(
            id,
            Sent { ticket, op, keys: sent, count, coordinator, is_settled: false, is_switched },
        );
        let to = match way {
            Way::Switch(switch) => {
                self.counts.switched += 1;
                Some(switch)
            }
            Way::First | Way::Straight => {
                let one = coordinator.or((heads.len() == 1).then_some(heads[0].server));
                one.map(|server| self.servers[usize::from(server)].shim)
            }
        };
        match to {
            Some(to) => {
                self.counts.sent += 1;
                out(to, &self.whole);
            }
            None => {
                let Self { servers, counts, whole, part, .. } = self;
                let outcome = split(whole, Trim::Own, part, |server, part| {
                    counts.sent += 1;
                    out(servers[usize::from(server)].shim, part);
                });
                debug_assert_eq!(outcome, Ok(()), "a request of our own is sound");
            }
        }
    }

    fn unused_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = id.wrapping_add(self.id_step);
            if !self.ids.contains_key(&id) {
                return id;
            }
        }
    }
}
