//! A batch on locks that is under way.

use shunt_language::facade::Table;
use shunt_locks::Ticket;

use crate::locks::outbox::Verdict;
use crate::locks::question::Question;
use crate::locks::request::Operation;
use crate::locks::requests::Asker;

/// One lock of a batch.
pub(super) struct Part {
    pub(super) question: Owned,
    /// Its place in the batch.
    pub(super) place: usize,
    pub(super) outcome: Option<Known>,
}

impl Part {
    /// The lock with its fence, if it was granted to this batch.
    pub(super) fn granted(&self) -> Option<(Owned, i64)> {
        let Some(Known { verdict: Verdict::Granted, holder: Some((_, _, fence, _)), .. }) =
            &self.outcome
        else {
            return None;
        };
        matches!(self.question.operation, Operation::Acquire { .. })
            .then(|| (self.question.clone(), *fence))
    }
}

/// A question that outlives the message it came in.
#[derive(Clone)]
pub(super) struct Owned {
    pub(super) table: Table,
    pub(super) namespace: shunt_locks::Namespace,
    pub(super) operation: Operation,
    pub(super) name: Box<[u8]>,
    pub(super) owner: Box<[u8]>,
}

impl Owned {
    pub(super) fn borrow(&self, operation: Operation) -> Question<'_> {
        Question {
            table: self.table,
            namespace: self.namespace,
            operation,
            name: &self.name,
            owner: &self.owner,
        }
    }
}

/// What came of one lock.
pub(super) struct Known {
    pub(super) verdict: Verdict,
    pub(super) holder: Option<(Box<[u8]>, shunt_locks::Mode, i64, u32)>,
    pub(super) waiters: u32,
    pub(super) at_ns: u64,
}

/// A batch under way.
pub(super) struct Group {
    pub(super) parts: Vec<Part>,
    /// The part that is being asked for.
    pub(super) next: usize,
    pub(super) asker: Asker,
    /// The client's request; it is gone when the client is.
    pub(super) ticket: Ticket,
    /// The request for the part whose turn it is.
    pub(super) asked: Option<Ticket>,
    pub(super) began_ns: u64,
    /// Set once its locks are being released, because not all were granted or not in time.
    pub(super) back: Option<Back>,
}

/// Locks that are released before a batch is refused.
pub(super) struct Back {
    /// The part that the answer is about; `None`: it took too long.
    pub(super) failed: Option<usize>,
    /// Releases whose outcome is not known yet.
    pub(super) left: usize,
    /// Of one of them nobody knows if it was released.
    pub(super) is_unsure: bool,
}
