//! The side beside a backend: answers that it has offered, and connections that it was given to
//! send them on.
//!
//! | from | on | first | then | to |
//! |---|---|---|---|---|
//! | offered | `FETCH` | | relay | |
//! | offered | `TAKE` that may not be | `REFUSED` | | offered |
//! | offered | `TAKE` | expect | restore | restoring |
//! | any of the next | `FETCH`, `CANCEL` | | the session ends: no owner says that | |
//! | restoring | not restored | disown | `REFUSED` | offered |
//! | restoring | restored | own, `TAKEN` | start the answer | sending |
//! | sending | the answer is out and acknowledged | | | done |
//! | done | the client's next bytes, `RECALL`, or idle for too long | expect | freeze | freezing |
//! | freezing | not frozen | own | again, or close | done, gone |
//! | freezing | frozen | `RETURN` | disown | returning |
//! | returning | `SETTLED` | | forget the copy | gone |
//! | sending, done | the client is gone, or its time is over | disown | `CLOSED` | gone |
//!
//! An agent that loses its owner goes on: the answer is completed, and the connection is kept for a
//! while, for whoever shows by the handshake that it is this owner. To such a one it says what it
//! has (`HELD`), what it was giving back (`RETURN`) and what has ended (`CLOSED`), and then that
//! this is all (`HELD_END`).
//!
//! `offers.rs` has the offers, `steps.rs` the steps of one connection, `owners.rs` what concerns
//! all those of an owner.

mod offers;
mod owners;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::deadlines::Deadlines;
use crate::limits;
use crate::message::{Ending, Message, Ticket};
use crate::session::{Instance, OwnerId};
use crate::types::Flow;
use crate::weakened::Steps;
use shunt_reactor::moving::Frozen;

/// The caller's name for a control connection, which it never uses again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Bounds of one agent.
#[derive(Clone, Copy, Debug, Hash)]
pub struct AgentLimits {
    /// Connections that were taken.
    pub flows: usize,
    /// Answers that nobody has asked for yet.
    pub offers: usize,
    /// Bytes of bodies kept for offers, in all.
    pub budget_bytes: u64,
    /// The same for one offer.
    pub budget_bytes_each: u64,
    /// Endings that their owner has not heard of.
    pub ended: usize,
    /// Tries to freeze a connection.
    pub freezes: u8,
    /// Of this host's entry for a connection, milliseconds.
    pub lease_ms: u64,
    /// Of an offer.
    pub offer_ms: u64,
    /// Of connections, returns and endings whose owner is lost.
    pub orphan_ms: u64,
    /// Of a connection whose client takes nothing.
    pub stall_ms: u64,
    /// Of a connection whose client says nothing.
    pub idle_ms: u64,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            flows: limits::FLOWS_MAX,
            offers: limits::OFFERS_MAX,
            budget_bytes: limits::BUDGET_BYTES,
            budget_bytes_each: limits::BUDGET_BYTES_EACH,
            ended: limits::ENDED_MAX,
            freezes: limits::FREEZES_MAX,
            lease_ms: limits::LEASE_MS,
            offer_ms: limits::OFFER_MS,
            orphan_ms: limits::ORPHAN_MS,
            stall_ms: limits::STALL_MS,
            idle_ms: limits::IDLE_MS,
        }
    }
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// The client is to know that its answer is cut, by a reset of whoever its packets go to. None
    /// leaves this host: its owner may have given the connection to another by then.
    Reset,
    /// In order: the client has all of its answer, and has ended its direction.
    InOrder,
    /// Without a word: the connection is somebody else's, or nobody's, and its client is told by
    /// others.
    Silent,
}

/// Where actions go. Called from within methods of [`Agent`], in the order in which they are to be
/// carried out.
pub trait AgentSink {
    /// No packet of the client reaches a connection of this host, and none is answered, for as
    /// long.
    fn expect(&mut self, flow: Flow, lease_ms: u64);
    /// The client's packets reach the connection that is here, for as long. Called again to renew.
    fn own(&mut self, flow: Flow, lease_ms: u64);
    /// The client has ended the connection that is here, and is answered that.
    fn let_end(&mut self, flow: Flow);
    /// The connection is not here: no packet reaches this host, and none of it leaves.
    fn disown(&mut self, flow: Flow);
    /// Puts the connection in; [`Agent::restored`] is to be called. Nothing of the answer may be
    /// sent before [`AgentSink::start`].
    fn restore(&mut self, flow: Flow, frozen: Frozen);
    /// Takes it out; [`Agent::frozen`] is to be called, unless it ends first
    /// ([`Agent::client_gone`]).
    fn freeze(&mut self, flow: Flow);
    /// Sends the answer that was offered on this connection, from this byte on.
    fn start(&mut self, flow: Flow, session: SessionId, ticket: Ticket, answer_sent: u64);
    /// Relays it, within the credit of the exchange.
    fn relay(&mut self, session: SessionId, ticket: Ticket);
    /// Nobody wants the answer any more, nor what comes of it.
    fn drop_answer(&mut self, session: SessionId, ticket: Ticket);
    /// Ends a connection that is here, on its way in, or on its way out, and what is left of its
    /// answer. Nothing more is heard of it.
    fn close(&mut self, flow: Flow, how: Close);
    /// Says this to an owner.
    fn send(&mut self, session: SessionId, ticket: Ticket, message: Message<'static>);
    /// The owner has heard that this connection comes back, and has it.
    fn settled(&mut self, flow: Flow);
    /// Ends this control connection: its owner has another. [`Agent::session_lost`] need not be
    /// called.
    fn drop_session(&mut self, session: SessionId);
}

/// An answer that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct OfferId {
    session: SessionId,
    ticket: Ticket,
}

/// Where a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// On its way in; its owner may have lost us since.
    Restoring { answer_sent: u64 },
    /// Here; its answer goes out.
    Sending,
    /// Here; the answer is out.
    Done { answer_sent: u64, is_complete: bool },
    /// In the loop still; its packets do not reach it.
    Freezing { answer_sent: u64, is_complete: bool },
    /// Nowhere. Once it was said to one process of the owner, no other may have it.
    Returning { copy: Frozen, answer_sent: u64, is_complete: bool, told: Option<Instance> },
}

#[derive(Clone, Debug, Hash)]
struct Move {
    owner: OwnerId,
    ticket: Ticket,
    /// The owner's process that it came from, or that has acknowledged it since.
    from: Instance,
    /// The session by which its owner can be told, if there is one and the owner has said that it
    /// knows.
    session: Option<SessionId>,
    /// Of the offer, until it was taken.
    offer: OfferId,
    /// The client has sent something.
    is_waited_for: bool,
    is_recalled: bool,
    /// Tries to freeze it that came to nothing, since its client was seen to take something.
    freezes: u32,
    /// Bytes that were queued when it was tried last.
    queued: Option<usize>,
    stage: Stage,
}

/// A connection that is here no more, of which its owner may not have heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ended {
    from: Instance,
    reason: Ending,
    answer_sent: u64,
    is_complete: bool,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Session {
    owner: OwnerId,
    instance: Instance,
    /// `HELD_END` was said.
    is_told: bool,
}

/// What can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Due {
    Offer(OfferId),
    /// The end of a stage.
    Wait(Flow),
    /// The end of the wait for an owner.
    Orphan(Flow),
    Renewal(Flow),
    Ended(OwnerId, Ticket),
}

/// The agent's side of all hand-overs of one loop.
#[derive(Clone, Debug, Hash)]
pub struct Agent {
    limits: AgentLimits,
    /// The addresses that may be taken.
    allowed: BTreeSet<SocketAddr>,
    sessions: BTreeMap<SessionId, Session>,
    offers: BTreeSet<OfferId>,
    /// Bytes of bodies that are kept, by exchange, and in all.
    budgets: BTreeMap<OfferId, u64>,
    budget_bytes: u64,
    moves: BTreeMap<Flow, Move>,
    tickets: BTreeMap<(OwnerId, Ticket), Flow>,
    ended: BTreeMap<(OwnerId, Ticket), Ended>,
    /// Owners of which an ending was forgotten for want of room, and their process.
    forgot: BTreeMap<OwnerId, Instance>,
    deadlines: Deadlines<Due>,
    steps: Steps,
}

impl Agent {
    /// Without connections. Those to `allowed` addresses may be taken, no others.
    #[must_use]
    pub fn new(limits: AgentLimits, allowed: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            limits,
            allowed: allowed.into_iter().collect(),
            sessions: BTreeMap::new(),
            offers: BTreeSet::new(),
            budgets: BTreeMap::new(),
            budget_bytes: 0,
            moves: BTreeMap::new(),
            tickets: BTreeMap::new(),
            ended: BTreeMap::new(),
            forgot: BTreeMap::new(),
            deadlines: Deadlines::default(),
            steps: Steps::default(),
        }
    }

    /// Leaves a step out from now on.
    #[cfg(any(test, feature = "weakened"))]
    pub fn leave_out(&mut self, step: Option<crate::weakened::Step>) {
        self.steps = Steps::without(step);
    }

    /// When [`Agent::tick`] is to be called next.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Connections that are here, on their way in, or on their way out.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.moves.len()
    }

    /// Answers that were offered, and of which nobody has said how they go.
    #[must_use]
    pub fn offers(&self) -> usize {
        self.offers.len()
    }

    /// True if this connection is here, on its way in, or on its way out.
    #[must_use]
    pub fn has(&self, flow: Flow) -> bool {
        self.moves.contains_key(&flow)
    }

    /// True if the owner of this session has given a connection by this ticket.
    #[must_use]
    pub fn has_taken(&self, session: SessionId, ticket: Ticket) -> bool {
        self.flow_of(session, ticket).is_some()
    }

    /// True if nothing is kept of any connection or offer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_moves =
            !self.moves.is_empty() || !self.tickets.is_empty() || !self.ended.is_empty();
        let has_offers =
            !self.offers.is_empty() || !self.budgets.is_empty() || self.budget_bytes > 0;
        !has_moves && !has_offers && self.deadlines.is_empty()
    }
}
