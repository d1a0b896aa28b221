//! The state of a core's reads of all modes, or of all rules.
//!
//! A core asks again after [`RETRY_NS`] without an answer. An answer is as old as its question, and
//! counts for [`MODES_TRUSTED_NS`] from then on. The core drops an answer to an earlier question
//! than the one that it last got an answer to.

use shunt_transactions::catalogue::switching::{EVERY_NS, MODES_TRUSTED_NS};

use shunt_wire::cql::message::ErrorMessage;
use shunt_wire::printable::printable_to;

use crate::limits::{REASON_SHOWN_BYTES_MAX, SECOND_NS};
use crate::transactions::modes::denials::{Denials, denies_layout};
use crate::transactions::part::Poll;

/// Time without an answer after which a core asks again.
pub(super) const RETRY_NS: u64 = SECOND_NS;
/// Time from a failed read to the next question.
pub(super) const AGAIN_NS: u64 = SECOND_NS / 2;

/// The state of a core's reads of modes, or of rules.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Time of the next question.
    pub(crate) next_ns: u64,
    /// Time of the last question.
    pub(super) asked_ns: u64,
    /// Time of the question whose answer is in force.
    pub(crate) known_ns: Option<u64>,
    /// True if a quorum had read the table before this core began.
    pub(crate) was_read: bool,
    /// True if every node of the local datacentre has denied this proxy's role the right to read
    /// the table, and the table was never read.
    pub(crate) is_forbidden: bool,
    /// True if a node has denied this version's layout of the table, and no read succeeded since.
    pub(crate) has_other_layout: bool,
    /// Nodes' denials of the table.
    pub(crate) denials: Denials,
}

impl Polling {
    /// Returns true if the answer to a question is too old at `now_ns`, or older than the one in
    /// force.
    pub(super) fn is_outdated(&self, poll: Poll, now_ns: u64) -> bool {
        now_ns.saturating_sub(poll.asked_ns) > MODES_TRUSTED_NS
            || self.known_ns.is_some_and(|known_ns| poll.asked_ns < known_ns)
    }

    /// Notes an answer with rows, and sets the time of the next question. Returns true after a gap
    /// between reads in which the table may have had other rows.
    pub(super) fn note_rows(&mut self, poll: Poll, woke_ns: u64) -> bool {
        let known_ns = self.known_ns.replace(poll.asked_ns);
        self.denials.clear();
        self.denials.has_rows = true;
        self.is_forbidden = false;
        self.has_other_layout = false;
        self.next_ns = match self.asked_ns < woke_ns {
            true => 0,
            false => (poll.asked_ns + EVERY_NS).max(self.asked_ns + RETRY_NS),
        };
        known_ns.is_none_or(|known_ns| poll.asked_ns.saturating_sub(known_ns) > MODES_TRUSTED_NS)
    }

    /// Notes a node's error. Only rows take a denial of the layout back, never another error.
    pub(super) fn note_error(&mut self, error: &ErrorMessage<'_>) {
        if denies_layout(error) && !std::mem::replace(&mut self.has_other_layout, true) {
            let error = printable_to(error.message, REASON_SHOWN_BYTES_MAX);
            tracing::warn!(
                %error,
                "this version does not know the layout of the fleet's table of modes or rules: run shunt doctor"
            );
        }
    }

    /// Sets the time of the next question after a failed read.
    pub(super) fn note_failure(&mut self, now_ns: u64) {
        self.next_ns = self.next_ns.min(now_ns + AGAIN_NS);
    }

    /// Notes that the table is absent.
    pub(super) fn note_absence(&mut self, poll: Poll, now_ns: u64) {
        self.known_ns = Some(poll.asked_ns);
        self.is_forbidden = false;
        self.next_ns = now_ns + EVERY_NS;
    }

    /// Notes that all nodes deny the right to read the table. Returns true if the core did not know
    /// so before. A role that has read the table before has lost its right, and its rows get old.
    pub(super) fn note_missing_right(&mut self) -> bool {
        let was_read = self.was_read || self.known_ns.is_some();
        !was_read && !std::mem::replace(&mut self.is_forbidden, true)
    }

    /// Forgets all denials, after a pause of the process.
    pub(crate) fn forget_denials(&mut self) {
        self.denials.clear();
        self.is_forbidden = false;
    }

    /// Returns true if the rows that this core has read, or began with at `began_ns`, are too old.
    /// A role that may not read the table has none that could get old.
    pub(crate) fn is_old(&self, began_ns: u64, now_ns: u64) -> bool {
        !self.is_forbidden
            && now_ns.saturating_sub(self.known_ns.unwrap_or(began_ns)) > MODES_TRUSTED_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(asked_ns: u64) -> Poll {
        Poll { asked_ns, node: None }
    }

    #[test]
    fn a_late_answer_is_as_old_as_its_question() {
        let mut polling = Polling { asked_ns: 3 * SECOND_NS, ..Polling::default() };
        assert!(
            polling.is_outdated(poll(1), 2 + MODES_TRUSTED_NS)
                && !polling.is_outdated(poll(1), MODES_TRUSTED_NS)
        );
        assert!(polling.note_rows(poll(2 * SECOND_NS), 0), "nothing was known before");
        assert!(!polling.is_old(0, 2 * SECOND_NS + MODES_TRUSTED_NS));
        assert!(
            polling.is_old(0, 2 * SECOND_NS + MODES_TRUSTED_NS + 1),
            "since the question, not the answer"
        );
        // The answer to the question before comes after.
        assert!(polling.is_outdated(poll(SECOND_NS), 3 * SECOND_NS));
        assert!(!polling.note_rows(poll(3 * SECOND_NS), 0));
        assert!(
            polling.note_rows(poll(3 * SECOND_NS + MODES_TRUSTED_NS + 1), 0),
            "there was a gap"
        );
    }

    #[test]
    fn a_role_that_may_read_nothing_never_gets_old() {
        let mut polling = Polling::default();
        assert!(polling.is_old(0, 9 * MODES_TRUSTED_NS), "no node has said so");
        assert!(polling.note_missing_right() && !polling.note_missing_right(), "it is news once");
        assert!(!polling.is_old(0, 9 * MODES_TRUSTED_NS));
        polling.forget_denials();
        assert!(polling.is_old(0, 9 * MODES_TRUSTED_NS), "it was paused");
        assert!(polling.note_missing_right());
        polling.note_rows(poll(1), 0);
        assert!(!polling.is_forbidden && polling.is_old(0, 9 * MODES_TRUSTED_NS), "it can now");
    }

    #[test]
    fn a_role_that_lost_its_right_goes_by_old_rows_no_longer_than_others() {
        let mut polling = Polling::default();
        polling.note_rows(poll(1), 0);
        let before = Polling { was_read: true, ..Polling::default() };
        for mut polling in [polling, before] {
            assert!(!polling.note_missing_right());
            assert!(polling.is_old(1, MODES_TRUSTED_NS + 2), "{polling:?}");
            assert!(!polling.is_old(1, MODES_TRUSTED_NS + 1));
        }
    }
}
