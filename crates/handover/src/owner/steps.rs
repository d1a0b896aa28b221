//! Steps of one connection, each with its invariants.

use super::salvage::{acknowledged, is_salvaged, place};
use super::{Due, Gone, Move, Outcome, Owner, OwnerSink, Relayed, Stage, Then};
use crate::message::connection::check_frozen;
use crate::message::{Message, Refusal, Ticket};
use crate::owner::AgentId;
use crate::types::{Flow, Unexpected};
use crate::weakened::Step;
use shunt_reactor::moving::{Frozen, NotFrozen};

impl Owner {
    /// Hands over the connection of `flow` for the answer of `ticket`, which an agent offers. That
    /// answer must be the next for the client, which already has `answer_sent` bytes of it. No
    /// other exchange of the client may be under way: it would never be answered if this process
    /// ended. The connection must be plain TCP. [`OwnerSink::outcome`] reports the end, perhaps
    /// during this call.
    pub fn offer(
        &mut self,
        now_ms: u64,
        agent: AgentId,
        ticket: Ticket,
        flow: Flow,
        answer_sent: u64,
        sink: &mut impl OwnerSink,
    ) {
        let Some(known) = self.agents.get(&agent).filter(|known| known.is_up).copied() else {
            return sink.outcome(flow, ticket, Outcome::Elsewhere);
        };
        let is_full =
            self.moves.len() >= self.limits.flows || self.on_their_way >= self.limits.moves;
        if is_full || self.flows.contains_key(&flow) || self.moves.contains_key(&ticket) {
            sink.send(agent, ticket, Message::Fetch);
            return sink.outcome(flow, ticket, Outcome::Relay(Relayed::Full));
        }
        // Freezing must never come first: a packet that reaches a host without its connection is
        // answered with a reset.
        if self.steps.has(Step::SteerBeforeFreeze) && !sink.steer(flow, agent, self.limits.lease_ms)
        {
            sink.send(agent, ticket, Message::Fetch);
            return sink.outcome(flow, ticket, Outcome::Relay(Relayed::NotSteered));
        }
        let (session, instance) = (known.session, known.instance);
        let stage = Stage::Freezing;
        self.moves.insert(
            ticket,
            Move {
                flow,
                frozen_at_ms: now_ms,
                agent,
                session,
                instance,
                answer_sent,
                is_recalled: false,
                state: None,
                kept: None,
                is_claimed: false,
                stage,
            },
        );
        self.flows.insert(flow, ticket);
        self.on_their_way += 1;
        self.deadlines.set(Due::Renewal(ticket), now_ms + self.limits.lease_ms / 3);
        sink.freeze(flow);
    }

    /// The connection was frozen, or could not be and goes on in the loop.
    pub fn frozen(
        &mut self,
        now_ms: u64,
        flow: Flow,
        result: Result<Frozen, NotFrozen>,
        sink: &mut impl OwnerSink,
    ) {
        let Some(ticket) = self.flows.get(&flow).copied() else { return };
        let Some(known) = self.moves.get(&ticket).filter(|known| known.stage == Stage::Freezing)
        else {
            return;
        };
        let (agent, answer_sent) = (known.agent, known.answer_sent);
        let is_reachable = self.is_reachable(known);
        let Ok(frozen) = result else {
            self.forget(ticket, sink);
            return self.tell_here(
                flow,
                ticket,
                agent,
                Then::Relay(Relayed::NotFrozen),
                is_reachable,
                sink,
            );
        };
        if !self.steps.has(Step::SteerBeforeFreeze) {
            sink.steer(flow, agent, self.limits.lease_ms);
        }
        if !is_reachable {
            return self.restore(ticket, frozen, Then::Elsewhere, sink);
        }
        if check_frozen(&frozen).is_err()
            || (Flow { local: frozen.state.local, peer: frozen.state.peer }) != flow
        {
            return self.restore(ticket, frozen, Then::Relay(Relayed::NotSendable), sink);
        }
        self.keep(now_ms, ticket, &frozen);
        sink.send(agent, ticket, Message::Take { connection: frozen.clone(), answer_sent });
        self.enter(ticket, Stage::Taking { copy: frozen });
        self.deadlines.set(Due::Wait(ticket), now_ms + self.limits.taken_ms);
    }

    /// The client's connection ended in the loop before it was frozen.
    pub fn client_gone(&mut self, flow: Flow, sink: &mut impl OwnerSink) {
        let Some(ticket) = self.flows.get(&flow).copied() else { return };
        let Some(known) = self.moves.get(&ticket).filter(|known| known.stage == Stage::Freezing)
        else {
            return;
        };
        if self.is_reachable(known) {
            sink.send(known.agent, ticket, Message::Cancel);
        }
        self.gone(ticket, Gone::Client, sink);
    }

    /// The connection has been restored, or could not be.
    pub fn restored(&mut self, flow: Flow, is_in: bool, sink: &mut impl OwnerSink) {
        let Some(ticket) = self.flows.get(&flow).copied() else { return };
        let Some(Move { stage: Stage::Restoring { then }, agent, .. }) = self.moves.get(&ticket)
        else {
            return;
        };
        let (then, agent) = (*then, *agent);
        if !is_in {
            return self.gone(ticket, Gone::NotRestored, sink);
        }
        let is_reachable = self.moves.get(&ticket).is_some_and(|known| self.is_reachable(known));
        // Unsteering must never come earlier: packets would find no connection.
        self.forget(ticket, sink);
        self.tell_here(flow, ticket, agent, then, is_reachable, sink);
    }

    /// Recalls the connection as soon as its answer is out, even if the client sends no request.
    pub fn recall(&mut self, flow: Flow, sink: &mut impl OwnerSink) {
        let Some(ticket) = self.flows.get(&flow).copied() else { return };
        let Some(known) = self.moves.get_mut(&ticket) else { return };
        if !std::mem::replace(&mut known.is_recalled, true) && known.stage == Stage::There {
            sink.send(known.agent, ticket, Message::Recall);
        }
    }

    /// The agent has the connection, and no other host may: the copy is never used again unchanged.
    pub(super) fn taken(
        &mut self,
        ticket: Ticket,
        sink: &mut impl OwnerSink,
    ) -> Result<(), Unexpected> {
        match self.moves.get(&ticket) {
            Some(Move { stage: Stage::Taking { .. }, .. }) => {}
            _ => return Err(Unexpected("TAKEN for a connection that was not to be taken")),
        }
        self.deadlines.clear(Due::Wait(ticket));
        self.enter(ticket, Stage::There);
        self.say_recall(ticket, sink);
        Ok(())
    }

    /// The agent does not have the connection and never will under this ticket, so the copy may be
    /// used.
    pub(super) fn refused(
        &mut self,
        ticket: Ticket,
        reason: Refusal,
        sink: &mut impl OwnerSink,
    ) -> Result<(), Unexpected> {
        let Some(known) = self.moves.get_mut(&ticket) else { return Ok(()) };
        if is_salvaged(&known.stage) {
            return Ok(());
        }
        let (Stage::Taking { copy } | Stage::InDoubt { copy }) = &mut known.stage else {
            return Err(Unexpected("REFUSED for a connection that was not to be taken"));
        };
        let copy = copy.clone();
        let then = if reason == Refusal::UnknownTicket {
            Then::Elsewhere
        } else {
            Then::Relay(Relayed::Refused(reason))
        };
        self.restore(ticket, copy, then, sink);
        Ok(())
    }

    /// The agent returns the current connection, which replaces the older copy.
    pub(super) fn returned(
        &mut self,
        ticket: Ticket,
        connection: &Frozen,
        (answer_sent, is_complete): (u64, bool),
        sink: &mut impl OwnerSink,
    ) -> Result<(), Unexpected> {
        let Some(known) = self.moves.get(&ticket) else { return Ok(()) };
        match known.stage {
            Stage::There | Stage::Lost | Stage::InDoubt { .. } => {}
            // A repeated message, already handled.
            Stage::Restoring { .. } => return Ok(()),
            // The connection was given up, and its client may have got more from here since. Bytes
            // that it sent meanwhile were seen.
            Stage::Salvaging { .. } => return Ok(()),
            _ => return Err(Unexpected("RETURN of a connection that was not taken")),
        }
        if known.flow != (Flow { local: connection.state.local, peer: connection.state.peer }) {
            return Err(Unexpected("RETURN of another connection than was taken"));
        }
        self.restore(ticket, connection.clone(), Then::Back { answer_sent, is_complete }, sink);
        Ok(())
    }

    /// True if the offer of this move is still valid at the other end of a control connection.
    pub(super) fn is_reachable(&self, known: &Move) -> bool {
        self.agents
            .get(&known.agent)
            .is_some_and(|agent| agent.is_up && agent.session == known.session)
    }

    pub(super) fn say_recall(&mut self, ticket: Ticket, sink: &mut impl OwnerSink) {
        if let Some(known) = self.moves.get(&ticket).filter(|known| known.is_recalled) {
            sink.send(known.agent, ticket, Message::Recall);
        }
    }

    /// Restores a connection. Only if no other end of it is alive, or can become so.
    pub(super) fn restore(
        &mut self,
        ticket: Ticket,
        frozen: Frozen,
        then: Then,
        sink: &mut impl OwnerSink,
    ) {
        let Some(flow) = self.moves.get(&ticket).map(|known| known.flow) else { return };
        self.deadlines.clear(Due::Wait(ticket));
        self.enter(ticket, Stage::Restoring { then });
        if !self.steps.has(Step::RestoreBeforeUnsteer) {
            sink.unsteer(flow);
        }
        sink.restore(flow, frozen);
    }

    /// Gives a connection up: no host has it, or none can be told to use it. The client's next
    /// packet is answered with a reset.
    pub(super) fn gone(&mut self, ticket: Ticket, why: Gone, sink: &mut impl OwnerSink) {
        let Some(known) = self.moves.get(&ticket) else { return };
        let (flow, state, frozen_at_ms) = (known.flow, known.state, known.frozen_at_ms);
        // Advance the state to the client's current place: it ignores a reset for another.
        let state = state.map(|state| {
            sink.seen(flow).map_or(state, |seen| place(&state, acknowledged(&state, &seen)))
        });
        self.forget(ticket, sink);
        if matches!(why, Gone::AgentLost | Gone::NotRestored | Gone::NotSalvaged(_)) {
            sink.reset(flow, state, frozen_at_ms);
        }
        sink.outcome(flow, ticket, Outcome::Gone(why));
    }

    /// Reports a connection that is here: it never left, or is back.
    fn tell_here(
        &mut self,
        flow: Flow,
        ticket: Ticket,
        agent: AgentId,
        then: Then,
        is_reachable: bool,
        sink: &mut impl OwnerSink,
    ) {
        let outcome = match then {
            Then::Relay(why) if is_reachable => {
                sink.send(agent, ticket, Message::Fetch);
                Outcome::Relay(why)
            }
            Then::Relay(_) | Then::Elsewhere => Outcome::Elsewhere,
            Then::Back { answer_sent, is_complete } => Outcome::Back { answer_sent, is_complete },
            Then::Salvaged { answer_sent } => Outcome::Salvaged { answer_sent },
        };
        sink.outcome(flow, ticket, outcome);
    }

    pub(super) fn enter(&mut self, ticket: Ticket, stage: Stage) {
        let is_settled = |stage: &Stage| matches!(stage, Stage::There | Stage::Lost);
        if let Some(known) = self.moves.get_mut(&ticket) {
            self.on_their_way -= usize::from(!is_settled(&known.stage));
            self.on_their_way += usize::from(!is_settled(&stage));
            known.stage = stage;
        }
    }

    /// Removing a move also removes its steering entry.
    fn forget(&mut self, ticket: Ticket, sink: &mut impl OwnerSink) {
        self.enter(ticket, Stage::There);
        if let Some(known) = self.moves.remove(&ticket) {
            self.flows.remove(&known.flow);
            sink.unsteer(known.flow);
            if known.is_claimed {
                sink.unclaim(known.flow);
            }
        }
        self.deadlines.clear(Due::Wait(ticket));
        self.deadlines.clear(Due::Renewal(ticket));
    }
}
