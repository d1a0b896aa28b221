//! The side that clients connect to: its connections that are elsewhere, on their way, or coming
//! back.
//!
//! | from | on | first | then | to |
//! |---|---|---|---|---|
//! | here | an offer | steer | freeze | freezing |
//! | freezing | frozen | `TAKE` | | taking |
//! | freezing | not frozen | unsteer | `FETCH` | here |
//! | taking | `TAKEN` | forget the copy | | there |
//! | taking | `REFUSED` | restore the copy | | restoring |
//! | taking | its time is over, or the agent is lost | | | in doubt |
//! | in doubt | `HELD` | `HELD_ACK`, forget the copy | | there |
//! | in doubt | a complete report without it | restore the copy | | restoring |
//! | in doubt | its time is over, or the agent has restarted | unsteer | | gone |
//! | there, in doubt | `RETURN` | `SETTLED` | restore the returned connection | restoring |
//! | there, in doubt | `CLOSED` | `SETTLED` | unsteer | gone |
//! | there, in doubt | the agent is lost for too long, or no longer has it, and the rest is available | hold | look | salvaging |
//! | the same, and the rest is not available | | unsteer | | gone |
//! | salvaging | two looks agree on the client's progress | restore the kept state, advanced to it | | restoring |
//! | salvaging | it cannot go on there, or the progress stays unknown | unsteer | | gone |
//! | restoring | restored | unsteer | `FETCH`, another agent, or the next request | here |
//!
//! A connection is gone when no host has it and its packets come here: the client is made to send a
//! packet, and this host answers with a reset. The client never takes that for the end of an
//! answer.
//!
//! `steps.rs` handles the steps of one connection, `salvage.rs` those after its agent is lost,
//! `agents.rs` all connections of an agent.

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

/// The caller's id for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u32);

/// Bounds of one owner.
#[derive(Clone, Copy, Debug, Hash)]
pub struct OwnerLimits {
    /// Connections that are elsewhere or on their way.
    pub flows: usize,
    /// Connections on their way.
    pub moves: usize,
    /// Lifetime of a steering entry, milliseconds.
    pub lease_ms: u64,
    /// Time limit for the answer to a `TAKE`, milliseconds.
    pub taken_ms: u64,
    /// Time to learn whether a connection was taken, milliseconds.
    pub doubt_ms: u64,
    /// Time for a lost agent with connections to come back, milliseconds.
    pub lost_ms: u64,
    /// Time for agents to claim connections handed over before this process started, milliseconds.
    pub pinned_ms: u64,
    /// Interval between checks of a client's progress, milliseconds.
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

/// Reason why an offered answer is relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relayed {
    /// The limit on connections elsewhere or on their way is reached.
    Full,
    /// The client's packets could not be redirected.
    NotSteered,
    /// The connection could not be frozen.
    NotFrozen,
    /// The connection's state cannot be sent.
    NotSendable,
    /// The agent refused the connection.
    Refused(Refusal),
}

/// Reason why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gone {
    /// The connection ended at the agent.
    Ended {
        /// The agent's reason.
        reason: Ending,
        /// Bytes of the answer put into it.
        answer_sent: u64,
        /// True if these bytes are the whole answer, and the client has acknowledged them.
        is_complete: bool,
    },
    /// The agent was lost, and did not come back with the connection.
    AgentLost,
    /// The agent was lost; the connection should have gone on here, and did not.
    NotSalvaged(NotSalvaged),
    /// The kernel did not restore the connection when it came back or was to stay.
    NotRestored,
    /// The client closed it before it was frozen.
    Client,
}

/// Reason why a connection whose agent is lost does not go on here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotSalvaged {
    /// The client has sent bytes that only the agent had, or has ended its stream.
    ClientSentMore,
    /// The answer cannot be resumed at the client's place in it.
    NoPlace,
    /// The client's progress could not be determined.
    NotFound,
}

/// Record of the client's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Number of packets.
    pub packets: u64,
    /// The first acknowledgement, a sequence number, and the bytes acknowledged since.
    pub acknowledged: Option<(u32, u64)>,
    /// Sequence number after the client's last byte.
    pub sequence_end: Option<u32>,
    /// The client has ended its stream or the connection.
    pub has_ended: bool,
}

/// End of a hand-over. The ticket is not used again, except after [`Outcome::Relay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The connection is here, no byte of the answer was sent, and the agent has been asked to
    /// relay it.
    Relay(Relayed),
    /// The connection is here, no byte of the answer was sent, and this agent will not send it.
    Elsewhere,
    /// The connection is back.
    Back {
        /// Bytes of the answer that are in its queues or have left.
        answer_sent: u64,
        /// True if these bytes are the whole answer; if not, only a close can follow, unless the
        /// count is 0.
        is_complete: bool,
    },
    /// The agent was lost, and the connection is back. Its next bytes continue the answer at
    /// `answer_sent`.
    Salvaged {
        /// Bytes of the answer that the client has.
        answer_sent: u64,
    },
    /// The connection is gone.
    Gone(Gone),
}

/// Receiver of actions. Methods of [`Owner`] call it in the order in which the actions must be
/// carried out.
pub trait OwnerSink {
    /// Redirects the client's packets to this agent's host for this time; after the call none
    /// reaches a connection here. Repeat the call to renew. False if that is not possible.
    fn steer(&mut self, flow: Flow, agent: AgentId, lease_ms: u64) -> bool;
    /// Ends the redirection: packets come here again.
    fn unsteer(&mut self, flow: Flow);
    /// Drops the client's packets for this time. Repeat the call to renew. False if that is not
    /// possible.
    fn hold(&mut self, _flow: Flow, _lease_ms: u64) -> bool {
        false
    }
    /// Record of the client's packets since they were redirected.
    fn seen(&self, _flow: Flow) -> Option<Seen> {
        None
    }
    /// Restores the connection and freezes it again, which makes the client reveal its state. No
    /// call follows.
    fn probe(&mut self, _flow: Flow, _frozen: Frozen) {}
    /// True while a probing connection is still in the loop.
    fn is_probing(&self, _flow: Flow) -> bool {
        false
    }
    /// True if another backend could continue the answer on this connection: at this byte, or for
    /// `None` at any.
    fn could_go_on(&self, _flow: Flow, _answer_sent: Option<u64>) -> bool {
        false
    }
    /// Freezes the connection and then calls [`Owner::frozen`], unless it ends first
    /// ([`Owner::client_gone`]).
    fn freeze(&mut self, flow: Flow);
    /// Restores the connection and then calls [`Owner::restored`].
    fn restore(&mut self, flow: Flow, frozen: Frozen);
    /// Resets a client whose connection is gone: makes it send a packet, which is answered with a
    /// reset; a waiting client would not send one. `state` is the last known one; without it the
    /// client resets at its own next packet. `frozen_at_ms` is the time of the state's clock
    /// ([`aged`]).
    fn reset(&mut self, flow: Flow, state: Option<TcpState>, frozen_at_ms: u64);
    /// Sends a message to the agent.
    fn send(&mut self, agent: AgentId, ticket: Ticket, message: Message<'static>);
    /// Ends the control connection to an agent that does not answer. Calling
    /// [`Owner::control_lost`] is not necessary.
    fn drop_control(&mut self, agent: AgentId);
    /// Claims a connection that an agent reports from an earlier process. False if a loop of this
    /// process has a client of its addresses, wherever its connection is, or another loop has
    /// claimed it.
    fn claim(&mut self, flow: Flow) -> bool;
    /// Ends a claim: the connection has ended, or is a client of this loop.
    fn unclaim(&mut self, flow: Flow);
    /// The hand-over has ended.
    fn outcome(&mut self, flow: Flow, ticket: Ticket, outcome: Outcome);
}

/// Stage of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Still in the loop; its packets go elsewhere.
    Freezing,
    /// Nowhere, or at the agent: `TAKE` was sent.
    Taking { copy: Frozen },
    /// Like `Taking`, and the agent is lost.
    InDoubt { copy: Frozen },
    /// At the agent.
    There,
    /// At the agent, which is lost.
    Lost,
    /// Nowhere: on its way into the loop.
    Restoring { then: Then },
    /// Nowhere, or at a lost agent: its packets are dropped, and its client is probed.
    Salvaging { looks: u8, last: Option<Look> },
}

/// Next step once a connection is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Relay(Relayed),
    Elsewhere,
    Back { answer_sent: u64, is_complete: bool },
    Salvaged { answer_sent: u64 },
}

/// Record of a client at one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Look {
    packets: u64,
    acknowledged: u64,
    /// Packets have come since the check before.
    is_new: bool,
}

/// Data kept of a connection that an agent has, besides its state.
#[derive(Clone, Debug, Hash)]
struct Kept {
    /// Bytes before the answer that the client had not acknowledged.
    queued: u64,
    unread: Vec<u8>,
}

#[derive(Clone, Debug, Hash)]
struct Move {
    flow: Flow,
    /// Time of the freeze.
    frozen_at_ms: u64,
    agent: AgentId,
    /// Number of the control connection that the offer came by.
    session: u64,
    /// The agent's process at that time.
    instance: Instance,
    /// Bytes of the answer that the client had been sent before.
    answer_sent: u64,
    /// The connection is to come back as soon as its answer is out.
    is_recalled: bool,
    /// State at the freeze.
    state: Option<TcpState>,
    kept: Option<Kept>,
    /// An earlier process handed it over.
    is_claimed: bool,
    stage: Stage,
}

/// State of an agent.
#[derive(Clone, Copy, Debug, Hash)]
struct Agent {
    is_up: bool,
    /// Number of its control connections so far.
    session: u64,
    instance: Instance,
}

/// Kinds of deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Due {
    /// End of a wait.
    Wait(Ticket),
    /// Renewal of a steering entry.
    Renewal(Ticket),
    /// End of the wait for an agent to claim an earlier process's connection.
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
    /// Steering entries found at the start.
    pinned: BTreeMap<Flow, ()>,
    /// Moves that are not [`Stage::There`] or [`Stage::Lost`].
    on_their_way: usize,
    deadlines: Deadlines<Due>,
    steps: Steps,
}

impl Owner {
    /// Creates an owner without connections elsewhere. `instance` is the number of this process in
    /// the handshake.
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

    /// Time of the next call of [`Owner::tick`].
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Number of connections that are elsewhere or on their way.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.moves.len()
    }

    /// Number of connections on their way, in either direction.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.on_their_way
    }

    /// True if no state of any connection is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
            && self.flows.is_empty()
            && self.pinned.is_empty()
            && self.deadlines.is_empty()
    }
}
