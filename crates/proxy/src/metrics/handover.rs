//! What a core counts of hand-over.

use shunt_admin::{Counter, Family, Gauge, Histogram, labels};
use shunt_handover::owner::Relayed;

labels! {
    /// What became of a large answer that an agent offered.
    pub enum HandedOver = "way" {
        /// It went to its client on the client's own connection.
        Sent = "handed_over",
        /// It was relayed: its client's connection could not leave.
        Stays = "relayed",
        /// It was relayed, or failed, after its client's connection was to leave, or had left.
        CameBack = "came_back",
        /// Its client's connection came to an end.
        Broken = "broken_off",
    }
}

labels! {
    /// Why a large answer was relayed that an agent had offered.
    pub enum StaysFor = "reason" {
        /// This host cannot hand over.
        Off = "off",
        /// The proxy looks into it: system tables, IN queries in parts, its own questions.
        LookedInto = "looked_into",
        /// It is larger than a frame may be.
        TooLarge = "too_large",
        /// Its client has not taken what was written before.
        Backlog = "backlog",
        /// Its client's connection is away for another answer, or something else holds it here.
        Busy = "busy",
        /// As many connections are with agents, or on their way, as may be.
        Full = "full",
        /// Its packets cannot be sent on: the agent is not in this network, or the table is full.
        NotSteered = "not_steered",
        /// The kernel did not let go of the connection.
        NotFrozen = "not_frozen",
        /// There is too much in the connection's queues.
        NotSendable = "not_sendable",
        /// The agent did not take it.
        Refused = "refused",
        /// The agent was lost before it had it.
        AgentLost = "agent_lost",
    }
}

impl StaysFor {
    /// As the owner says it.
    pub(crate) fn of(why: Relayed) -> Self {
        match why {
            Relayed::Full => Self::Full,
            Relayed::NotSteered => Self::NotSteered,
            Relayed::NotFrozen => Self::NotFrozen,
            Relayed::NotSendable => Self::NotSendable,
            Relayed::Refused(_) => Self::Refused,
        }
    }
}

/// Counters and times of hand-over.
#[derive(Debug, Default)]
pub struct HandoverMetrics {
    /// Large answers that agents offered.
    pub offers: Counter,
    /// What became of them.
    pub answers: Family<HandedOver, { HandedOver::COUNT }>,
    /// Why some were relayed, those whose client's connection was to leave too.
    pub relayed: Family<StaysFor, { StaysFor::COUNT }>,
    /// Bytes that went to clients past the proxy.
    pub bytes: Counter,
    /// Connections that are with agents, or on their way.
    pub away: Gauge,
    /// Agents that can be reached.
    pub agents: Gauge,
    /// From the decision until the kernel has let go of a client's connection.
    pub freeze: Histogram,
    /// From the decision until the agent has it: so long does it stand still.
    pub taking: Histogram,
    /// From the decision until it is back.
    pub absence: Histogram,
    /// From a query until the agent has its client's connection, and begins to answer on it.
    pub first_byte: Histogram,
}
