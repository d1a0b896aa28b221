//! State of a batch on locks.

use shunt_language::lock_tables::Table;
use shunt_locks::Ticket;

use crate::fleet::requests::Asker;
use crate::locks::reply::Verdict;
use crate::locks::request::LockRequest;
use crate::locks::request::Operation;

/// One lock of a batch.
pub(in crate::locks) struct Part {
    pub(in crate::locks) question: Owned,
    /// Position in the batch.
    pub(in crate::locks) place: usize,
    pub(in crate::locks) outcome: Option<Known>,
}

impl Part {
    /// True if the batch asks for the lock, and does not release it.
    pub(in crate::locks) fn acquires(&self) -> bool {
        matches!(self.question.operation, Operation::Acquire { .. })
    }

    /// The lock with its fence, if this batch got it.
    pub(in crate::locks) fn granted(&self) -> Option<(Owned, i64)> {
        let Some(Known { verdict: Verdict::Granted, holder: Some((_, _, fence, _)), .. }) =
            &self.outcome
        else {
            return None;
        };
        self.acquires().then(|| (self.question.clone(), *fence))
    }
}

/// A request that outlives the message that it came in.
#[derive(Clone)]
pub(in crate::locks) struct Owned {
    pub(in crate::locks) table: Table,
    pub(in crate::locks) namespace: shunt_locks::Namespace,
    pub(in crate::locks) operation: Operation,
    pub(in crate::locks) name: Box<[u8]>,
    pub(in crate::locks) owner: Box<[u8]>,
}

impl Owned {
    pub(in crate::locks) fn borrow(&self, operation: Operation) -> LockRequest<'_> {
        LockRequest {
            table: self.table,
            namespace: self.namespace,
            operation,
            name: &self.name,
            owner: &self.owner,
        }
    }
}

/// The outcome for one lock.
pub(in crate::locks) struct Known {
    pub(in crate::locks) verdict: Verdict,
    pub(in crate::locks) holder: Option<(Box<[u8]>, shunt_locks::Mode, i64, u32)>,
    pub(in crate::locks) waiters: u32,
    pub(in crate::locks) at_ns: u64,
}

/// A batch that is under way.
pub(in crate::locks) struct Batch {
    pub(in crate::locks) parts: Vec<Part>,
    /// The part whose lock the batch asks for.
    pub(in crate::locks) next: usize,
    pub(in crate::locks) asker: Asker,
    /// The client's request; `None` once the client has left.
    pub(in crate::locks) ticket: Ticket,
    /// The request for the current part.
    pub(in crate::locks) asked: Option<Ticket>,
    pub(in crate::locks) began_ns: u64,
    /// The releases, if not all locks were granted in time.
    pub(in crate::locks) back: Option<Back>,
}

/// Releases of a batch that will be refused.
pub(in crate::locks) struct Back {
    /// The part that the answer names; `None` if the batch took too long.
    pub(in crate::locks) failed: Option<usize>,
    /// Number of releases without an outcome.
    pub(in crate::locks) left: usize,
    /// True if the outcome of a release is unknown.
    pub(in crate::locks) is_unsure: bool,
}

/// Failure of a batch of releases.
pub(in crate::locks) enum Failed {
    /// Nothing was released, unless this verdict is in doubt.
    Whole(Verdict),
    /// Some locks were released, and one was not for this reason.
    Partly { released: usize, verdict: Verdict },
}
