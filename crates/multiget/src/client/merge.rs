//! Input of a client: replies, and values fetched over TCP.

use std::net::SocketAddr;

use shunt_wire::netmc::{ReplyReader, Status};

use super::gather::Multiget;
use super::state::{Client, Event, Failure, Ticket, leaves_out};

impl Client {
    /// Takes a datagram.
    pub fn datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        data: &[u8],
        out: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        let Ok(reply) = ReplyReader::parse(data) else {
            self.counts.malformed += 1;
            return;
        };
        let Some(sent) = self.ids.get(&reply.header.id).copied() else {
            self.counts.late += 1;
            return;
        };
        let first = usize::from(reply.header.startidx);
        let positions = sent.keys[..usize::from(sent.count)]
            .get(first..first + usize::from(reply.header.numkey));
        let (no_source, no_key) = (leaves_out!(self, no_source), leaves_out!(self, no_key));
        let Some(multiget) = self.get(sent.ticket) else {
            self.counts.late += 1;
            return;
        };
        let is_ours = |(position, key): (&u16, &[u8])| {
            let server = sent
                .coordinator
                .or_else(|| Some(multiget.keys.get(usize::from(*position))?.server));
            let shim = server
                .and_then(|server| self.servers.get(usize::from(server)))
                .map(|server| server.shim);
            (no_source || shim == Some(from)) && (no_key || multiget.key(*position) == key)
        };
        let positions = positions.filter(|positions| {
            let keys = reply.clone().map(|item| item.key);
            // A coordinator with another list of servers would ask the wrong servers for keys.
            let list = sent.coordinator.map_or(0, |_| self.list);
            reply.header.op == sent.op
                && reply.header.list_digest == list
                && positions.iter().zip(keys).all(is_ours)
        });
        let Some(positions) = positions else {
            self.counts.foreign += 1;
            return;
        };
        let server = multiget.keys[usize::from(positions[0])].server;
        match sent.coordinator {
            Some(coordinator) => self.heard(reply.header.id, coordinator),
            None if sent.is_switched => self.servers[usize::from(server)].misses = 0,
            None => {}
        }
        let in_flight = self.in_flight;
        self.merge(sent.ticket, positions, reply);
        self.settle(sent.ticket, positions);
        if self.in_flight < in_flight {
            // The whole group is answered: the server is not silent, and did not stop half-way.
            let server = &mut self.servers[usize::from(sent.coordinator.unwrap_or(server))];
            (server.is_silent, server.halves) = (false, 0);
        }
        self.fail_if_too_large(sent.ticket);
        self.pump(now_ns, out);
        self.finish_if_done(sent.ticket);
    }

    fn merge(&mut self, ticket: Ticket, positions: &[u16], reply: ReplyReader<'_>) {
        let not_once = leaves_out!(self, not_once);
        let mut over_tcp = Vec::new();
        for (position, item) in positions.iter().zip(reply) {
            let is_new = match item.status {
                Status::Hit => self.answer(ticket, *position, Some(item.value)),
                Status::Miss => self.answer(ticket, *position, None),
                Status::TooBig | Status::AskOverTcp => {
                    over_tcp.push(*position);
                    true
                }
            };
            if not_once
                && !is_new
                && let Some(multiget) = self.get_mut(ticket)
            {
                multiget.left = multiget.left.saturating_sub(1);
            }
            self.counts.duplicates += u64::from(!is_new);
        }
        self.counts.over_tcp += over_tcp.len() as u64;
        self.fetch(ticket, &over_tcp);
    }

    /// Removes from the window those of these keys' groups for which datagrams can bring nothing
    /// more.
    pub(super) fn settle(&mut self, ticket: Ticket, positions: &[u16]) {
        for position in positions {
            let Some(multiget) = self.get_mut(ticket) else { return };
            let index = usize::from(multiget.keys[usize::from(*position)].group);
            let is_over = multiget
                .groups
                .get(index)
                .is_some_and(|group| group.in_flight && multiget.is_over(group));
            if is_over {
                let group = &mut multiget.groups[index];
                group.in_flight = false;
                let server = usize::from(group.server);
                self.servers[server].in_flight -= 1;
                self.in_flight -= 1;
            }
        }
    }

    fn fail_if_too_large(&mut self, ticket: Ticket) {
        if self.get(ticket).is_some_and(Multiget::is_too_large)
            && let Some(multiget) = self.remove(ticket)
        {
            self.counts.failed += 1;
            self.events
                .push_back(Event::Failed { user: multiget.user, failure: Failure::TooLarge });
        }
    }

    /// Takes the value, or its absence, of a key that was fetched over TCP.
    pub fn fetched(&mut self, ticket: Ticket, position: u16, value: Option<&[u8]>) {
        if self.answer(ticket, position, value) {
            self.fail_if_too_large(ticket);
            self.finish_if_done(ticket);
        }
    }

    /// Notes a key's answer; false for a repeated one, or if the multiget is over.
    fn answer(&mut self, ticket: Ticket, position: u16, value: Option<&[u8]>) -> bool {
        let Some(part) = self.get_mut(ticket).and_then(|multiget| multiget.answer(position, value))
        else {
            return false;
        };
        if part.left == 0 {
            self.servers[usize::from(part.server)].multigets -= 1;
        }
        true
    }

    /// Fails a multiget because a server refused over TCP, or could not be asked.
    pub fn fetch_failed(&mut self, ticket: Ticket, server: usize, text: &str) {
        if let Some(multiget) = self.remove(ticket) {
            self.counts.failed += 1;
            let failure = Failure::Server { server, text: text.to_owned() };
            self.events.push_back(Event::Failed { user: multiget.user, failure });
        }
    }
}
