//! A core's counters of hand-over.

use shunt_admin::{Counter, Family, Gauge, Histogram, labels};
use shunt_handover::owner::Relayed;

labels! {
    /// The outcome for a large answer that an agent offered.
    pub enum HandedOver = "way" {
        /// Sent to its client on the client's own connection.
        Sent = "handed_over",
        /// Relayed, because its client's connection could not leave.
        Stays = "relayed",
        /// Relayed, or failed, after the decision that its client's connection leaves.
        CameBack = "came_back",
        /// The client's connection ended.
        Broken = "broken_off",
    }
}

labels! {
    /// The reason why a large answer that an agent offered was relayed.
    pub enum StaysFor = "reason" {
        /// This host cannot hand over.
        Off = "off",
        /// The proxy inspects it: system tables, IN queries in parts, its own statements.
        LookedInto = "looked_into",
        /// The answer is larger than the bound on frames.
        TooLarge = "too_large",
        /// The client has not taken earlier output.
        Backlog = "backlog",
        /// The client's connection has TLS, whose keys do not leave the host.
        Encrypted = "encrypted",
        /// The client has no TCP connection of its own to the proxy: it comes through a balancer
        /// or by a Unix socket.
        Indirect = "indirect",
        /// The client's connection is away for another answer, or a request holds it here.
        Busy = "busy",
        /// The number of connections with agents, or on their way, has reached its bound.
        Full = "full",
        /// The agent's packets cannot be redirected: it is not in this network, or the table is
        /// full.
        NotSteered = "not_steered",
        /// The kernel did not release the connection.
        NotFrozen = "not_frozen",
        /// The connection's queues hold too many bytes.
        NotSendable = "not_sendable",
        /// The agent refused the connection.
        Refused = "refused",
        /// The agent was lost before it had the connection.
        AgentLost = "agent_lost",
    }
}

impl StaysFor {
    /// Converts the owner's reason.
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
    /// Outcomes of these.
    pub answers: Family<HandedOver, { HandedOver::COUNT }>,
    /// Reasons for relaying, also for answers whose client's connection was to leave.
    pub relayed: Family<StaysFor, { StaysFor::COUNT }>,
    /// Bytes that went to clients without passing the proxy.
    pub bytes: Counter,
    /// Connections that are with agents, or on their way.
    pub away: Gauge,
    /// Agents that are reachable.
    pub agents: Gauge,
    /// Time from the decision until the kernel has released a client's connection.
    pub freeze: Histogram,
    /// Time from the decision until the agent has the connection, which stands still meanwhile.
    pub taking: Histogram,
    /// Time from the decision until the connection is back.
    pub absence: Histogram,
    /// Time from a query until the agent has its client's connection, and begins to answer on it.
    pub first_byte: Histogram,
}
