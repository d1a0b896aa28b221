//! Actions of the state machines on the world.

use super::world::{AgentService, Exchange, Guard, OWNER, OwnerService, Wire, World, flow};
use crate::Flow;
use crate::agent::{AgentSink, Close, SessionId};
use crate::message::{Message, Ticket};
use crate::owner::{AgentId, Outcome, OwnerSink, Seen};
use shunt_reactor::moving::{Frozen, TcpState};

pub(super) struct AtOwner<'a> {
    pub(super) world: &'a mut World,
    pub(super) service: &'a mut OwnerService,
}

impl AtOwner<'_> {
    pub(super) fn say(&mut self, agent: usize, what: Wire) {
        if let Some(link) =
            self.world.links[agent].iter_mut().find(|link| link.at_owner && !link.is_broken)
        {
            link.to_agent.push_back(what);
        }
    }
}

impl OwnerSink for AtOwner<'_> {
    fn steer(&mut self, _: Flow, agent: AgentId, lease_ms: u64) -> bool {
        self.world.steering = Some((agent.0 as usize, self.world.now_ms + lease_ms));
        // Recording it in other cases would only multiply states.
        if self.world.bounds.alike {
            self.world.seen.get_or_insert_default();
        }
        true
    }

    fn unsteer(&mut self, _: Flow) {
        (self.world.steering, self.world.seen) = (None, None);
    }

    fn hold(&mut self, _: Flow, lease_ms: u64) -> bool {
        self.world.hold(lease_ms);
        true
    }

    fn seen(&self, _: Flow) -> Option<Seen> {
        self.world.seen
    }

    fn probe(&mut self, _: Flow, _: Frozen) {
        // The client can send a packet at any time.
    }

    fn could_go_on(&self, _: Flow, answer_sent: Option<u64>) -> bool {
        // The first byte stands for the head, which differs between agents.
        let answer = u64::from(self.world.bounds.answer);
        let is_place = answer_sent.is_none_or(|sent| (1..=answer).contains(&sent));
        self.world.bounds.alike && self.service.exchange.is_some() && is_place
    }

    fn freeze(&mut self, _: Flow) {
        match &mut self.world.hosts[OWNER].socket {
            Some(socket) => socket.is_freezing = true,
            None => self.world.violate("the owner freezes what it does not have"),
        }
    }

    fn restore(&mut self, _: Flow, frozen: Frozen) {
        self.world.hosts[OWNER].restoring = Some(frozen);
    }

    fn reset(&mut self, _: Flow, _: Option<TcpState>, _: u64) {
        // The client can send a packet at any time.
        self.world.is_ended = true;
    }

    fn send(&mut self, agent: AgentId, ticket: Ticket, message: Message<'static>) {
        let is_take = matches!(message, Message::Take { .. });
        self.world.handed_over += u32::from(is_take);
        self.say(agent.0 as usize, Wire::Control(ticket, message));
        if is_take && self.world.bounds.says_more {
            let more = if ticket.0.is_multiple_of(2) { Message::Fetch } else { Message::Cancel };
            self.say(agent.0 as usize, Wire::Control(ticket, more));
        }
    }

    fn drop_control(&mut self, agent: AgentId) {
        let agent = agent.0 as usize;
        self.service.is_up[agent] = false;
        for link in self.world.links[agent].iter_mut().filter(|link| link.at_owner) {
            (link.at_owner, link.is_broken) = (false, true);
        }
    }

    fn claim(&mut self, _: Flow) -> bool {
        self.world.hosts[OWNER].socket.is_none() && self.world.hosts[OWNER].restoring.is_none()
    }

    fn unclaim(&mut self, _: Flow) {}

    fn outcome(&mut self, _: Flow, ticket: Ticket, outcome: Outcome) {
        let Some((request, exchange)) = self.service.exchange else {
            // The connection was handed over by the process before.
            self.world.is_ended |= matches!(outcome, Outcome::Gone(_));
            return;
        };
        let agent = match exchange {
            Exchange::Asked { agent, .. }
            | Exchange::Moving { agent }
            | Exchange::Relaying { agent, .. } => agent,
            Exchange::Open { .. } => return self.world.violate("an outcome of nothing"),
        };
        let open = Some((request, Exchange::Open { last: Some(agent) }));
        self.service.exchange = match outcome {
            Outcome::Relay(_) => Some((request, Exchange::Relaying { agent, ticket })),
            Outcome::Elsewhere => open,
            Outcome::Back { is_complete: true, .. } => {
                self.world.came_back += 1;
                None
            }
            Outcome::Salvaged { answer_sent } => {
                self.world.salvaged += 1;
                self.service.skip = answer_sent as u8;
                open.filter(|_| answer_sent < self.world.bounds.answer.into())
            }
            Outcome::Back { answer_sent: 0, .. } => open,
            Outcome::Back { .. } => return self.world.violate("half an answer came back"),
            Outcome::Gone(_) => {
                self.world.is_ended = true;
                if !self.world.is_disturbed && !self.world.client.is_closed {
                    self.world.violate("given up without need");
                }
                None
            }
        };
    }
}

pub(super) struct AtAgent<'a> {
    pub(super) world: &'a mut World,
    pub(super) service: &'a mut AgentService,
    pub(super) host: usize,
}

impl AtAgent<'_> {
    pub(super) fn say(&mut self, session: SessionId, what: Wire) {
        let links = &mut self.world.links[self.host];
        let mut open = links
            .iter_mut()
            .filter(|link| link.session == session && link.at_agent && !link.is_broken);
        if let Some(link) = open.next() {
            link.to_owner.push_back(what);
        }
    }

    fn guarded(&mut self, guard: Guard, lease_ms: u64) {
        self.world.hosts[self.host].guard = Some((guard, self.world.now_ms + lease_ms));
    }
}

impl AgentSink for AtAgent<'_> {
    fn expect(&mut self, _: Flow, lease_ms: u64) {
        self.guarded(Guard::Expected, lease_ms);
    }

    fn own(&mut self, _: Flow, lease_ms: u64) {
        self.guarded(Guard::Owned, lease_ms);
    }

    fn let_end(&mut self, _: Flow, lease_ms: u64) {
        self.guarded(Guard::Owned, lease_ms);
    }

    fn end(&mut self, _: Flow) {
        self.world.violate("an agent ends what its client has not ended");
    }

    fn disown(&mut self, _: Flow) {
        self.world.hosts[self.host].guard = None;
    }

    fn restore(&mut self, _: Flow, frozen: Frozen) {
        self.world.hosts[self.host].restoring = Some(frozen);
    }

    fn freeze(&mut self, _: Flow) {
        match &mut self.world.hosts[self.host].socket {
            Some(socket) => socket.is_freezing = true,
            None => self.world.violate("an agent freezes what it does not have"),
        }
    }

    fn start(&mut self, of: Flow, session: SessionId, ticket: Ticket, answer_sent: u64) {
        assert!(of == flow() && (answer_sent == 0 || self.world.bounds.alike));
        let Some(answer) = self.service.answers.remove(&(session, ticket)) else {
            return self.world.violate("an answer is to be sent that was thrown away");
        };
        self.service.put_in = answer.len() as u8;
        match &mut self.world.hosts[self.host].socket {
            Some(socket) => socket.bytes.extend(&answer[answer_sent as usize..]),
            None => self.world.violate("an answer is to be sent on no connection"),
        }
    }

    fn relay(&mut self, session: SessionId, ticket: Ticket) {
        match self.service.answers.remove(&(session, ticket)) {
            Some(answer) => self.say(session, Wire::Relay(ticket, answer)),
            None => self.world.violate("an answer is to be relayed that was thrown away"),
        }
        self.service.relayed.push((session, ticket));
    }

    fn drop_answer(&mut self, session: SessionId, ticket: Ticket) {
        self.service.answers.remove(&(session, ticket));
    }

    fn close(&mut self, _: Flow, how: Close) {
        let host = &mut self.world.hosts[self.host];
        let is_stale = host.socket.as_ref().is_some_and(|socket| socket.is_stale);
        if host.socket.take().is_none()
            && host.restoring.take().is_none()
            && host.taken_out.take().is_none()
        {
            self.world.violate("an agent closes what it does not have");
        }
        // The agent sends nothing: the host that gets the client's packets tells it.
        if how == Close::Reset && !is_stale {
            if !self.world.is_disturbed && !self.world.client.is_closed {
                self.world.violate("closed without need");
            }
            self.world.is_ended = true;
        }
    }

    fn send(&mut self, session: SessionId, ticket: Ticket, message: Message<'static>) {
        self.say(session, Wire::Control(ticket, message));
    }

    fn settled(&mut self, _flow: Flow) {}

    fn drop_session(&mut self, session: SessionId) {
        for link in self.world.links[self.host].iter_mut().filter(|link| link.session == session) {
            (link.at_agent, link.is_broken) = (false, true);
        }
    }
}
