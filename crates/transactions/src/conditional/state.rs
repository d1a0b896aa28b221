//! What a single statement needs while it is decided, on a table with the mode `conditional` or
//! `observe`.

use crate::Partition;

use crate::conditional::doubt::Doubt;
use crate::conditional::row::{Change, Known, Life, Of, ReadRow, Row};
use crate::request::Head;

/// A single statement under way.
#[derive(Debug)]
pub struct Deciding {
    /// Its row, as it is known by; none of a TRUNCATE.
    pub key: Option<Partition>,
    pub of: Of,
    /// What was known of the row when the statement had it to itself.
    pub known: Known,
    /// When the row was asked for, by the boot-time clock.
    pub asked_ns: u64,
    /// As it was read, where it has to be made anew before it is written to.
    pub anew: Option<ReadRow>,
    /// As it is while the statement has it; none where that is not known, and does not matter.
    pub row: Option<Row>,
    /// Its conditions do not hold: the row is made anew, and that is all that is written.
    pub is_refused: bool,
    /// What is written.
    pub change: Change,
    /// For how many seconds that lives; none for ever.
    pub seconds: Option<u32>,
    /// The first of the timestamps of its write, microseconds.
    pub timestamp_us: i64,
    /// No node knew the statement as it was prepared, and it was sent as text.
    pub is_sent_again: bool,
    /// Its answer; none where there is none yet.
    pub answer: Option<Vec<u8>>,
    /// A node decides it.
    pub observed: Option<Observed>,
}

/// What is known of a statement on a table with the mode `observe`.
#[derive(Debug, Default)]
pub struct Observed {
    /// What the proxies would answer; none where they would refuse it, or have not read its row.
    pub expected: Option<Vec<u8>>,
    /// From then on its row may be another, by the boot-time clock.
    pub until_ns: u64,
    /// What is in doubt about its row, and the latest timestamp of what was read of it,
    /// microseconds.
    pub doubt: Doubt,
    pub latest_us: i64,
    /// What a node has answered.
    pub told: Option<(Head, Vec<u8>)>,
}

impl Deciding {
    /// How long what is sent now lives.
    pub fn life(&self, now_ns: u64) -> Life {
        Life { from_ns: now_ns, seconds: self.seconds }
    }
}
