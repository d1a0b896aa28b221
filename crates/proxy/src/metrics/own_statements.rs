//! A core's counters of the proxy's own statements.

use shunt_admin::{Counter, Family, Gauge};

use super::Outcome;

/// Statements of the proxy itself, for locks, transactions and its fleet. The counters of clients'
/// requests do not include them.
#[derive(Debug, Default)]
pub struct OwnStatementMetrics {
    /// Statements sent.
    pub sent: Counter,
    /// Ends and events of these statements.
    pub outcomes: Family<Outcome, { Outcome::COUNT }>,
    /// Statements in flight now.
    pub in_flight: Gauge,
}
