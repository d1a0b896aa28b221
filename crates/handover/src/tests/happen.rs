//! Effects of events in the network and on the hosts.

use super::events::Event;
use super::sinks::{AtAgent, AtOwner};
use super::world::{
    Down, Exchange, Guard, Host, NOWHERE, OWNER, OwnerService, PACKETS_MAX, Socket, Up, Wire,
    World, flow,
};
use crate::message::Ending;
use crate::owner::{AgentId, Owner};
use crate::weakened::Step;
use shunt_reactor::moving::{Frozen, NotFrozen};

pub(super) fn packet_of(socket: &Socket, index: Option<u8>) -> Down {
    let byte = index.map(|index| (socket.unacknowledged + index, socket.bytes[usize::from(index)]));
    Down { byte, acknowledged: socket.next, is_end: false }
}

impl World {
    /// Carries out an event; the error names a violated invariant.
    pub(super) fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::ClientSends { position } => {
                if let Some(position) = position {
                    self.client.sent = self.client.sent.max(position + 1);
                }
                let acknowledged = self.client.received.len() as u8;
                self.up.push(Up { position, acknowledged, bounced: false });
            }
            Event::Steered { packet } => self.steered(packet),
            Event::Guarded { host, packet } => self.guarded(host, packet),
            Event::Arrives { host, packet } => self.arrives(host, packet),
            Event::Sends { host, index } => self.sends(host, index),
            Event::LeftSends { host, index } => self.left_sends(host, index),
            Event::LeftEnds { host } => self.left_ends(host),
            Event::LeftGoes { host } => self.hosts[host].left = None,
            Event::ComesDown { packet } => self.comes_down(packet),
            Event::Lost { packet } => {
                self.losses -= 1;
                self.up.remove(packet);
            }
            Event::Reads { host } => {
                if let Some(socket) = &mut self.hosts[host].socket {
                    socket.dump = Some(socket.freeze());
                }
            }
            Event::Looks { host } => self.looks(host),
            Event::TakesOut { host } => {
                let socket = self.hosts[host].socket.take();
                self.hosts[host].taken_out = socket.and_then(|socket| socket.dump);
            }
            Event::Hears { host } => {
                if let Some(frozen) = self.hosts[host].taken_out.take() {
                    self.frozen(host, Ok(frozen));
                }
            }
            Event::FreezeFails { host } => {
                self.failures -= 1;
                self.is_disturbed = true;
                // An agent closes a connection that can never move.
                let why = if host == OWNER { NotFrozen::Moved } else { NotFrozen::Unsupported };
                self.frozen(host, Err(why));
            }
            Event::Restored { host, is_in } => self.restored(host, is_in),
            Event::Notices { host } => self.notices(host),
            Event::Dies { host } => self.dies(host),
            Event::OwnerReads { agent } => self.owner_reads(agent),
            Event::AgentReads { agent, link } => self.agent_reads(agent, link),
            Event::Breaks { agent } => {
                self.breaks -= 1;
                self.links[agent]
                    .iter_mut()
                    .filter(|link| link.at_owner)
                    .for_each(|link| link.is_broken = true);
            }
            Event::OwnerLoses { agent } => self.owner_loses(agent),
            Event::AgentLoses { agent, link } => self.agent_loses(agent, link),
            Event::Connects { agent } => self.connects(agent),
            Event::Killed { host } => self.killed(host),
            Event::Starts { host } => self.start(host),
            Event::Ticks { host } => self.tick(host),
        }
        self.serve();
        for links in &mut self.links {
            links.retain(|link| link.at_owner || link.at_agent);
        }
        self.check();
        self.violation.take().map_or(Ok(()), Err)
    }

    fn steered(&mut self, packet: usize) {
        let packet = self.up.remove(packet);
        let to = self.steered_to();
        if let Some(seen) = self.seen.as_mut().filter(|_| to.is_some()) {
            seen.packets += 1;
            let (first, more) = seen.acknowledged.get_or_insert((packet.acknowledged.into(), 0));
            *more = u64::from(packet.acknowledged).saturating_sub(u64::from(*first)).max(*more);
            seen.sequence_end =
                seen.sequence_end.max(packet.position.map(|position| u32::from(position) + 1));
        }
        match to {
            Some(NOWHERE) => {}
            // Packets that were sent back once are not redirected again.
            Some(_) if packet.bounced => {}
            Some(agent) => push(&mut self.hosts[agent].lane, packet),
            None => push(&mut self.hosts[OWNER].stack, packet),
        }
    }

    fn guarded(&mut self, host: usize, packet: usize) {
        let packet = self.hosts[host].lane.remove(packet);
        match self.guard(host) {
            Some(Guard::Owned) => push(&mut self.hosts[host].stack, packet),
            Some(Guard::Expected) => {}
            None => push(&mut self.up, Up { bounced: true, ..packet }),
        }
    }

    fn arrives(&mut self, host: usize, packet: usize) {
        let packet = self.hosts[host].stack.remove(packet);
        let here = &mut self.hosts[host];
        let Some(socket) = here.socket.as_mut().or(here.left.as_mut()) else {
            // No reset leaves an agent's host for a foreign address, nor the owner's for a
            // connection that is elsewhere.
            if host == OWNER && self.steered_to().is_none() && !self.client.is_closed {
                self.client.is_closed = true;
                if !self.is_ended {
                    self.violate("a packet found no connection");
                }
            }
            return;
        };
        let taken = packet.acknowledged.saturating_sub(socket.unacknowledged);
        if taken > socket.sent && self.bounds.alike {
            // Another end has sent it: a kernel drops acknowledgements of bytes it has not sent.
            return;
        }
        if taken > socket.sent {
            return self.violate("the client has what was never sent to it");
        }
        socket.bytes.drain(..usize::from(taken));
        socket.unacknowledged += taken;
        socket.sent -= taken;
        if packet.position == Some(socket.next) {
            socket.unread.push(socket.next);
            socket.next += 1;
        }
        if host != OWNER && taken > 0 {
            self.with_agent(host, |machine, at| machine.progress(at.world.now_ms, flow()));
        }
    }

    fn sends(&mut self, host: usize, index: Option<u8>) {
        let is_let_out = host == OWNER || self.guard(host) == Some(Guard::Owned);
        let Some(socket) = &mut self.hosts[host].socket else { return };
        let packet = packet_of(socket, index);
        if let Some(index) = index {
            socket.sent = socket.sent.max(index + 1);
        }
        if is_let_out {
            push(&mut self.down, packet);
        }
    }

    fn left_sends(&mut self, host: usize, index: Option<u8>) {
        let is_let_out = self.guard(host).is_some();
        let Some(left) = &mut self.hosts[host].left else { return };
        let packet = packet_of(left, index);
        if let Some(index) = index {
            left.sent = left.sent.max(index + 1);
        }
        if is_let_out {
            push(&mut self.down, packet);
        }
    }

    fn left_ends(&mut self, host: usize) {
        let is_let_out =
            self.bounds.left_out == Some(Step::KeepEndsBack) && self.guard(host).is_some();
        let Some(left) = &mut self.hosts[host].left else { return };
        left.is_stale = true;
        let end = Down { is_end: true, ..packet_of(left, None) };
        if is_let_out {
            push(&mut self.down, end);
        }
    }

    fn comes_down(&mut self, packet: usize) {
        let packet = self.down.remove(packet);
        if self.client.is_closed {
            return;
        }
        if packet.is_end {
            self.client.is_closed = true;
            if !self.is_ended {
                self.violate("the kernel of a dead agent ends a connection");
            }
            return;
        }
        if packet.acknowledged > self.client.sent {
            return self.violate("what the client never sent is acknowledged");
        }
        self.client.acknowledged = self.client.acknowledged.max(packet.acknowledged);
        let Some((_, value)) = packet
            .byte
            .filter(|(position, _)| usize::from(*position) == self.client.received.len())
        else {
            return;
        };
        let place = self.client.received.len() as u8;
        let (request, index) = (place / self.bounds.answer, place % self.bounds.answer);
        let agent = value & 3;
        let is_right = request < self.client.sent && value == (request << 6 | index << 2 | agent);
        let first = usize::from(request * self.bounds.answer);
        let of = if self.bounds.alike {
            0
        } else {
            self.client.received.get(first).map_or(0, |byte| byte & 3)
        };
        let is_same = index == 0 || of == agent;
        self.client.received.push(value);
        if !is_right || !is_same {
            self.violate("a wrong byte");
        }
    }

    fn looks(&mut self, host: usize) {
        let Some(socket) = &mut self.hosts[host].socket else { return };
        let now = socket.freeze();
        socket.is_same = socket.dump.as_ref() == Some(&now);
        socket.dump = Some(now);
    }

    fn frozen(&mut self, host: usize, result: Result<Frozen, NotFrozen>) {
        if let Some(socket) = &mut self.hosts[host].socket {
            (socket.is_freezing, socket.dump, socket.is_same) = (false, None, false);
        }
        let now_ms = self.now_ms;
        if host == OWNER {
            self.with_owner(|machine, at| machine.frozen(now_ms, flow(), result, at));
        } else {
            self.with_agent(host, |machine, at| machine.frozen(now_ms, flow(), result, at));
        }
    }

    fn restored(&mut self, host: usize, is_in: bool) {
        let Some(frozen) = self.hosts[host].restoring.take() else { return };
        if is_in {
            let socket = Socket::restore(&frozen);
            if !self.client.is_closed {
                let known = usize::from(socket.unacknowledged) + usize::from(socket.sent);
                // The client may already have bytes still under way of an answer that is resumed
                // elsewhere.
                let is_behind = known < self.client.received.len() && !self.bounds.alike;
                if socket.next < self.client.acknowledged || is_behind {
                    self.violate("an old state was put in");
                }
            }
            if self.bounds.alike && host == OWNER {
                for agent in self.hosts.iter_mut().filter_map(|host| host.socket.as_mut()) {
                    agent.is_stale = true;
                }
            }
            self.hosts[host].socket = Some(socket);
        } else {
            self.failures = self.failures.saturating_sub(1);
            self.is_disturbed = true;
        }
        let now_ms = self.now_ms;
        if host == OWNER {
            self.with_owner(|machine, at| machine.restored(flow(), is_in, at));
        } else {
            self.with_agent(host, |machine, at| machine.restored(now_ms, flow(), is_in, at));
        }
    }

    pub(super) fn can_notice(&self, host: usize) -> bool {
        let (Some(socket), Some((_, service, _))) = (&self.hosts[host].socket, &self.agents[host])
        else {
            return false;
        };
        !socket.is_freezing
            && (service.put_in > 0 && socket.bytes.is_empty() || !socket.unread.is_empty())
    }

    fn notices(&mut self, host: usize) {
        let Some(socket) = &self.hosts[host].socket else { return };
        let (is_out, has_unread) = (socket.bytes.is_empty(), !socket.unread.is_empty());
        let now_ms = self.now_ms;
        self.with_agent(host, |machine, at| {
            let sent = at.service.put_in;
            if is_out && sent > 0 {
                at.service.put_in = 0;
                machine.delivered(now_ms, flow(), sent.into(), at);
            }
            if has_unread {
                machine.client_waits(flow(), at);
            }
        });
    }

    fn dies(&mut self, host: usize) {
        self.hosts[host].socket = None;
        let now_ms = self.now_ms;
        if host != OWNER {
            return self.with_agent(host, |machine, at| {
                machine.client_gone(now_ms, flow(), Ending::Reset, 0, at)
            });
        }
        self.with_owner(|machine, at| {
            machine.client_gone(flow(), at);
            if let Some((
                _,
                Exchange::Asked { agent, ticket } | Exchange::Relaying { agent, ticket },
            )) = at.service.exchange
            {
                at.say(agent, Wire::Control(ticket, crate::message::Message::Cancel));
            }
            at.service.exchange = None;
        });
    }

    pub(super) fn with_owner(&mut self, act: impl FnOnce(&mut Owner, &mut AtOwner<'_>)) {
        let Some((mut machine, mut service)) = self.owner.take() else { return };
        act(&mut machine, &mut AtOwner { world: self, service: &mut service });
        self.owner = Some((machine, service));
    }

    pub(super) fn with_agent(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut crate::agent::Agent, &mut AtAgent<'_>),
    ) {
        let Some((mut machine, mut service, instance)) = self.agents[host].take() else { return };
        act(&mut machine, &mut AtAgent { world: self, service: &mut service, host });
        for (session, ticket) in std::mem::take(&mut service.relayed) {
            machine.budget_free(session, ticket);
        }
        self.agents[host] = Some((machine, service, instance));
    }

    /// The owner takes the client's next request, or asks another agent, as soon as it can.
    fn serve(&mut self) {
        let Some((mut machine, mut service)) = self.owner.take() else { return };
        if let Some(socket) = &mut self.hosts[OWNER].socket
            && service.exchange.is_none()
            && !socket.is_freezing
            && !socket.unread.is_empty()
            && !self.client.is_closed
        {
            service.exchange = Some((socket.unread.remove(0), Exchange::Open { last: None }));
            service.skip = 0;
        }
        self.ask(&mut machine, &mut service);
        self.owner = Some((machine, service));
    }

    fn ask(&mut self, _: &mut Owner, service: &mut OwnerService) {
        let Some((request, Exchange::Open { last })) = service.exchange else { return };
        if self.hosts[OWNER].socket.is_none() {
            return;
        }
        let first = 1 + usize::from(request % 2);
        let mut order = [first, 3 - first];
        if last == Some(first) {
            order.reverse();
        }
        let Some(agent) = order.into_iter().find(|agent| service.is_up[*agent]) else { return };
        let ticket = crate::message::Ticket(service.next_ticket);
        service.next_ticket += 1;
        service.exchange = Some((request, Exchange::Asked { agent, ticket }));
        AtOwner { world: self, service }.say(agent, Wire::Request(ticket, request));
    }

    fn check(&mut self) {
        let is_end = |host: &&Host| host.socket.as_ref().is_some_and(|socket| !socket.is_stale);
        let ends = self.hosts.iter().filter(is_end).count();
        if ends > 1 && !self.client.is_closed {
            self.violate("two ends are alive");
        }
        if let Some(socket) = self.hosts.iter().filter(is_end).find_map(|host| host.socket.as_ref())
            && !self.client.is_closed
        {
            if usize::from(socket.unacknowledged) > self.client.received.len() {
                self.violate("what the client does not have is taken for acknowledged");
            } else if socket.next < self.client.acknowledged {
                self.violate("what was acknowledged to the client is lost");
            }
        }
    }

    /// Id of an agent in the owner's state machine.
    pub(super) fn id(agent: usize) -> AgentId {
        AgentId(agent as u32)
    }
}

fn push<T: PartialEq>(packets: &mut Vec<T>, packet: T) {
    if packets.len() < PACKETS_MAX && !packets.contains(&packet) {
        packets.push(packet);
    }
}
