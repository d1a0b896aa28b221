//! What a core counts of hand-over.

use shunt_admin::{Counter, Family, Gauge, labels};

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

/// Counters of hand-over.
#[derive(Debug, Default)]
pub struct HandoverMetrics {
    /// Large answers that agents offered.
    pub offers: Counter,
    /// What became of them.
    pub answers: Family<HandedOver, { HandedOver::COUNT }>,
    /// Bytes that went to clients past the proxy.
    pub bytes: Counter,
    /// Connections that are with agents, or on their way.
    pub away: Gauge,
    /// Agents that can be reached.
    pub agents: Gauge,
}
