//! A transaction under way, as its core keeps it.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_language::terms::Value;
use shunt_locks::Ticket;
use shunt_transactions::TransactionId;

use super::own_rows::OwnRows;
use super::plan::{Plan, RowRead};

/// A value that a transaction answers; none for null.
pub(super) type Answered = Option<Vec<u8>>;

/// A transaction under way.
pub(super) struct Job {
    /// Who is answered.
    pub(super) ticket: Ticket,
    /// In which version of the protocol.
    pub(super) version: u8,
    pub(super) plan: Option<Arc<Plan>>,
    /// What was asked, until it is planned.
    pub(super) message: Box<[u8]>,
    pub(super) values: Vec<Value>,
    pub(super) shard: u8,
    pub(super) deadline_ms: u64,
    pub(super) id: Option<TransactionId>,
    pub(super) rows: Vec<RowRead>,
    /// Reads that are not answered.
    pub(super) reads: usize,
    /// The answer that a node gave to the SELECT that is returned.
    pub(super) selected: Option<Box<[u8]>>,
    /// The values that it answers, where it names some.
    pub(super) returned: Option<Vec<Answered>>,
    /// It failed, and whoever asked was told so.
    pub(super) is_answered: bool,
    /// The values of its writes.
    pub(super) writes: Vec<Vec<Value>>,
    /// Rows of the fleet's own that it reads and writes besides.
    pub(super) own: OwnRows,
    /// Since when nodes have refused a write, each time.
    pub(super) refused: HashMap<u16, u64>,
    pub(super) record: Vec<u8>,
    pub(super) bytes: usize,
}

impl Job {
    /// Its plan, the values that it answers, and what a node answered to its SELECT.
    pub(super) fn parts(&self) -> (Option<&Plan>, Option<&[Answered]>, Option<&[u8]>) {
        (self.plan.as_deref(), self.returned.as_deref(), self.selected.as_deref())
    }
}
