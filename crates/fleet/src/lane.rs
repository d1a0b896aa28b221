//! One statement in flight at a time, its deadline, and the pause after a failure.

use crate::output::{Output, Sink, StatementId};
use crate::statement::Statement;

/// A lane of statements. A member has three: for its own row, for the fleet's row, and for the rows
/// of others.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    flight: Option<Flight>,
    failures: u32,
    not_before_ns: u64,
    coordinator: u32,
}

/// A statement in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    id: StatementId,
    pub(crate) statement: Statement,
    pub(crate) sent_ns: u64,
    deadline_ns: u64,
}

impl Lane {
    /// True if the next statement may be sent.
    pub(crate) fn is_free(&self, now_ns: u64) -> bool {
        self.flight.is_none() && now_ns >= self.not_before_ns
    }

    /// Time of the next check of the lane: a deadline, the end of a pause, or the next statement.
    pub(crate) fn wakeup_ns(&self, due_ns: u64) -> u64 {
        self.flight.as_ref().map_or(due_ns.max(self.not_before_ns), |flight| flight.deadline_ns)
    }

    pub(crate) fn send(
        &mut self,
        id: StatementId,
        statement: Statement,
        now_ns: u64,
        wait_ns: u64,
        sink: &mut dyn Sink,
    ) {
        debug_assert!(self.flight.is_none(), "one statement in flight");
        let deadline_ns = now_ns.saturating_add(wait_ns);
        sink.put(Output::Send {
            id,
            statement: statement.clone(),
            deadline_ns,
            coordinator: self.coordinator,
        });
        self.flight = Some(Flight { id, statement, sent_ns: now_ns, deadline_ns });
    }

    /// Takes the statement of an outcome; `None` if the outcome is late or repeated.
    pub(crate) fn take(&mut self, id: StatementId) -> Option<Flight> {
        self.flight.take_if(|flight| flight.id == id)
    }

    /// Takes the statement whose deadline has passed.
    pub(crate) fn take_expired(&mut self, now_ns: u64) -> Option<Flight> {
        self.flight.take_if(|flight| now_ns >= flight.deadline_ns)
    }

    /// Notes that a statement was answered.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Notes that a statement got an error or no answer. The next goes to another coordinator after
    /// a pause, which doubles from `pause_max_ns / 16` to `pause_max_ns`.
    pub(crate) fn failed(&mut self, now_ns: u64, pause_max_ns: u64) {
        self.failures = (self.failures + 1).min(5);
        self.coordinator = self.coordinator.wrapping_add(1);
        self.not_before_ns = now_ns.saturating_add((pause_max_ns / 32) << self.failures);
    }
}
