//! What a single statement needs while it is decided, on a table with the mode `conditional` or
//! `observe`.

use shunt_transactions::Partition;

use super::doubt::Doubt;
use super::known::Head;
use super::row::{Change, Known, Life, Of, ReadRow, Row};

/// A single statement under way.
#[derive(Debug)]
pub(super) struct Deciding {
    /// Its row, as it is known by; none of a TRUNCATE.
    pub(super) key: Option<Partition>,
    pub(super) of: Of,
    /// What was known of the row when the statement had it to itself.
    pub(super) known: Known,
    /// When the row was asked for, by the boot-time clock.
    pub(super) asked_ns: u64,
    /// As it was read, where it has to be made anew before it is written to.
    pub(super) anew: Option<ReadRow>,
    /// As it is while the statement has it; none where that is not known, and does not matter.
    pub(super) row: Option<Row>,
    /// Its conditions do not hold: the row is made anew, and that is all that is written.
    pub(super) is_refused: bool,
    /// What is written.
    pub(super) change: Change,
    /// For how many seconds that lives; none for ever.
    pub(super) seconds: Option<u32>,
    /// The first of the timestamps of its write, microseconds.
    pub(super) timestamp_us: i64,
    /// No node knew the statement as it was prepared, and it was sent as text.
    pub(super) is_sent_again: bool,
    /// Its answer; none where there is none yet.
    pub(super) answer: Option<Vec<u8>>,
    /// A node decides it.
    pub(super) observed: Option<Observed>,
}

/// What is known of a statement on a table with the mode `observe`.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// What the proxies would answer; none where they would refuse it, or have not read its row.
    pub(super) expected: Option<Vec<u8>>,
    /// From then on its row may be another, by the boot-time clock.
    pub(super) until_ns: u64,
    /// What is in doubt about its row, and the latest timestamp of what was read of it,
    /// microseconds.
    pub(super) doubt: Doubt,
    pub(super) latest_us: i64,
    /// What a node has answered.
    pub(super) told: Option<(Head, Vec<u8>)>,
}

impl Deciding {
    /// How long what is sent now lives.
    pub(super) fn life(&self, now_ns: u64) -> Life {
        Life { from_ns: now_ns, seconds: self.seconds }
    }
}
