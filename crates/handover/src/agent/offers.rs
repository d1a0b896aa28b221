//! Offered answers, and the bytes kept of them meanwhile.

use super::{Agent, AgentSink, Due, OfferId, SessionId};
use crate::message::{Message, Ticket};

impl Agent {
    /// Asks whether a large answer may be offered. If so, the caller sends `OFFER` and may take in
    /// this many bytes of the body before it pauses the source. `None`: there is no room, and the
    /// answer is relayed.
    pub fn offer(&mut self, now_ms: u64, session: SessionId, ticket: Ticket) -> Option<u64> {
        let id = OfferId { session, ticket };
        let is_known = self.offers.contains(&id) || self.budgets.contains_key(&id);
        if !self.sessions.contains_key(&session)
            || is_known
            || self.offers.len() >= self.limits.offers
        {
            return None;
        }
        let bytes = self.limits.budget_bytes_each;
        if self.budget_bytes + bytes > self.limits.budget_bytes
            || self.moves.len() >= self.limits.flows
        {
            return None;
        }
        self.budget_bytes += bytes;
        self.budgets.insert(id, bytes);
        self.offers.insert(id);
        self.deadlines.set(Due::Offer(id), now_ms + self.limits.offer_ms);
        Some(bytes)
    }

    /// Frees the budget of an answer whose kept bytes have been sent or dropped.
    pub fn budget_free(&mut self, session: SessionId, ticket: Ticket) {
        let id = OfferId { session, ticket };
        if !self.offers.contains(&id) {
            self.free(id);
        }
    }

    /// The source of an offered answer has failed, or the exchange has ended otherwise.
    pub fn offer_over(&mut self, session: SessionId, ticket: Ticket) {
        self.take_offer(OfferId { session, ticket });
        self.free(OfferId { session, ticket });
    }

    pub(super) fn fetch(&mut self, id: OfferId, sink: &mut impl AgentSink) {
        if self.take_offer(id) {
            sink.relay(id.session, id.ticket);
        } else {
            // An expired offer was reported as failed, but the owner may have been about to move
            // the connection.
            self.say_failed(id, "the answer that was offered is not kept any more", sink);
        }
    }

    pub(super) fn say_failed(
        &mut self,
        id: OfferId,
        reason: &'static str,
        sink: &mut impl AgentSink,
    ) {
        sink.send(id.session, id.ticket, Message::Failed { status: 504, reason });
    }

    pub(super) fn cancel(&mut self, id: OfferId, sink: &mut impl AgentSink) {
        self.take_offer(id);
        self.free(id);
        sink.drop_answer(id.session, id.ticket);
    }

    /// Removes an offer; true if it was still valid.
    pub(super) fn take_offer(&mut self, id: OfferId) -> bool {
        self.deadlines.clear(Due::Offer(id));
        self.offers.remove(&id)
    }

    pub(super) fn free(&mut self, id: OfferId) {
        self.budget_bytes -= self.budgets.remove(&id).unwrap_or(0);
    }
}
