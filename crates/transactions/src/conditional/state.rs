//! State of a single statement on a table with the mode `conditional` or `observe`, from when it
//! has its row.

use crate::Partition;
use crate::conditional::doubt::Doubt;
use crate::conditional::row::{Change, Knowledge, Life, ReadRow, Row, RowVersion};
use crate::request::Head;

/// A single statement under way.
#[derive(Debug)]
pub struct ConditionalState {
    /// Key of its row among the rows that are known; none for TRUNCATE.
    pub key: Option<Partition>,
    /// Validity of the row.
    pub of: RowVersion,
    /// The core's knowledge of the row when the statement had locked it.
    pub known: Knowledge,
    /// Time at which the row was asked for, by the boot-time clock.
    pub asked_ns: u64,
    /// The row as it was read, if it has to be rewritten before it is changed.
    pub anew: Option<ReadRow>,
    /// The row as it is now; none where that is unknown and does not matter.
    pub row: Option<Row>,
    /// The conditions do not hold: the row is rewritten, and nothing else is written.
    pub is_refused: bool,
    /// The effect of the write.
    pub change: Change,
    /// TTL of the write in seconds; none for ever.
    pub seconds: Option<u32>,
    /// First timestamp of the write, microseconds.
    pub timestamp_us: i64,
    /// No node knew the prepared statement, and it was sent as text.
    pub is_sent_again: bool,
    /// The answer, once it is known.
    pub answer: Option<Vec<u8>>,
    /// State that only a statement decided by a node has.
    pub observed: Option<ObservedState>,
}

/// State of a statement on a table with the mode `observe`.
#[derive(Debug, Default)]
pub struct ObservedState {
    /// The answer that the proxies would give; none if they would refuse the statement, or have not
    /// read its row.
    pub expected: Option<Vec<u8>>,
    /// Time at which the row may expire, by the boot-time clock.
    pub until_ns: u64,
    /// The doubt about the row.
    pub doubt: Doubt,
    /// Latest timestamp of the values that were read, microseconds.
    pub latest_us: i64,
    /// The node's answer.
    pub told: Option<(Head, Vec<u8>)>,
}

impl ConditionalState {
    /// Life of what is sent now.
    pub fn life(&self, now_ns: u64) -> Life {
        Life { from_ns: now_ns, seconds: self.seconds }
    }
}
