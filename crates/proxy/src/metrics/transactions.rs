//! What a core counts of its transactions.

use shunt_admin::{Family, Gauge, labels};

labels! {
    /// What became of a transaction.
    pub enum TransactionEvent = "event" {
        /// It was committed.
        Committed = "committed",
        /// It was committed by one write, without a record: a single statement of a table with the
        /// mode `conditional`.
        Alone = "alone",
        /// It was committed, and its client was told so before the writes were there: of tables
        /// with the mode `full`.
        ToldEarly = "told_early",
        /// It has read, and wrote nothing.
        Read = "read",
        /// Nothing of it was carried out.
        NotExecuted = "not_executed",
        /// Its client was told that it is in doubt.
        InDoubt = "in_doubt",
        /// Its record, or one of its writes, was written once more, because nobody knew if it had
        /// been.
        WrittenAgain = "written_again",
        /// One of its writes was given up: nodes have refused it each time.
        GivenUp = "given_up",
    }
}

labels! {
    /// What came of a statement on a table with the mode `observe`.
    pub enum Observation = "result" {
        /// A node has answered what the proxies would have.
        Same = "same",
        /// A node has answered something else.
        Different = "different",
        /// It is not known what the proxies would have answered.
        NotCompared = "not_compared",
    }
}

/// Written at every tick of the core.
#[derive(Debug, Default)]
pub struct TransactionMetrics {
    /// Transactions under way, those that wait for their partitions too.
    pub open: Gauge,
    /// Of these, those whose writes are not all acknowledged.
    pub records: Gauge,
    /// Writes of committed transactions that have been tried for long.
    pub unmade: Gauge,
    /// Rows of tables with the mode `conditional` that are known.
    pub rows: Gauge,
    /// Shards whose logs are being opened.
    pub opening: Gauge,
    /// What became of them.
    pub events: Family<TransactionEvent, { TransactionEvent::COUNT }>,
    /// Conditional statements on tables with the mode `observe`, and what the proxies would refuse
    /// there. Counted as they come.
    pub observed: Family<Observation, { Observation::COUNT }>,
}
