//! A transaction under way, as its core keeps it.

use std::sync::Arc;

use shunt_fleet::schema::META_KEYSPACE;
use shunt_language::terms::Value;
use shunt_locks::Ticket;
use shunt_transactions::{Partition, TransactionId};

use super::failed::Failed;
use shunt_transactions::catalogue::table_identity::{FLEETS_OWN, TableId};
use shunt_transactions::conditional::state::Deciding;
use shunt_transactions::guard::idempotency::{Known as Told, OwnRows};
use shunt_transactions::plan::{Plan, RowRead};

/// A value that a transaction answers; none for null.
pub(super) type Answered = Option<Vec<u8>>;

/// A transaction under way.
pub(super) struct Job {
    /// Who is answered.
    pub(super) ticket: Ticket,
    /// Whose share it counts to.
    pub(super) who: Arc<str>,
    /// In which version of the protocol, and in which types are told.
    pub(super) version: u8,
    pub(super) types: u8,
    pub(super) plan: Option<Arc<Plan>>,
    /// What was asked, until it is planned; of what a node will decide, for as long as there is the
    /// job.
    pub(super) message: Box<[u8]>,
    pub(super) values: Vec<Value>,
    pub(super) shard: u8,
    pub(super) deadline_ms: u64,
    pub(super) id: Option<TransactionId>,
    pub(super) rows: Vec<RowRead>,
    /// Reads that are not answered, and tables of which is asked if they are those of the plan.
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
    /// What it was answered when it was carried out before.
    pub(super) told: Option<Told>,
    /// What is wrong with it, which counts unless it was carried out before.
    pub(super) failed: Option<Failed>,
    /// The timestamp of the first of them, microseconds, once there is a record.
    pub(super) timestamp_us: i64,
    pub(super) bytes: usize,
    /// A single statement that nodes decide.
    pub(super) is_observed: bool,
    /// It was sent to a node as it is, and is decided by nobody here: its shard, and what stands
    /// for its table.
    pub(super) passes: Option<(u8, Partition)>,
    /// What a single statement needs besides, once it has its row.
    pub(super) deciding: Option<Box<Deciding>>,
}

/// One of the writes of a transaction.
pub(super) struct WriteOf<'a> {
    pub(super) keyspace: &'a str,
    pub(super) table: &'a str,
    pub(super) id: TableId,
    pub(super) text: &'a Arc<str>,
    pub(super) values: &'a [Value],
}

impl Job {
    /// How many writes it has: of its statements, if their conditions hold, and of the fleet's own
    /// rows.
    pub(super) fn writes_count(&self) -> usize {
        self.writes.len() + self.own.writes.len()
    }

    /// One of them, by its number.
    pub(super) fn write(&self, number: usize) -> Option<WriteOf<'_>> {
        let Some(values) = self.writes.get(number) else {
            let own = self.own.writes.get(number - self.writes.len())?;
            let (text, values) = (&own.text, &own.values[..]);
            return Some(WriteOf {
                keyspace: META_KEYSPACE,
                table: own.table,
                id: FLEETS_OWN,
                text,
                values,
            });
        };
        let plan = self.plan.as_ref()?;
        let (table, text) = (plan.table_of_write(number)?, &plan.draft.writes.get(number)?.text);
        Some(WriteOf { keyspace: &table.keyspace, table: &table.name, id: table.id, text, values })
    }

    /// Its plan, the values that it answers, and what a node answered to its SELECT.
    pub(super) fn parts(&self) -> (Option<&Plan>, Option<&[Answered]>, Option<&[u8]>) {
        (self.plan.as_deref(), self.returned.as_deref(), self.selected.as_deref())
    }
}
