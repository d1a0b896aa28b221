//! State of a single statement on a table with the mode `conditional` or `observe`, from when it
//! has its row.

use crate::conditional::doubt::Doubt;
use crate::conditional::row::{Change, Knowledge, Life, ReadRow, Row, RowVersion};
use crate::request::Head;
use crate::{Partition, SECOND_NS};

/// Number of times that the row is read for one statement, because it may have expired before nodes
/// had answered all other questions.
const READS_MAX: u8 = 3;
/// Time after the answer with a row for which the statement is decided by it, though a value is in
/// its last second: nodes need some, too, from the read to the write of a conditional statement.
const SOON_NS: u64 = SECOND_NS / 20;

/// A single statement under way.
#[derive(Debug)]
pub struct ConditionalState {
    /// Key of its row among the rows that are known; none for TRUNCATE.
    pub key: Option<Partition>,
    /// Validity of the row.
    pub of: RowVersion,
    /// The core's knowledge of the row when the statement had locked it.
    pub known: Knowledge,
    /// The statement waits for the row to be read.
    pub needs_row: bool,
    /// Time at which the row was asked for, by the boot-time clock.
    pub asked_ns: u64,
    /// Time at which a node's answer with the row came, by the boot-time clock; 0 before.
    pub answered_ns: u64,
    /// Number of times that the row was read for this statement.
    pub reads: u8,
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
    /// Number of reads of the row with the next one, if there is one; none if there were too many.
    pub fn next_read(before: Option<&ConditionalState>, needs_row: bool) -> Option<u8> {
        let reads = before.map_or(0, |state| state.reads) + u8::from(needs_row);
        (reads <= READS_MAX).then_some(reads)
    }

    /// True if a value of the row that was read may have expired, given the shortest remaining TTL
    /// of them, which is rounded up.
    pub fn may_have_expired(&self, seconds: Option<u32>, now_ns: u64) -> bool {
        let Some(seconds) = seconds else { return false };
        let latest_ns = self.asked_ns.saturating_add(u64::from(seconds) * SECOND_NS);
        let earliest_ns = latest_ns.saturating_sub(SECOND_NS);
        now_ns >= earliest_ns.max(latest_ns.min(self.answered_ns.saturating_add(SOON_NS)))
    }

    /// Life of what is sent now.
    pub fn life(&self, now_ns: u64) -> Life {
        Life { from_ns: now_ns, seconds: self.seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Claim;

    const MILLISECOND_NS: u64 = SECOND_NS / 1_000;

    fn state(reads: u8) -> ConditionalState {
        ConditionalState {
            key: None,
            of: RowVersion {
                claim: Claim(1),
                table: [1; 16],
                name: Partition(9),
                columns: 7,
                epoch: 0,
                observed: 0,
            },
            known: Knowledge::Nothing,
            needs_row: true,
            asked_ns: SECOND_NS,
            answered_ns: SECOND_NS + MILLISECOND_NS,
            reads,
            anew: None,
            row: None,
            is_refused: false,
            change: Change::Delete,
            seconds: None,
            timestamp_us: 0,
            is_sent_again: false,
            answer: None,
            observed: None,
        }
    }

    #[test]
    fn a_row_that_was_read_counts_until_a_value_may_have_expired() {
        let mut state = state(1);
        let is_over = |state: &ConditionalState, seconds, passed_ms: u64| {
            state.may_have_expired(seconds, state.asked_ns + passed_ms * MILLISECOND_NS)
        };
        assert!(!is_over(&state, None, 100_000_000));
        assert!(!is_over(&state, Some(3), 1_999) && is_over(&state, Some(3), 2_000));
        // In its last second it counts for a moment after the answer.
        assert!(!is_over(&state, Some(1), 50) && is_over(&state, Some(1), 51));
        // The answer came after the last second.
        state.answered_ns = state.asked_ns + 1_100 * MILLISECOND_NS;
        assert!(is_over(&state, Some(1), 1_100));
        assert!(!is_over(&state, Some(2), 1_149) && is_over(&state, Some(2), 1_150));
    }

    #[test]
    fn a_row_is_read_three_times_at_most() {
        let reads =
            |before: u8, needs_row| ConditionalState::next_read(Some(&state(before)), needs_row);
        assert_eq!(ConditionalState::next_read(None, true), Some(1));
        assert_eq!([reads(0, true), reads(1, true), reads(2, true)], [Some(1), Some(2), Some(3)]);
        assert_eq!([reads(3, true), reads(3, false)], [None, Some(3)]);
    }
}
