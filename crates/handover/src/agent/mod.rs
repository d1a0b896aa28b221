//! The side beside a backend: answers that it has offered, and connections given to it to send them
//! on.
//!
//! | from | on | first | then | to |
//! |---|---|---|---|---|
//! | offered | `FETCH` | | relay | |
//! | offered | `TAKE`, not allowed | `REFUSED` | | offered |
//! | offered | `TAKE` | expect | restore | restoring |
//! | any of the next | `FETCH`, `CANCEL` | | the session ends: no correct owner sends that | |
//! | restoring | not restored | disown | `REFUSED` | offered |
//! | restoring | restored | own, `TAKEN` | start the answer | sending |
//! | sending | the answer is out and acknowledged | | | done |
//! | done | the client's next bytes, `RECALL`, or idle for too long | expect | freeze | freezing |
//! | freezing | not frozen | own | again, or close | done, gone |
//! | freezing | frozen | `RETURN` | disown | returning |
//! | returning | `SETTLED` | | forget the copy | gone |
//! | sending, done | the client is gone, or its time is over | disown | `CLOSED` | gone |
//!
//! An agent that loses its owner goes on: it completes the answer and keeps the connection for a
//! while, for a process that proves in the handshake that it is this owner. The agent tells it
//! which connections it holds (`HELD`), was giving back (`RETURN`) or has ended (`CLOSED`), and
//! then that the report is complete (`HELD_END`).
//!
//! `offers.rs` handles the offers, `steps.rs` the steps of one connection, `owners.rs` all
//! connections of an owner.

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

/// The caller's id for a control connection, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Bounds of one agent.
#[derive(Clone, Copy, Debug, Hash)]
pub struct AgentLimits {
    /// Connections that this agent has taken.
    pub flows: usize,
    /// Offered answers that no owner has requested yet.
    pub offers: usize,
    /// Bytes of bodies kept for all offers.
    pub budget_bytes: u64,
    /// Bytes of bodies kept for one offer.
    pub budget_bytes_each: u64,
    /// Endings not yet confirmed by their owners.
    pub ended: usize,
    /// Tries to freeze a connection.
    pub freezes: u8,
    /// Lease of this host's entry for a connection, milliseconds.
    pub lease_ms: u64,
    /// Validity of an offer, milliseconds.
    pub offer_ms: u64,
    /// Time for which connections, returns and endings of a lost owner are kept, milliseconds.
    pub orphan_ms: u64,
    /// Longest time for which a client may take nothing, milliseconds.
    pub stall_ms: u64,
    /// Longest time for which a client may be silent, milliseconds.
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

/// Way to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// By a reset, so that the client knows its answer is cut. The reset must come from the host
    /// that gets the client's packets, never from this one: the owner may have given the connection
    /// to another host.
    Reset,
    /// Without a packet: the client has its whole answer, and both ends have acknowledged the
    /// other's FIN.
    InOrder,
    /// Without a packet: another host has the connection, or none, and the client learns of it
    /// elsewhere.
    Silent,
}

/// Receiver of actions. Methods of [`Agent`] call it in the order in which the actions must be
/// carried out.
pub trait AgentSink {
    /// Drops the client's packets for this time: none reaches a connection here, and none is
    /// answered.
    fn expect(&mut self, flow: Flow, lease_ms: u64);
    /// Lets the client's packets reach the connection here for this time. Repeat the call to renew.
    fn own(&mut self, flow: Flow, lease_ms: u64);
    /// Does the same as [`AgentSink::own`], and lets the reply to the client's FIN out.
    fn let_end(&mut self, flow: Flow, lease_ms: u64);
    /// Removes the entry: the connection is not here, no packet reaches this host, and none leaves.
    fn disown(&mut self, flow: Flow);
    /// Restores the connection and then calls [`Agent::restored`]. No byte of the answer may go out
    /// before [`AgentSink::start`].
    fn restore(&mut self, flow: Flow, frozen: Frozen);
    /// Freezes the connection and then calls [`Agent::frozen`], unless it ends first
    /// ([`Agent::client_gone`]).
    fn freeze(&mut self, flow: Flow);
    /// Ends this side's direction and then calls [`Agent::end_acknowledged`], unless the connection
    /// ends first ([`Agent::client_gone`]).
    fn end(&mut self, flow: Flow);
    /// Sends the offered answer on this connection, from this byte on.
    fn start(&mut self, flow: Flow, session: SessionId, ticket: Ticket, answer_sent: u64);
    /// Relays the answer, within the credit of the exchange.
    fn relay(&mut self, session: SessionId, ticket: Ticket);
    /// Drops an unwanted answer.
    fn drop_answer(&mut self, session: SessionId, ticket: Ticket);
    /// Ends a connection that is here, on its way in, or on its way out, together with the rest of
    /// its answer. No further events of it follow.
    fn close(&mut self, flow: Flow, how: Close);
    /// Sends a message to an owner.
    fn send(&mut self, session: SessionId, ticket: Ticket, message: Message<'static>);
    /// The owner has confirmed that this connection is back.
    fn settled(&mut self, flow: Flow);
    /// Ends this control connection, because its owner has another. Calling [`Agent::session_lost`]
    /// is not necessary.
    fn drop_session(&mut self, session: SessionId);
}

/// Identifies an offered answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct OfferId {
    session: SessionId,
    ticket: Ticket,
}

/// Stage of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// On its way in; its owner may have lost this agent since.
    Restoring { answer_sent: u64 },
    /// At the agent; its answer is going out.
    Sending,
    /// At the agent; its answer is out.
    Done { answer_sent: u64, is_complete: bool },
    /// Still in the loop; its packets no longer reach it.
    Freezing { answer_sent: u64, is_complete: bool },
    /// At the agent; its answer is out, the client has ended its direction, and the agent ends the
    /// other. The client's packets must come here until it has acknowledged that: elsewhere a reset
    /// answers them, and takes the end of the answer away from a client that still reads.
    Ending { answer_sent: u64 },
    /// Nowhere. Once one process of the owner has been offered it, no other may get it.
    Returning { copy: Frozen, answer_sent: u64, is_complete: bool, told: Option<Instance> },
}

#[derive(Clone, Debug, Hash)]
struct Move {
    owner: OwnerId,
    ticket: Ticket,
    /// The owner's process that sent it, or that has acknowledged it since.
    from: Instance,
    /// The session that can tell its owner, if the owner has one and knows of the connection.
    session: Option<SessionId>,
    /// The offer it was given for.
    offer: OfferId,
    /// The client has sent something.
    is_waited_for: bool,
    is_recalled: bool,
    /// Failed tries to freeze it since the client last took something.
    freezes: u32,
    /// Queued bytes at the last try.
    queued: Option<usize>,
    stage: Stage,
}

/// A connection that has ended here, perhaps without its owner's knowledge.
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
    /// `HELD_END` was sent.
    is_told: bool,
}

/// Kinds of deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Due {
    Offer(OfferId),
    /// End of a stage.
    Wait(Flow),
    /// End of the wait for an owner.
    Orphan(Flow),
    Renewal(Flow),
    Ended(OwnerId, Ticket),
}

/// The agent's side of all hand-overs of one loop.
#[derive(Clone, Debug, Hash)]
pub struct Agent {
    limits: AgentLimits,
    /// Addresses whose connections may be taken.
    allowed: BTreeSet<SocketAddr>,
    sessions: BTreeMap<SessionId, Session>,
    offers: BTreeSet<OfferId>,
    /// Bytes kept of bodies, by exchange, and their sum.
    budgets: BTreeMap<OfferId, u64>,
    budget_bytes: u64,
    moves: BTreeMap<Flow, Move>,
    tickets: BTreeMap<(OwnerId, Ticket), Flow>,
    ended: BTreeMap<(OwnerId, Ticket), Ended>,
    /// Owners for which an ending was dropped for lack of room, with their process.
    forgot: BTreeMap<OwnerId, Instance>,
    deadlines: Deadlines<Due>,
    steps: Steps,
}

impl Agent {
    /// Creates an agent without connections. It takes connections only to `allowed` addresses.
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

    /// Time of the next call of [`Agent::tick`].
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Number of connections that are here, on their way in, or on their way out.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.moves.len()
    }

    /// Number of offered answers whose path is undecided.
    #[must_use]
    pub fn offers(&self) -> usize {
        self.offers.len()
    }

    /// True if this connection is here, on its way in, or on its way out.
    #[must_use]
    pub fn has(&self, flow: Flow) -> bool {
        self.moves.contains_key(&flow)
    }

    /// True if the owner of this session has given a connection under this ticket.
    #[must_use]
    pub fn has_taken(&self, session: SessionId, ticket: Ticket) -> bool {
        self.flow_of(session, ticket).is_some()
    }

    /// True if no state of any connection or offer is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_moves =
            !self.moves.is_empty() || !self.tickets.is_empty() || !self.ended.is_empty();
        let has_offers =
            !self.offers.is_empty() || !self.budgets.is_empty() || self.budget_bytes > 0;
        !has_moves && !has_offers && self.deadlines.is_empty()
    }
}
