//! The side that clients connect to: which of its connections are elsewhere, on their way, or
//! coming back.
//!
//! | from | on | first | then | to |
//! |---|---|---|---|---|
//! | here | an offer | steer | freeze | freezing |
//! | freezing | frozen | `TAKE` | | taking |
//! | freezing | not frozen | unsteer | `FETCH` | here |
//! | taking | `TAKEN` | forget the copy | | there |
//! | taking | `REFUSED` | restore the copy | | restoring |
//! | taking | its time, or the agent is lost | | | in doubt |
//! | in doubt | `HELD` | `HELD_ACK`, forget the copy | | there |
//! | in doubt | all was told, and not this | restore the copy | | restoring |
//! | in doubt | its time, or the agent was started anew | unsteer | | gone |
//! | there, in doubt | `RETURN` | `SETTLED` | restore what came | restoring |
//! | there, in doubt | `CLOSED` | `SETTLED` | unsteer | gone |
//! | there, in doubt | the agent is lost for too long, or has it no more, and the rest could be had | hold | look | salvaging |
//! | the same, and it could not | | unsteer | | gone |
//! | salvaging | two looks agree how far the client is | restore what was kept, so far on | | restoring |
//! | salvaging | it cannot go on there, or that is not found out | unsteer | | gone |
//! | restoring | restored | unsteer | `FETCH`, another agent, or the next request | here |
//!
//! A connection is gone when it is nowhere and its packets come here: the client's next one reaches
//! a host without it, which resets it, and the client is made to send one. It never takes that for
//! the end of an answer.
//!
//! `steps.rs` has the steps of one connection, `salvage.rs` those of one whose agent is lost,
//! `agents.rs` what concerns all those of an agent.

mod agents;
mod salvage;
mod steps;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_salvage;

pub use salvage::aged;

use std::collections::BTreeMap;

use crate::deadlines::Deadlines;
use crate::limits;
use crate::message::{Ending, Message, Refusal, Ticket};
use crate::session::Instance;
use crate::types::Flow;
use crate::weakened::Steps;
use shunt_reactor::moving::{Frozen, TcpState};

/// The caller's name for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u32);

/// Bounds of one owner.
#[derive(Clone, Copy, Debug, Hash)]
pub struct OwnerLimits {
    /// Connections that are elsewhere or on their way.
    pub flows: usize,
    /// Of these, those on their way.
    pub moves: usize,
    /// Of a steering entry, milliseconds.
    pub lease_ms: u64,
    /// For the answer to a `TAKE`.
    pub taken_ms: u64,
    /// To hear if a connection was taken.
    pub doubt_ms: u64,
    /// For an agent that is lost and has connections.
    pub lost_ms: u64,
    /// For connections that were handed over before this process started.
    pub pinned_ms: u64,
    /// Between two looks how far a client is.
    pub look_ms: u64,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        Self {
            flows: limits::FLOWS_MAX,
            moves: limits::MOVES_MAX,
            lease_ms: limits::LEASE_MS,
            taken_ms: limits::TAKEN_MS,
            doubt_ms: limits::DOUBT_MS,
            lost_ms: limits::LOST_MS,
            pinned_ms: limits::PINNED_MS,
            look_ms: limits::LOOK_MS,
        }
    }
}

/// Why an answer is relayed though it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relayed {
    /// There are as many connections elsewhere, or on their way, as there may be.
    Full,
    /// Its packets could not be sent elsewhere.
    NotSteered,
    /// It could not be taken out of the loop.
    NotFrozen,
    /// Its state cannot be sent.
    NotSendable,
    /// The agent did not take it.
    Refused(Refusal),
}

/// Why a connection is nobody's any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gone {
    /// It ended at the agent.
    Ended {
        /// Why.
        reason: Ending,
        /// Bytes of the answer that were put in.
        answer_sent: u64,
        /// Those are all, and the client has acknowledged them.
        is_complete: bool,
    },
    /// Its agent was lost, and did not come back with it.
    AgentLost,
    /// The same; the connection was to go on here, and did not.
    NotSalvaged(NotSalvaged),
    /// It came back, or was to stay, and the host did not let it in.
    NotRestored,
    /// Its client closed it before it was frozen.
    Client,
}

/// Why a connection whose agent is lost does not go on here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotSalvaged {
    /// The client has sent something that the agent had and nobody else has, or has ended its
    /// stream.
    ClientSentMore,
    /// The client is at no place of the answer from which it could go on.
    NoPlace,
    /// How far the client is was not found out.
    NotFound,
}

/// What was noted of the client's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// How many there were.
    pub packets: u64,
    /// The first acknowledgement, a sequence number, and how many bytes more the client has
    /// acknowledged since.
    pub acknowledged: Option<(u32, u64)>,
    /// The sequence number behind its last byte.
    pub sequence_end: Option<u32>,
    /// It has ended its stream, or the connection.
    pub has_ended: bool,
}

/// How a hand-over has ended. The ticket is not used again, but after [`Outcome::Relay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The connection is here, nothing of the answer was sent, and the agent has been asked to
    /// relay it.
    Relay(Relayed),
    /// The connection is here, nothing of the answer was sent, and this agent will not send it.
    Elsewhere,
    /// The connection is here again.
    Back {
        /// Bytes of the answer that are in it or have left.
        answer_sent: u64,
        /// Those are all; if not, nothing but a close can follow, unless there are none.
        is_complete: bool,
    },
    /// The agent was lost, and the connection is here again. It sends what it is given behind so
    /// many bytes of the answer.
    Salvaged {
        /// Bytes of the answer that the client has.
        answer_sent: u64,
    },
    /// The connection is gone.
    Gone(Gone),
}

/// Where actions go. Called from within methods of [`Owner`], in the order in which they are to be
/// carried out.
pub trait OwnerSink {
    /// The client's packets go to this agent's host from now on, for as long, and none of its
    /// packets reaches a connection here after the call. Called again to renew. False if that is
    /// not possible.
    fn steer(&mut self, flow: Flow, agent: AgentId, lease_ms: u64) -> bool;
    /// They come here again.
    fn unsteer(&mut self, flow: Flow);
    /// The client's packets go nowhere from now on, for as long. Called again to renew. False if
    /// that is not possible.
    fn hold(&mut self, _flow: Flow, _lease_ms: u64) -> bool {
        false
    }
    /// What was noted of the client's packets since they are steered.
    fn seen(&self, _flow: Flow) -> Option<Seen> {
        None
    }
    /// Puts the connection in and takes it out again, by which the client is made to say what it
    /// has. Nothing is to be called.
    fn probe(&mut self, _flow: Flow, _frozen: Frozen) {}
    /// True while what was put in by that is not out again.
    fn is_probing(&self, _flow: Flow) -> bool {
        false
    }
    /// True if the answer on this connection could go on from elsewhere: behind so many bytes, or
    /// behind some.
    fn could_go_on(&self, _flow: Flow, _answer_sent: Option<u64>) -> bool {
        false
    }
    /// Takes the connection out of the loop; [`Owner::frozen`] is to be called, unless it ends
    /// first ([`Owner::client_gone`]).
    fn freeze(&mut self, flow: Flow);
    /// Puts it in; [`Owner::restored`] is to be called.
    fn restore(&mut self, flow: Flow, frozen: Frozen);
    /// Nobody has the connection, and its packets come here: makes the client send one, which is
    /// answered by a reset, for a client that waits would not. `state` is what was last known of
    /// it; without it only the client's own next packet helps. `frozen_at_ms`: of when its clock is
    /// ([`aged`]).
    fn reset(&mut self, flow: Flow, state: Option<TcpState>, frozen_at_ms: u64);
    /// Says this to the agent.
    fn send(&mut self, agent: AgentId, ticket: Ticket, message: Message<'static>);
    /// Ends the control connection to this agent, which does not answer. [`Owner::control_lost`]
    /// need not be called.
    fn drop_control(&mut self, agent: AgentId);
    /// An agent says that it has this connection, from a process before this one. False if it
    /// cannot be so: this process has a client of its addresses, in whichever of its loops and
    /// wherever the connection is, or another loop has claimed it. If not, it is claimed from now
    /// on.
    fn claim(&mut self, flow: Flow) -> bool;
    /// What was claimed is so no more: it has ended, or it is a client of this loop by now.
    fn unclaim(&mut self, flow: Flow);
    /// The hand-over has ended.
    fn outcome(&mut self, flow: Flow, ticket: Ticket, outcome: Outcome);
}

/// Where a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// In the loop still; its packets go elsewhere.
    Freezing,
    /// Nowhere, or at the agent: `TAKE` was sent.
    Taking { copy: Frozen },
    /// The same, and the agent is lost.
    InDoubt { copy: Frozen },
    /// At the agent.
    There,
    /// At the agent, which is lost.
    Lost,
    /// Nowhere: on its way into the loop.
    Restoring { then: Then },
    /// Nowhere, or at an agent that is lost: its packets are held, and its client asked how far it
    /// is.
    Salvaging { looks: u8, last: Option<Look> },
}

/// What follows when a connection is here again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Relay(Relayed),
    Elsewhere,
    Back { answer_sent: u64, is_complete: bool },
    Salvaged { answer_sent: u64 },
}

/// What was seen of a client at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Look {
    packets: u64,
    acknowledged: u64,
    /// Packets had come since the look before.
    is_new: bool,
}

/// What is kept of a connection that an agent has, besides its state.
#[derive(Clone, Debug, Hash)]
struct Kept {
    /// Bytes in front of the answer that the client had not acknowledged.
    queued: u64,
    unread: Vec<u8>,
}

#[derive(Clone, Debug, Hash)]
struct Move {
    flow: Flow,
    /// When it was frozen.
    frozen_at_ms: u64,
    agent: AgentId,
    /// The control connection that the offer came by.
    session: u64,
    /// The process at the other end of it.
    instance: Instance,
    /// Bytes of the answer that the client had been sent before.
    answer_sent: u64,
    /// It is to come back as soon as its answer is out.
    is_recalled: bool,
    /// As it was frozen.
    state: Option<TcpState>,
    kept: Option<Kept>,
    /// It was handed over by a process before this one.
    is_claimed: bool,
    stage: Stage,
}

/// What is known of an agent.
#[derive(Clone, Copy, Debug, Hash)]
struct Agent {
    is_up: bool,
    /// Counts control connections.
    session: u64,
    instance: Instance,
}

/// What can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Due {
    /// The end of a wait.
    Wait(Ticket),
    /// The renewal of a steering entry.
    Renewal(Ticket),
    /// The end of the wait for one who has a connection from before.
    Pinned(Flow),
}

/// The owner's side of all hand-overs of one loop.
#[derive(Clone, Debug, Hash)]
pub struct Owner {
    limits: OwnerLimits,
    instance: Instance,
    agents: BTreeMap<AgentId, Agent>,
    moves: BTreeMap<Ticket, Move>,
    flows: BTreeMap<Flow, Ticket>,
    /// Steering entries that were found at the start.
    pinned: BTreeMap<Flow, ()>,
    /// Moves that are not [`Stage::There`] or [`Stage::Lost`].
    on_their_way: usize,
    deadlines: Deadlines<Due>,
    steps: Steps,
}

impl Owner {
    /// Without connections elsewhere. `instance` is the number of this process that agents are told
    /// in the handshake.
    #[must_use]
    pub fn new(limits: OwnerLimits, instance: Instance) -> Self {
        Self {
            limits,
            instance,
            agents: BTreeMap::new(),
            moves: BTreeMap::new(),
            flows: BTreeMap::new(),
            pinned: BTreeMap::new(),
            on_their_way: 0,
            deadlines: Deadlines::default(),
            steps: Steps::default(),
        }
    }

    /// Leaves a step out from now on.
    #[cfg(any(test, feature = "weakened"))]
    pub fn leave_out(&mut self, step: Option<crate::weakened::Step>) {
        self.steps = Steps::without(step);
    }

    /// When [`Owner::tick`] is to be called next.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Connections that are elsewhere or on their way.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.moves.len()
    }

    /// Of these, those on their way, one way or the other.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.on_their_way
    }

    /// True if nothing is kept of any connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
            && self.flows.is_empty()
            && self.pinned.is_empty()
            && self.deadlines.is_empty()
    }
}
