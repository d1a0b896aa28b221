//! Agents: their arrival, loss and messages; and deadlines.

use super::salvage::{is_salvaged, state_of};
use super::{Agent, AgentId, Due, Gone, Move, Owner, OwnerSink, Stage, Then};
use crate::message::{Message, Ticket};
use crate::session::Instance;
use crate::types::{Flow, Unexpected};
use crate::weakened::Step;

impl Owner {
    /// Starts a session with this agent, which reports its connections next; until `HELD_END`
    /// silence about one means nothing.
    pub fn control_up(
        &mut self,
        now_ms: u64,
        id: AgentId,
        instance: Instance,
        sink: &mut impl OwnerSink,
    ) {
        self.control_lost(now_ms, id, sink);
        let session = self.agents.get(&id).map_or(0, |known| known.session) + 1;
        self.agents.insert(id, Agent { is_up: true, session, instance });
        if !self.steps.has(Step::SameAgentInstance) {
            return;
        }
        // The agent's earlier process is gone with its connections. The client's progress is
        // unknown: a copy that the agent may have had is never used unchanged.
        let all = self.at(id, |known| known.instance != instance && is_open(&known.stage));
        for ticket in all {
            self.agent_lost(now_ms, ticket, sink);
        }
    }

    /// The session with this agent has ended.
    pub fn control_lost(&mut self, now_ms: u64, id: AgentId, sink: &mut impl OwnerSink) {
        let Some(agent) = self.agents.get_mut(&id).filter(|agent| agent.is_up) else { return };
        agent.is_up = false;
        for ticket in
            self.at(id, |known| matches!(known.stage, Stage::Taking { .. } | Stage::There))
        {
            let Some(known) = self.moves.get(&ticket) else { continue };
            // `TAKE` may have arrived and `TAKEN` be on its way: from here on the copy is used only
            // once the agent says that it does not have the connection.
            let (stage, wait_ms) = match &known.stage {
                Stage::Taking { copy } if !self.steps.has(Step::WaitWhileInDoubt) => {
                    let copy = copy.clone();
                    self.restore(ticket, copy, Then::Elsewhere, sink);
                    continue;
                }
                Stage::Taking { copy } => {
                    (Stage::InDoubt { copy: copy.clone() }, self.limits.doubt_ms)
                }
                _ => (Stage::Lost, self.limits.lost_ms),
            };
            self.enter(ticket, stage);
            self.deadlines.set(Due::Wait(ticket), now_ms + wait_ms);
        }
    }

    /// True if a connection is at this agent, or on its way there or back.
    #[must_use]
    pub fn uses(&self, id: AgentId) -> bool {
        self.moves.values().any(|known| known.agent == id)
    }

    /// Notes a steering entry found at the start of this process: an agent will claim the
    /// connection, or it is closed.
    pub fn found_pinned(&mut self, now_ms: u64, flow: Flow) {
        self.pinned.insert(flow, ());
        self.deadlines.set(Due::Pinned(flow), now_ms + self.limits.pinned_ms);
    }

    /// Handles an agent's message about connections.
    ///
    /// # Errors
    /// The message does not fit earlier ones, or is not about connections.
    pub fn heard(
        &mut self,
        now_ms: u64,
        id: AgentId,
        ticket: Ticket,
        message: &Message<'_>,
        sink: &mut impl OwnerSink,
    ) -> Result<(), Unexpected> {
        if !self.agents.get(&id).is_some_and(|agent| agent.is_up) {
            return Ok(());
        }
        if self.moves.get(&ticket).is_some_and(|known| known.agent != id) {
            return Err(Unexpected("a connection of another agent"));
        }
        match message {
            Message::Taken => self.taken(ticket, sink),
            Message::Refused { reason } => self.refused(ticket, *reason, sink),
            Message::Return { connection, answer_sent, is_complete } => {
                self.returned(ticket, connection, (*answer_sent, *is_complete), sink)?;
                sink.send(id, ticket, Message::Settled);
                Ok(())
            }
            Message::Closed { reason, answer_sent, is_complete } => {
                let is_open = self.moves.get(&ticket).is_some_and(|known| is_open(&known.stage));
                sink.send(id, ticket, Message::Settled);
                if is_open {
                    let (reason, answer_sent, is_complete) = (*reason, *answer_sent, *is_complete);
                    self.gone(ticket, Gone::Ended { reason, answer_sent, is_complete }, sink);
                }
                Ok(())
            }
            Message::Held { local, peer, from } => {
                self.held(now_ms, id, ticket, Flow { local: *local, peer: *peer }, *from, sink);
                Ok(())
            }
            Message::HeldEnd { is_complete } => {
                self.held_end(now_ms, id, *is_complete, sink);
                Ok(())
            }
            _ => Err(Unexpected("a message that is not about a connection")),
        }
    }

    /// The agent reports that it has this connection.
    fn held(
        &mut self,
        now_ms: u64,
        id: AgentId,
        ticket: Ticket,
        flow: Flow,
        from: Instance,
        sink: &mut impl OwnerSink,
    ) {
        match self.moves.get(&ticket) {
            Some(Move { flow: known, stage: Stage::InDoubt { .. } | Stage::Lost, .. })
                if *known == flow =>
            {
                self.deadlines.clear(Due::Wait(ticket));
                self.enter(ticket, Stage::There);
            }
            Some(_) => return sink.send(id, ticket, Message::Release),
            // Release it if this process has given it up and reset its client; if there is no room;
            // or if a client with its addresses is here, perhaps in another loop: the loops share
            // the table of steering entries, and a new entry would redirect that client's packets.
            None if from == self.instance
                || self.flows.contains_key(&flow)
                || self.moves.len() >= self.limits.flows
                || !sink.claim(flow) =>
            {
                return sink.send(id, ticket, Message::Release);
            }
            None if !sink.steer(flow, id, self.limits.lease_ms) => {
                sink.unclaim(flow);
                return sink.send(id, ticket, Message::Release);
            }
            None => self.adopt(now_ms, id, ticket, flow),
        }
        sink.send(id, ticket, Message::HeldAck);
        self.say_recall(ticket, sink);
    }

    /// Takes over a connection that this owner's former process handed over.
    fn adopt(&mut self, now_ms: u64, id: AgentId, ticket: Ticket, flow: Flow) {
        let Some(agent) = self.agents.get(&id) else { return };
        let (session, instance) = (agent.session, agent.instance);
        self.pinned.remove(&flow);
        self.deadlines.clear(Due::Pinned(flow));
        let stage = Stage::There;
        self.moves.insert(
            ticket,
            Move {
                frozen_at_ms: now_ms,
                flow,
                agent: id,
                session,
                instance,
                answer_sent: 0,
                is_recalled: false,
                state: None,
                kept: None,
                is_claimed: true,
                stage,
            },
        );
        self.flows.insert(flow, ticket);
        self.deadlines.set(Due::Renewal(ticket), now_ms + self.limits.lease_ms / 3);
    }

    /// A connection that was not named is not at the agent. If the report is complete, it was never
    /// taken either; otherwise that is unknown.
    fn held_end(&mut self, now_ms: u64, id: AgentId, is_complete: bool, sink: &mut impl OwnerSink) {
        for ticket in
            self.at(id, |known| matches!(known.stage, Stage::InDoubt { .. } | Stage::Lost))
        {
            match self.moves.get(&ticket).map(|known| &known.stage) {
                Some(Stage::InDoubt { copy }) if is_complete => {
                    let copy = copy.clone();
                    self.restore(ticket, copy, Then::Elsewhere, sink);
                }
                _ => self.agent_lost(now_ms, ticket, sink),
            }
        }
    }

    /// Handles all deadlines that have passed.
    pub fn tick(&mut self, now_ms: u64, sink: &mut impl OwnerSink) {
        while let Some(due) = self.deadlines.pop(now_ms) {
            match due {
                Due::Renewal(ticket) => self.renew(now_ms, ticket, sink),
                Due::Pinned(flow) => {
                    self.pinned.remove(&flow);
                    let state = sink.seen(flow).and_then(|seen| state_of(flow, &seen));
                    sink.unsteer(flow);
                    sink.reset(flow, state, 0);
                }
                Due::Wait(ticket) => {
                    match self.moves.get(&ticket).map(|known| (&known.stage, known.agent)) {
                        // An agent that does not answer counts as lost, but its actions are
                        // unknown.
                        Some((Stage::Taking { .. }, agent)) => {
                            sink.drop_control(agent);
                            self.control_lost(now_ms, agent, sink);
                        }
                        Some((Stage::InDoubt { .. } | Stage::Lost, _)) => {
                            self.agent_lost(now_ms, ticket, sink)
                        }
                        // This process may have been paused: with the probe still in the loop, the
                        // restored connection would find its place taken.
                        Some((Stage::Salvaging { .. }, _)) if self.is_probing(ticket, sink) => {
                            self.deadlines.set(Due::Wait(ticket), now_ms + self.limits.look_ms);
                        }
                        Some((Stage::Salvaging { .. }, _)) => self.look(now_ms, ticket, sink),
                        _ => {}
                    }
                }
            }
        }
    }

    fn is_probing(&self, ticket: Ticket, sink: &impl OwnerSink) -> bool {
        self.moves.get(&ticket).is_some_and(|known| sink.is_probing(known.flow))
    }

    fn renew(&mut self, now_ms: u64, ticket: Ticket, sink: &mut impl OwnerSink) {
        let Some(known) = self.moves.get(&ticket) else { return };
        // A failed renewal is repeated before the entry expires.
        match is_salvaged(&known.stage) {
            true => sink.hold(known.flow, self.limits.lease_ms),
            false => sink.steer(known.flow, known.agent, self.limits.lease_ms),
        };
        self.deadlines.set(Due::Renewal(ticket), now_ms + self.limits.lease_ms / 3);
    }

    fn at(&self, id: AgentId, which: impl Fn(&Move) -> bool) -> Vec<Ticket> {
        self.moves
            .iter()
            .filter(|(_, known)| known.agent == id && which(known))
            .map(|(ticket, _)| *ticket)
            .collect()
    }
}

/// True if the connection is or may be at an agent.
fn is_open(stage: &Stage) -> bool {
    matches!(stage, Stage::Taking { .. } | Stage::InDoubt { .. } | Stage::There | Stage::Lost)
}
