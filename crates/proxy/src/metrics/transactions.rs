//! A core's counters of its transactions.

use shunt_admin::{Family, Gauge, labels};

labels! {
    /// An event of a transaction.
    pub enum TransactionEvent = "event" {
        /// Committed.
        Committed = "committed",
        /// Committed by one write, without a record: a single statement on a table with the mode
        /// `conditional`.
        Alone = "alone",
        /// Committed, and its client told so before the writes were made: on tables with the mode
        /// `full`.
        ToldEarly = "told_early",
        /// Read only.
        Read = "read",
        /// No part of it was executed.
        NotExecuted = "not_executed",
        /// In doubt, as its client was told.
        InDoubt = "in_doubt",
        /// Written once more, record or one of the writes, because the outcome of the first write
        /// was unknown.
        WrittenAgain = "written_again",
        /// One of its writes was given up: nodes refused it each time.
        GivenUp = "given_up",
    }
}

labels! {
    /// The result for a statement on a table with the mode `observe`.
    pub enum Observation = "result" {
        /// A node answered as the proxies would have.
        Same = "same",
        /// A node answered differently.
        Different = "different",
        /// The proxies' answer is not known.
        NotCompared = "not_compared",
    }
}

/// A core's transaction metrics, written at its ticks.
#[derive(Debug, Default)]
pub struct TransactionMetrics {
    /// Transactions in progress, including those that wait for their partitions.
    pub open: Gauge,
    /// Open transactions whose writes are not all acknowledged.
    pub records: Gauge,
    /// Writes of committed transactions that have failed for a long time.
    pub unmade: Gauge,
    /// Known rows of tables with the mode `conditional`.
    pub rows: Gauge,
    /// Shards whose logs are opening.
    pub opening: Gauge,
    /// 1 while the core holds or refuses statements because it cannot read modes and rules. A pause
    /// counts once its wait is over.
    pub modes_unknown: Gauge,
    /// Events of transactions.
    pub events: Family<TransactionEvent, { TransactionEvent::COUNT }>,
    /// Conditional statements on tables with the mode `observe`, and statements that the proxies
    /// would refuse there; counted on arrival.
    pub observed: Family<Observation, { Observation::COUNT }>,
}
