//! Owners: their arrival, loss and messages; and deadlines.

use super::{Agent, AgentSink, Close, Due, Move, OfferId, Session, SessionId, Stage};
use crate::message::{Ending, Message, Ticket};
use crate::session::{Instance, OwnerId};
use crate::types::{Flow, Unexpected};
use crate::weakened::Step;

impl Agent {
    /// Starts a session with this owner and reports the owner's connections. An owner has one
    /// session; messages of earlier ones no longer count.
    pub fn session_up(
        &mut self,
        now_ms: u64,
        id: SessionId,
        owner: OwnerId,
        instance: Instance,
        sink: &mut impl AgentSink,
    ) {
        if let Some(old) = self.session_of(owner) {
            sink.drop_session(old);
            self.session_lost(now_ms, old, sink);
        }
        self.sessions.insert(id, Session { owner, instance, is_told: false });
        if self.forgot.get(&owner).is_some_and(|forgot| *forgot != instance) {
            self.forgot.remove(&owner);
        }
        let flows: Vec<Flow> = self.of(owner);
        for flow in flows {
            let Some(known) = self.moves.get_mut(&flow) else { continue };
            match &known.stage {
                // Reported once it is settled.
                Stage::Restoring { .. } => {}
                Stage::Returning { told: Some(told), .. } if *told == instance => {
                    known.session = Some(id);
                    self.deadlines.clear(Due::Orphan(flow));
                    self.say_return(flow, sink);
                }
                // The earlier process may have got it, used it, and ended.
                Stage::Returning { told: Some(_), .. }
                    if self.steps.has(Step::SameOwnerInstance) =>
                {
                    self.forget(flow);
                }
                _ => self.tell_held(flow, sink),
            }
        }
        let ended: Vec<_> = self
            .ended
            .range((owner, Ticket(0))..=(owner, Ticket(u64::MAX)))
            .map(|(key, ended)| (*key, *ended))
            .collect();
        for (key, ended) in ended {
            if ended.from != instance {
                self.settle(key);
                continue;
            }
            let (reason, answer_sent, is_complete) =
                (ended.reason, ended.answer_sent, ended.is_complete);
            sink.send(id, key.1, Message::Closed { reason, answer_sent, is_complete });
        }
        self.tell_end(owner, sink);
    }

    /// Ends a session. Its undecided offers are dropped; the owner's connections stay.
    pub fn session_lost(&mut self, now_ms: u64, id: SessionId, sink: &mut impl AgentSink) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for flow in self.of(session.owner) {
            if let Some(known) = self.moves.get_mut(&flow).filter(|known| known.session.is_some()) {
                known.session = None;
                self.deadlines.set(Due::Orphan(flow), now_ms + self.limits.orphan_ms);
            }
        }
        // An offer whose connection is on its way stays.
        let taken: Vec<OfferId> = self.moves.values().map(|known| known.offer).collect();
        let open: Vec<OfferId> =
            self.offers.iter().filter(|offer| offer.session == id).copied().collect();
        for offer in open.into_iter().filter(|offer| !taken.contains(offer)) {
            self.cancel(offer, sink);
        }
        let kept: Vec<OfferId> =
            self.budgets.keys().filter(|offer| offer.session == id).copied().collect();
        for offer in kept.into_iter().filter(|offer| !taken.contains(offer)) {
            self.free(offer);
        }
    }

    /// Handles an owner's message about an offer or a connection.
    ///
    /// # Errors
    /// The message is not one of these, or does not fit an offer whose connection was given.
    pub fn heard(
        &mut self,
        now_ms: u64,
        session: SessionId,
        ticket: Ticket,
        message: &Message<'_>,
        sink: &mut impl AgentSink,
    ) -> Result<(), Unexpected> {
        let Some(owner) = self.sessions.get(&session).map(|session| session.owner) else {
            return Ok(());
        };
        let id = OfferId { session, ticket };
        let flow = self.flow_of(session, ticket);
        match message {
            // A connection for this answer is here or on its way, and the answer can go out only on
            // that: relayed or dropped, it would be missing there. An owner that wants it otherwise
            // waits for `REFUSED`, `RETURN` or `CLOSED`.
            Message::Fetch | Message::Cancel if flow.is_some() => {
                return Err(Unexpected(
                    "FETCH or CANCEL of an offer for which a connection was given",
                ));
            }
            Message::Fetch => self.fetch(id, sink),
            Message::Cancel => self.cancel(id, sink),
            Message::Take { connection, answer_sent } => {
                self.take(now_ms, id, connection, *answer_sent, sink)
            }
            Message::Recall => {
                if let Some((flow, known)) =
                    flow.and_then(|flow| Some((flow, self.moves.get_mut(&flow)?)))
                {
                    known.is_recalled = true;
                    self.give_back(flow, sink);
                }
            }
            Message::HeldAck => {
                if let Some(flow) = flow {
                    self.acknowledged(flow, session, sink);
                }
            }
            Message::Settled => {
                self.settle((owner, ticket));
                // `SETTLED` does not affect a connection that is still here.
                if let Some(flow) = flow.filter(|flow| self.is_returning(*flow)) {
                    self.forget(flow);
                    sink.settled(flow);
                }
            }
            Message::Release => {
                if let Some(flow) = flow {
                    self.release(flow, sink);
                }
            }
            _ => return Err(Unexpected("a message that is not about an offer or a connection")),
        }
        Ok(())
    }

    /// The owner has recorded the connection: it can be given back.
    fn acknowledged(&mut self, flow: Flow, id: SessionId, sink: &mut impl AgentSink) {
        let (Some(known), Some(session)) = (self.moves.get_mut(&flow), self.sessions.get(&id))
        else {
            return;
        };
        known.session = Some(id);
        known.from = session.instance;
        self.deadlines.clear(Due::Orphan(flow));
        self.say_return(flow, sink);
        self.give_back(flow, sink);
    }

    /// The owner gives the connection up: it has told the client, or has another connection of the
    /// same addresses.
    fn release(&mut self, flow: Flow, sink: &mut impl AgentSink) {
        let Some(known) = self.forget(flow) else { return };
        self.take_offer(known.offer);
        self.free(known.offer);
        sink.disown(flow);
        if !matches!(known.stage, Stage::Returning { .. }) {
            sink.close(flow, Close::Silent);
        }
        self.tell_end(known.owner, sink);
    }

    /// Reports a connection as held, if its owner has a session.
    pub(super) fn tell_held(&mut self, flow: Flow, sink: &mut impl AgentSink) {
        let Some(known) = self.moves.get(&flow) else { return };
        let Some(session) = self.session_of(known.owner) else { return };
        let held = Message::Held { local: flow.local, peer: flow.peer, from: known.from };
        sink.send(session, known.ticket, held);
    }

    /// Sends `HELD_END` once everything was reported: never while a connection is on its way in,
    /// because it may yet arrive.
    pub(super) fn tell_end(&mut self, owner: OwnerId, sink: &mut impl AgentSink) {
        let Some(id) = self.session_of(owner) else { return };
        // Each step of each connection calls this: return early in the usual case, so that the cost
        // does not grow with their number.
        if self.sessions.get(&id).is_none_or(|session| session.is_told) {
            return;
        }
        let is_on_its_way =
            |known: &Move| known.owner == owner && matches!(known.stage, Stage::Restoring { .. });
        if self.steps.has(Step::TellWhenSettled) && self.moves.values().any(is_on_its_way) {
            return;
        }
        let is_complete = !self.forgot.contains_key(&owner);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_told = true;
            sink.send(id, Ticket(0), Message::HeldEnd { is_complete });
        }
    }

    /// Handles all deadlines that have passed.
    pub fn tick(&mut self, now_ms: u64, sink: &mut impl AgentSink) {
        while let Some(due) = self.deadlines.pop(now_ms) {
            match due {
                Due::Offer(id) => {
                    self.cancel(id, sink);
                    self.say_failed(id, "the offer of this answer was not taken up in time", sink);
                }
                Due::Ended(owner, ticket) => drop(self.ended.remove(&(owner, ticket))),
                Due::Renewal(flow) => self.renew(now_ms, flow, sink),
                Due::Orphan(flow) => self.waited(now_ms, flow, sink),
                Due::Wait(flow) => match self.moves.get(&flow).map(|known| &known.stage) {
                    Some(Stage::Done { .. }) => {
                        if let Some(known) = self.moves.get_mut(&flow) {
                            known.is_recalled = true;
                        }
                        self.give_back(flow, sink);
                    }
                    Some(_) => self.waited(now_ms, flow, sink),
                    None => {}
                },
            }
        }
    }

    /// The client took nothing for too long, or the owner did not come back.
    fn waited(&mut self, now_ms: u64, flow: Flow, sink: &mut impl AgentSink) {
        match self.moves.get(&flow).map(|known| &known.stage) {
            // The loop is about to settle it either way.
            Some(Stage::Restoring { .. } | Stage::Freezing { .. }) => {
                self.deadlines.set(Due::Orphan(flow), now_ms + self.limits.orphan_ms);
            }
            // No host has it; its owner, if it lives, has given it up.
            Some(Stage::Returning { answer_sent, .. }) => {
                let answer_sent = *answer_sent;
                self.ended(now_ms, flow, Ending::TimedOut, answer_sent, sink);
            }
            Some(stage @ (Stage::Sending | Stage::Done { .. } | Stage::Ending { .. })) => {
                let answer_sent = match stage {
                    Stage::Done { answer_sent, .. } | Stage::Ending { answer_sent } => *answer_sent,
                    _ => 0,
                };
                sink.disown(flow);
                sink.close(flow, Close::Reset);
                self.ended(now_ms, flow, Ending::TimedOut, answer_sent, sink);
            }
            None => {}
        }
    }

    fn renew(&mut self, now_ms: u64, flow: Flow, sink: &mut impl AgentSink) {
        match self.moves.get(&flow).map(|known| &known.stage) {
            Some(Stage::Sending | Stage::Done { .. }) => sink.own(flow, self.limits.lease_ms),
            Some(Stage::Ending { .. }) => sink.let_end(flow, self.limits.lease_ms),
            Some(_) => sink.expect(flow, self.limits.lease_ms),
            None => return,
        }
        self.deadlines.set(Due::Renewal(flow), now_ms + self.limits.lease_ms / 3);
    }

    fn settle(&mut self, key: (OwnerId, Ticket)) {
        self.ended.remove(&key);
        self.deadlines.clear(Due::Ended(key.0, key.1));
    }

    fn is_returning(&self, flow: Flow) -> bool {
        self.moves.get(&flow).is_some_and(|known| matches!(known.stage, Stage::Returning { .. }))
    }

    fn of(&self, owner: OwnerId) -> Vec<Flow> {
        self.moves.iter().filter(|(_, known)| known.owner == owner).map(|(flow, _)| *flow).collect()
    }
}
