//! One statement in flight at a time, its deadline, and the pause before the next where one failed.

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
    /// Tells if the next statement may be sent.
    pub(crate) fn is_free(&self, now_ns: u64) -> bool {
        self.flight.is_none() && now_ns >= self.not_before_ns
    }

    /// When the lane wants to be looked at again: a deadline, or the end of a pause, or when the
    /// next statement is due.
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

    /// The statement that an outcome is about; an outcome that comes late or twice is about none.
    pub(crate) fn take(&mut self, id: StatementId) -> Option<Flight> {
        self.flight.take_if(|flight| flight.id == id)
    }

    /// The statement whose answer is not waited for any longer.
    pub(crate) fn take_expired(&mut self, now_ns: u64) -> Option<Flight> {
        self.flight.take_if(|flight| now_ns >= flight.deadline_ns)
    }

    /// A statement was answered.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A statement was not, or with an error. The next goes to another coordinator after a pause,
    /// which doubles from `pause_max_ns / 16` to `pause_max_ns`.
    pub(crate) fn failed(&mut self, now_ns: u64, pause_max_ns: u64) {
        self.failures = (self.failures + 1).min(5);
        self.coordinator = self.coordinator.wrapping_add(1);
        self.not_before_ns = now_ns.saturating_add((pause_max_ns / 32) << self.failures);
    }
}
