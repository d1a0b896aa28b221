//! Effects of events between the processes.

use super::sinks::AtOwner;
use super::world::{Exchange, Link, OWNER, Wire, World, flow};
use crate::agent::{AgentSink, SessionId};
use crate::message::{Message, Ticket};
use crate::session::OwnerId;

const OWNER_ID: OwnerId = OwnerId(77);

impl World {
    pub(super) fn owner_reads(&mut self, agent: usize) {
        let Some(link) = self.links[agent].iter_mut().find(|link| link.at_owner) else { return };
        let Some(wire) = link.to_owner.pop_front() else { return };
        let now_ms = self.now_ms;
        let id = World::id(agent);
        self.with_owner(|machine, at| match wire {
            Wire::Welcome(instance) => {
                machine.control_up(now_ms, id, instance, at);
                at.service.is_up[agent] = true;
            }
            Wire::Offer(ticket) => match at.service.exchange {
                Some((request, Exchange::Asked { agent: asked, ticket: of })) if asked == agent && of == ticket => {
                    at.service.exchange = Some((request, Exchange::Moving { agent }));
                    let skip = at.service.skip.into();
                    machine.offer(now_ms, id, ticket, flow(), skip, at);
                }
                _ => at.say(agent, Wire::Control(ticket, Message::Cancel)),
            },
            Wire::Relay(ticket, answer) => {
                let is_it = |exchange: Exchange| {
                    matches!(exchange, Exchange::Asked { ticket: of, .. } | Exchange::Relaying { ticket: of, .. } if of == ticket)
                };
                if at.service.exchange.is_some_and(|(_, exchange)| is_it(exchange)) {
                    at.service.exchange = None;
                    match &mut at.world.hosts[OWNER].socket {
                        Some(socket) => socket.bytes.extend(&answer[usize::from(at.service.skip)..]),
                        None => at.world.violate("an answer is relayed to no connection"),
                    }
                }
            }
            Wire::Control(ticket, Message::Failed { .. }) => again(at, agent, Some(ticket)),
            Wire::Control(ticket, message) => {
                if let Err(unexpected) = machine.heard(now_ms, id, ticket, &message, at) {
                    at.world.violate(unexpected.0);
                }
            }
            Wire::Request(..) => at.world.violate("an agent asks"),
        });
    }

    pub(super) fn agent_reads(&mut self, agent: usize, link: usize) {
        let Some(link) = self.links[agent].get_mut(link) else { return };
        let (session, Some(wire)) = (link.session, link.to_agent.pop_front()) else { return };
        let (now_ms, owners) = (self.now_ms, self.bounds);
        self.with_agent(agent, |machine, at| match wire {
            Wire::Request(ticket, request) => {
                let answer = at.world.answer(request, agent);
                assert_eq!(answer.len(), usize::from(owners.answer));
                match machine.offer(now_ms, session, ticket) {
                    Some(_) => {
                        at.service.answers.insert((session, ticket), answer);
                        at.say(session, Wire::Offer(ticket));
                    }
                    None => at.say(session, Wire::Relay(ticket, answer)),
                }
            }
            Wire::Control(ticket, message) => {
                let is_wrong =
                    owners.says_more && matches!(message, Message::Fetch | Message::Cancel);
                match machine.heard(now_ms, session, ticket, &message, at) {
                    Err(_) if is_wrong => {
                        at.drop_session(session);
                        machine.session_lost(now_ms, session, at);
                    }
                    Err(unexpected) => at.world.violate(unexpected.0),
                    Ok(()) => {}
                }
            }
            _ => at.world.violate("an owner answers"),
        });
    }

    pub(super) fn owner_loses(&mut self, agent: usize) {
        self.links[agent].iter_mut().for_each(|link| link.at_owner = false);
        let now_ms = self.now_ms;
        self.with_owner(|machine, at| {
            at.service.is_up[agent] = false;
            machine.control_lost(now_ms, World::id(agent), at);
            again(at, agent, None);
        });
    }

    pub(super) fn agent_loses(&mut self, agent: usize, link: usize) {
        self.links[agent][link].at_agent = false;
        let session = self.links[agent][link].session;
        let now_ms = self.now_ms;
        self.with_agent(agent, |machine, at| machine.session_lost(now_ms, session, at));
    }

    pub(super) fn connects(&mut self, agent: usize) {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let Some(instance) = self.agents[agent].as_ref().map(|(_, _, instance)| *instance) else {
            return;
        };
        let Some(owners) = self.owner.as_ref().map(|(_, service)| service.instance) else { return };
        self.links[agent].push(Link {
            session,
            is_broken: false,
            at_owner: true,
            at_agent: true,
            to_agent: [].into(),
            to_owner: [Wire::Welcome(instance)].into(),
        });
        let now_ms = self.now_ms;
        self.with_agent(agent, |machine, at| {
            machine.session_up(now_ms, session, OWNER_ID, owners, at)
        });
    }

    pub(super) fn killed(&mut self, host: usize) {
        self.kills -= 1;
        self.is_disturbed = true;
        let socket = self.hosts[host].socket.take();
        self.hosts[host].restoring = None;
        self.hosts[host].taken_out = None;
        if host == OWNER {
            self.owner = None;
            for link in self.links.iter_mut().flatten() {
                (link.at_owner, link.is_broken) = (false, true);
            }
        } else {
            self.agents[host] = None;
            for link in &mut self.links[host] {
                (link.at_agent, link.is_broken) = (false, true);
            }
            self.hosts[host].left = socket;
            if self.hosts[host].left.is_some() && self.bounds.alike {
                return;
            }
        }
        self.ended_with_process();
    }

    pub(super) fn tick(&mut self, host: usize) {
        self.ticks -= 1;
        self.is_disturbed = true;
        let next = match host {
            OWNER => self.owner.as_ref().and_then(|owner| owner.0.next_deadline_ms()),
            _ => self.agents[host].as_ref().and_then(|agent| agent.0.next_deadline_ms()),
        };
        self.now_ms = self.now_ms.max(next.unwrap_or(0));
        let now_ms = self.now_ms;
        if self.steering.is_some_and(|(_, until)| until <= now_ms) {
            // A live owner renews the entry long before.
            if self.owner.as_ref().is_some_and(|owner| owner.0.flows() > 0) && host != OWNER {
                self.violate("an entry has run out though its owner is there");
            }
            self.is_ended = true;
            self.steering = None;
        }
        if host == OWNER {
            self.with_owner(|machine, at| machine.tick(now_ms, at));
            for agent in 1..3 {
                self.with_owner(|_, at| {
                    if !at.service.is_up[agent] {
                        again(at, agent, None);
                    }
                });
            }
        } else {
            self.with_agent(host, |machine, at| machine.tick(now_ms, at));
        }
    }
}

/// Repeats the request that this agent was asked for, under this ticket or any.
fn again(at: &mut AtOwner<'_>, agent: usize, of: Option<Ticket>) {
    if let Some((
        request,
        Exchange::Asked { agent: asked, ticket } | Exchange::Relaying { agent: asked, ticket },
    )) = at.service.exchange
        && asked == agent
        && of.is_none_or(|of| of == ticket)
    {
        at.service.exchange = Some((request, Exchange::Open { last: Some(agent) }));
    }
}
