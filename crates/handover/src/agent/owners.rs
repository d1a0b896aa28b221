//! Owners that come, go and say what they want; and what is due.

use super::{Agent, AgentSink, Close, Due, Move, OfferId, Session, SessionId, Stage};
use crate::message::{Ending, Message, Ticket};
use crate::session::{Instance, OwnerId};
use crate::types::{Flow, Unexpected};
use crate::weakened::Step;

impl Agent {
    /// A session with this owner begins: it is told what there is of its connections. An owner has
    /// one session; from here on nothing counts that came by an earlier one.
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
                // Said when it is settled.
                Stage::Restoring { .. } => {}
                Stage::Returning { told: Some(told), .. } if *told == instance => {
                    known.session = Some(id);
                    self.deadlines.clear(Due::Orphan(flow));
                    self.say_return(flow, sink);
                }
                // The process that was told may have had it, used it, and ended.
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

    /// The session has ended. Answers that its owner has not asked for are of no use any more; its
    /// connections stay.
    pub fn session_lost(&mut self, now_ms: u64, id: SessionId, sink: &mut impl AgentSink) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for flow in self.of(session.owner) {
            if let Some(known) = self.moves.get_mut(&flow).filter(|known| known.session.is_some()) {
                known.session = None;
                self.deadlines.set(Due::Orphan(flow), now_ms + self.limits.orphan_ms);
            }
        }
        // An offer that is being taken goes on.
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

    /// An owner says something about an offer or a connection.
    ///
    /// # Errors
    /// It is nothing that owners say about them, or not of an offer whose connection they have
    /// given.
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
            // A connection is here, or on its way, for this answer, which goes out on that or on
            // none: relayed or thrown away, it would be missing there. An owner that wants it
            // otherwise waits for `REFUSED`, `RETURN` or `CLOSED`.
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
                // A connection that is here is not settled by this.
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

    /// The owner has the connection in its books: it can be given back.
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

    /// The owner wants nothing of it, and has told the client, or has another connection of its
    /// addresses.
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

    /// Says that a connection is here, if its owner is.
    pub(super) fn tell_held(&mut self, flow: Flow, sink: &mut impl AgentSink) {
        let Some(known) = self.moves.get(&flow) else { return };
        let Some(session) = self.session_of(known.owner) else { return };
        let held = Message::Held { local: flow.local, peer: flow.peer, from: known.from };
        sink.send(session, known.ticket, held);
    }

    /// Says that all was said, once it was: never while a connection is on its way in, which may
    /// yet be here.
    pub(super) fn tell_end(&mut self, owner: OwnerId, sink: &mut impl AgentSink) {
        let Some(id) = self.session_of(owner) else { return };
        // Asked at each step of each connection: nearly always it was said, and then nothing grows
        // with their number.
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

    /// What is due by now.
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

    /// A client that takes nothing, or an owner that does not come.
    fn waited(&mut self, now_ms: u64, flow: Flow, sink: &mut impl AgentSink) {
        match self.moves.get(&flow).map(|known| &known.stage) {
            // Settled one way or the other by the loop, at once.
            Some(Stage::Restoring { .. } | Stage::Freezing { .. }) => {
                self.deadlines.set(Due::Orphan(flow), now_ms + self.limits.orphan_ms);
            }
            // Nobody has it; its owner, if there is one, has given it up.
            Some(Stage::Returning { answer_sent, .. }) => {
                let answer_sent = *answer_sent;
                self.ended(now_ms, flow, Ending::TimedOut, answer_sent, sink);
            }
            Some(Stage::Sending | Stage::Done { .. }) => {
                let answer_sent = match self.moves.get(&flow).map(|known| &known.stage) {
                    Some(Stage::Done { answer_sent, .. }) => *answer_sent,
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
