//! Steps of one connection, each with its invariants.

use super::{Agent, AgentSink, Close, Due, Ended, Move, OfferId, SessionId, Stage};
use crate::message::{Ending, Message, Refusal, Ticket};
use crate::types::Flow;
use crate::weakened::Step;
use shunt_reactor::moving::{Frozen, NotFrozen};

/// Callers check deadlines ten times a second.
const AGAIN_MS_MIN: u64 = 100;

impl Agent {
    /// Takes a connection from the owner. If it is refused here, nothing has been done with it.
    pub(super) fn take(
        &mut self,
        now_ms: u64,
        id: OfferId,
        connection: &Frozen,
        answer_sent: u64,
        sink: &mut impl AgentSink,
    ) {
        let flow = Flow { local: connection.state.local, peer: connection.state.peer };
        let refusal = match self.sessions.get(&id.session) {
            _ if !self.offers.contains(&id) => Some(Refusal::UnknownTicket),
            _ if !self.allowed.contains(&flow.local) => Some(Refusal::ForeignAddress),
            _ if self.moves.contains_key(&flow) => Some(Refusal::Occupied),
            _ if self.moves.len() >= self.limits.flows => Some(Refusal::Full),
            Some(session) if self.tickets.contains_key(&(session.owner, id.ticket)) => {
                Some(Refusal::UnknownTicket)
            }
            Some(_) => None,
            None => Some(Refusal::UnknownTicket),
        };
        let (Some(session), None) = (self.sessions.get(&id.session), refusal) else {
            let reason = refusal.unwrap_or(Refusal::UnknownTicket);
            return sink.send(id.session, id.ticket, Message::Refused { reason });
        };
        let taken = Move {
            owner: session.owner,
            ticket: id.ticket,
            from: session.instance,
            session: Some(id.session),
            offer: id,
            is_waited_for: false,
            is_recalled: false,
            freezes: 0,
            queued: None,
            stage: Stage::Restoring { answer_sent },
        };
        self.tickets.insert((taken.owner, id.ticket), flow);
        self.moves.insert(flow, taken);
        // The offer now depends on the connection, not on its own deadline.
        self.deadlines.clear(Due::Offer(id));
        self.deadlines.set(Due::Renewal(flow), now_ms + self.limits.lease_ms / 3);
        // Restoring must never come first: a packet that finds half a connection is answered with a
        // reset.
        sink.expect(flow, self.limits.lease_ms);
        sink.restore(flow, connection.clone());
    }

    /// The connection has been restored, or could not be.
    pub fn restored(&mut self, now_ms: u64, flow: Flow, is_in: bool, sink: &mut impl AgentSink) {
        let Some(known) = self.moves.get_mut(&flow) else { return };
        let Stage::Restoring { answer_sent } = known.stage else { return };
        let (id, session, owner, ticket) = (known.offer, known.session, known.owner, known.ticket);
        if !is_in {
            self.forget(flow);
            sink.disown(flow);
            // An owner that has lost this agent since learns that the connection was never taken.
            match session {
                Some(session) => {
                    self.deadlines.set(Due::Offer(id), now_ms + self.limits.offer_ms);
                    sink.send(session, ticket, Message::Refused { reason: Refusal::NotRestored });
                }
                None => {
                    self.cancel(id, sink);
                    if let Some(session) = self.session_of(owner) {
                        sink.send(
                            session,
                            ticket,
                            Message::Refused { reason: Refusal::NotRestored },
                        );
                    }
                }
            }
            return self.tell_end(owner, sink);
        }
        known.stage = Stage::Sending;
        self.take_offer(id);
        sink.own(flow, self.limits.lease_ms);
        // `TAKEN` must never go out earlier: from then on the owner has no copy.
        match session {
            Some(session) => sink.send(session, ticket, Message::Taken),
            None => self.tell_held(flow, sink),
        }
        sink.start(flow, id.session, id.ticket, answer_sent);
        self.deadlines.set(Due::Wait(flow), now_ms + self.limits.stall_ms);
        self.tell_end(owner, sink);
    }

    /// The client has taken some of the answer.
    pub fn progress(&mut self, now_ms: u64, flow: Flow) {
        if self.moves.get(&flow).is_some_and(|known| known.stage == Stage::Sending) {
            self.deadlines.set(Due::Wait(flow), now_ms + self.limits.stall_ms);
        }
    }

    /// The whole answer is out and acknowledged, as far as the loop can tell.
    pub fn delivered(
        &mut self,
        now_ms: u64,
        flow: Flow,
        answer_sent: u64,
        sink: &mut impl AgentSink,
    ) {
        self.finish(now_ms, flow, answer_sent, true, sink);
    }

    /// The source of the answer has failed, and the bytes sent are acknowledged, as far as the loop
    /// can tell. The connection goes back at that point: its owner gets the rest elsewhere or
    /// resets the client, which never takes the part for the whole.
    pub fn answer_failed(
        &mut self,
        now_ms: u64,
        flow: Flow,
        answer_sent: u64,
        sink: &mut impl AgentSink,
    ) {
        let Some(known) = self.moves.get_mut(&flow).filter(|known| known.stage == Stage::Sending)
        else {
            return;
        };
        known.is_recalled = true;
        self.finish(now_ms, flow, answer_sent, false, sink);
    }

    /// The client has sent bytes, which stay unread, or has ended its direction.
    pub fn client_waits(&mut self, flow: Flow, sink: &mut impl AgentSink) {
        let Some(known) = self.moves.get_mut(&flow) else { return };
        known.is_waited_for = true;
        self.give_back(flow, sink);
    }

    /// The connection has ended in the loop.
    pub fn client_gone(
        &mut self,
        now_ms: u64,
        flow: Flow,
        reason: Ending,
        answer_sent: u64,
        sink: &mut impl AgentSink,
    ) {
        let is_here =
            |stage: &Stage| !matches!(stage, Stage::Restoring { .. } | Stage::Returning { .. });
        if self.moves.get(&flow).is_some_and(|known| is_here(&known.stage)) {
            match reason {
                // The client's FIN came through the owner's host and this one: the connection does
                // not go on elsewhere.
                Ending::Client => sink.let_end(flow, crate::limits::END_MS),
                _ => sink.disown(flow),
            }
            self.ended(now_ms, flow, reason, answer_sent, sink);
        }
    }

    /// The connection was frozen, or could not be and goes on in the loop.
    pub fn frozen(
        &mut self,
        now_ms: u64,
        flow: Flow,
        result: Result<Frozen, NotFrozen>,
        sink: &mut impl AgentSink,
    ) {
        let Some(known) = self.moves.get_mut(&flow) else { return };
        let Stage::Freezing { answer_sent, is_complete } = known.stage else { return };
        match result {
            Ok(copy) => {
                known.stage = Stage::Returning { copy, answer_sent, is_complete, told: None };
                self.deadlines.set(Due::Wait(flow), now_ms + self.limits.orphan_ms);
                if !self.steps.has(Step::GuardBeforeFreeze) {
                    sink.expect(flow, self.limits.lease_ms);
                }
                self.say_return(flow, sink);
                // Packets go back to the owner's host: its steering entry lasts until it has the
                // connection.
                sink.disown(flow);
                self.deadlines.clear(Due::Renewal(flow));
            }
            Err(why) => {
                known.stage = Stage::Done { answer_sent, is_complete };
                known.freezes += 1;
                let again_ms = self.limits.idle_ms.div_ceil(16).max(AGAIN_MS_MIN);
                let freezes_max = match why {
                    // The kernel still sends queued bytes: a client that takes them has as much
                    // time as one that is being sent an answer.
                    NotFrozen::TooLong(bytes) => {
                        if known.queued.replace(bytes).is_none_or(|before| bytes < before) {
                            known.freezes = 0;
                        }
                        u32::try_from(self.limits.stall_ms / again_ms).unwrap_or(u32::MAX)
                    }
                    NotFrozen::Moved => u32::from(self.limits.freezes),
                    _ => 0,
                };
                let is_over = known.freezes >= freezes_max;
                sink.own(flow, self.limits.lease_ms);
                if why == NotFrozen::NotEstablished && is_complete {
                    // The client has ended its direction and has its whole answer.
                    known.stage = Stage::Ending { answer_sent };
                    self.deadlines.set(Due::Wait(flow), now_ms + self.limits.stall_ms);
                    sink.let_end(flow, self.limits.lease_ms);
                    return sink.end(flow);
                }
                if is_over {
                    sink.disown(flow);
                    sink.close(flow, Close::Reset);
                    return self.ended(now_ms, flow, Ending::NotFrozen, answer_sent, sink);
                }
                // Bytes in flight will come to rest a little later.
                self.deadlines.set(Due::Wait(flow), now_ms + again_ms);
            }
        }
    }

    /// The client has acknowledged this side's end of the connection.
    pub fn end_acknowledged(&mut self, now_ms: u64, flow: Flow, sink: &mut impl AgentSink) {
        if let Some(Stage::Ending { answer_sent }) = self.moves.get(&flow).map(|known| &known.stage)
        {
            let answer_sent = *answer_sent;
            sink.disown(flow);
            sink.close(flow, Close::InOrder);
            self.ended(now_ms, flow, Ending::Client, answer_sent, sink);
        }
    }

    fn finish(
        &mut self,
        now_ms: u64,
        flow: Flow,
        answer_sent: u64,
        is_complete: bool,
        sink: &mut impl AgentSink,
    ) {
        let Some(known) = self.moves.get_mut(&flow).filter(|known| known.stage == Stage::Sending)
        else {
            return;
        };
        known.stage = Stage::Done { answer_sent, is_complete };
        let id = known.offer;
        self.free(id);
        self.deadlines.set(Due::Wait(flow), now_ms + self.limits.idle_ms);
        self.give_back(flow, sink);
    }

    /// Starts giving a connection back, if it is wanted and its owner can take it.
    pub(super) fn give_back(&mut self, flow: Flow, sink: &mut impl AgentSink) {
        let Some(known) = self.moves.get_mut(&flow) else { return };
        let Stage::Done { answer_sent, is_complete } = known.stage else { return };
        if known.session.is_none() || !(known.is_waited_for || known.is_recalled) {
            return;
        }
        known.stage = Stage::Freezing { answer_sent, is_complete };
        self.deadlines.clear(Due::Wait(flow));
        // Freezing must never come first: bytes that arrive in between would be acknowledged and
        // lost, or answered with a reset.
        if self.steps.has(Step::GuardBeforeFreeze) {
            sink.expect(flow, self.limits.lease_ms);
        }
        sink.freeze(flow);
    }

    /// Announces a connection's return. Never to two processes of an owner: the first may have used
    /// it.
    pub(super) fn say_return(&mut self, flow: Flow, sink: &mut impl AgentSink) {
        let Some(known) = self.moves.get_mut(&flow) else { return };
        let Some(session) = known.session else { return };
        let Some(instance) = self.sessions.get(&session).map(|session| session.instance) else {
            return;
        };
        let Stage::Returning { copy, answer_sent, is_complete, told } = &mut known.stage else {
            return;
        };
        if told.is_some_and(|told| told != instance) && self.steps.has(Step::SameOwnerInstance) {
            return;
        }
        *told = Some(instance);
        let (connection, answer_sent, is_complete) = (copy.clone(), *answer_sent, *is_complete);
        sink.send(session, known.ticket, Message::Return { connection, answer_sent, is_complete });
    }

    /// Notes that a connection has ended here and does not come back. Reports it to the owner until
    /// the owner confirms.
    pub(super) fn ended(
        &mut self,
        now_ms: u64,
        flow: Flow,
        reason: Ending,
        answer_sent: u64,
        sink: &mut impl AgentSink,
    ) {
        let Some(known) = self.forget(flow) else { return };
        self.free(known.offer);
        let is_complete = matches!(
            known.stage,
            Stage::Done { is_complete: true, .. }
                | Stage::Freezing { is_complete: true, .. }
                | Stage::Ending { .. }
        );
        let ended = Ended { from: known.from, reason, answer_sent, is_complete };
        let key = (known.owner, known.ticket);
        if self.ended.len() >= self.limits.ended {
            self.forgot.insert(known.owner, known.from);
        } else if self.steps.has(Step::KeepEndings) {
            self.ended.insert(key, ended);
            self.deadlines.set(Due::Ended(key.0, key.1), now_ms + self.limits.orphan_ms);
        }
        if let Some(session) = self.session_of(known.owner) {
            sink.send(session, known.ticket, Message::Closed { reason, answer_sent, is_complete });
        }
        self.tell_end(known.owner, sink);
    }

    /// The current session of an owner.
    pub(super) fn session_of(&self, owner: crate::session::OwnerId) -> Option<SessionId> {
        self.sessions.iter().find(|(_, session)| session.owner == owner).map(|(id, _)| *id)
    }

    pub(super) fn forget(&mut self, flow: Flow) -> Option<Move> {
        let known = self.moves.remove(&flow)?;
        self.tickets.remove(&(known.owner, known.ticket));
        for due in [Due::Wait(flow), Due::Orphan(flow), Due::Renewal(flow)] {
            self.deadlines.clear(due);
        }
        Some(known)
    }

    pub(super) fn flow_of(&self, session: SessionId, ticket: Ticket) -> Option<Flow> {
        let owner = self.sessions.get(&session)?.owner;
        self.tickets.get(&(owner, ticket)).copied()
    }
}
