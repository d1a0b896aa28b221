//! A transaction under way, as its core keeps it, and the reasons why one fails.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_fleet::schema::META_KEYSPACE;
use shunt_language::terms::Value;
use shunt_locks::Ticket;
use shunt_transactions::catalogue::table_identity::{FLEETS_OWN, TableId};
use shunt_transactions::conditional::state::ConditionalState;
use shunt_transactions::guard::idempotency::{GuardRows, KeptOutcome};
use shunt_transactions::plan::{Plan, RowRead};
use shunt_transactions::record::{self, Record};
use shunt_transactions::rejection::Rejection;
use shunt_transactions::request::Summary;
use shunt_transactions::{Partition, TransactionId};

use crate::client::account::LoginId;
use crate::fault::Fault;
use crate::fleet::rights::waiters::Waiting;
use crate::fleet::role_shares::RoleShares;
use crate::ids::PoolId;
use crate::transactions::part::Who;

/// A value of an answer; none for null.
pub(crate) type Answered = Option<Vec<u8>>;

/// A transaction under way.
pub(crate) struct Job {
    /// The client's ticket.
    pub(crate) ticket: Ticket,
    /// The client whose quota it counts against.
    pub(crate) who: Arc<str>,
    /// Protocol version of the answer.
    pub(crate) version: u8,
    /// Protocol version in which types are described.
    pub(crate) types: u8,
    /// The plan, once there is one.
    pub(crate) plan: Option<Arc<Plan>>,
    /// The request, until it is planned; of a statement that a node decides, until it ends.
    pub(crate) message: Box<[u8]>,
    pub(crate) values: Vec<Value>,
    pub(crate) shard: u8,
    pub(crate) deadline_ms: u64,
    pub(crate) id: Option<TransactionId>,
    pub(crate) rows: Vec<RowRead>,
    /// Outstanding reads, and outstanding checks of the plan's tables.
    pub(crate) reads: usize,
    /// A node's answer to the SELECT that is returned.
    pub(crate) selected: Option<Box<[u8]>>,
    /// The values of the answer, if the transaction names some.
    pub(crate) returned: Option<Vec<Answered>>,
    /// The client got an error.
    pub(crate) is_answered: bool,
    /// Values of the writes.
    pub(crate) writes: Vec<Vec<Value>>,
    /// Rows of the fleet's own that it reads and writes.
    pub(crate) guard_rows: GuardRows,
    /// The earlier answer of a transaction that is repeated.
    pub(crate) told: Option<KeptOutcome>,
    /// An error that counts unless the transaction was carried out before.
    pub(crate) failed: Option<Failure>,
    /// Timestamp of the first write, microseconds, once there is a record.
    pub(crate) timestamp_us: i64,
    pub(crate) bytes: usize,
    /// True of a single statement that nodes decide.
    pub(crate) is_observed: bool,
    /// The shard and the table's lock of a statement that is passed to a node unread.
    pub(crate) passes: Option<(u8, Partition)>,
    /// State of a single statement, once it has its row.
    pub(crate) conditional: Option<Box<ConditionalState>>,
}

/// One write of a transaction.
pub(crate) struct WriteOf<'a> {
    pub(crate) keyspace: &'a str,
    pub(crate) table: &'a str,
    pub(crate) id: TableId,
    pub(crate) text: &'a Arc<str>,
    pub(crate) values: &'a [Value],
}

impl Job {
    /// Number of writes: those of the statements, if their conditions hold, and those of the
    /// fleet's own rows.
    pub(crate) fn writes_count(&self) -> usize {
        self.writes.len() + self.guard_rows.writes.len()
    }

    /// One write, by number.
    pub(crate) fn write(&self, number: usize) -> Option<WriteOf<'_>> {
        let Some(values) = self.writes.get(number) else {
            let own = self.guard_rows.writes.get(number - self.writes.len())?;
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

    /// Encodes the redo record with this timestamp.
    pub(crate) fn record(&self, timestamp_us: i64) -> Result<Vec<u8>, record::BadRecord> {
        let writes = (0..self.writes_count()).map_while(|number| self.write(number)).map(|one| {
            let values = one.values.iter().map(|value| match value {
                Value::Bytes(bytes) => record::Value::Bytes(bytes),
                Value::Null => record::Value::Null,
                Value::Unset => record::Value::Unset,
            });
            let (keyspace, table, text) = (one.keyspace, one.table, &**one.text);
            record::Write { keyspace, table, id: one.id, text, values: values.collect() }
        });
        let record = Record { shard: self.shard, timestamp_us, key: &[], writes: writes.collect() };
        let mut bytes = Vec::new();
        record.encode(&mut bytes)?;
        Ok(bytes)
    }

    /// The plan, the values of the answer, and a node's answer to its SELECT.
    pub(crate) fn parts(&self) -> (Option<&Plan>, Option<&[Answered]>, Option<&[u8]>) {
        (self.plan.as_deref(), self.returned.as_deref(), self.selected.as_deref())
    }
}

/// An error in the place of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Fault(Fault),
    /// A transaction on tables without a mode. If the statement is a transaction only because of
    /// its table, the mode has just changed.
    NoMode(Fault),
    /// A node's error.
    Node {
        code: i32,
        message: String,
    },
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Failure {
        Failure::Fault(rejection.into())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

/// A request that waits for an answer about its lock.
pub(crate) struct GuardedRequest {
    /// The core that gets the request, and the client whose quota it counts against.
    pub(crate) to: (usize, Arc<str>),
    pub(crate) message: Box<[u8]>,
}

/// Requests of a core that wait for an answer about a lock, and their bytes. One role gets half.
const GUARDED_MAX: usize = 4_096;
const GUARDED_BYTES_MAX: usize = 16 << 20;

/// Requests that wait for an answer about their lock, by ticket.
pub(crate) struct GuardedRequests {
    all: HashMap<u64, GuardedRequest>,
    shares: RoleShares,
}

impl Default for GuardedRequests {
    fn default() -> Self {
        let shares = RoleShares::new(GUARDED_MAX, GUARDED_BYTES_MAX);
        Self { all: HashMap::new(), shares }
    }
}

impl GuardedRequests {
    /// Adds a request; `false` if there is no room for it.
    pub(crate) fn insert(&mut self, ticket: Ticket, request: GuardedRequest) -> bool {
        let (who, bytes) = request.weight();
        let has_room = self.shares.has_room(who, bytes);
        if has_room {
            self.shares.take(who, bytes);
            self.all.insert(ticket.0, request);
        }
        has_room
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<GuardedRequest> {
        let request = self.all.remove(&ticket.0)?;
        let (who, bytes) = request.weight();
        self.shares.give_back(who, bytes);
        Some(request)
    }
}

impl GuardedRequest {
    /// The role or keyspace that the request counts to, and its bytes.
    fn weight(&self) -> (Who, usize) {
        (Who::of(&self.to.1), self.message.len())
    }
}

/// Bytes of the transactions of a core that wait for a verdict.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Transactions that wait for a verdict.
pub(crate) type UndecidedRights = Waiting<Undecided, WAITING_BYTES_MAX>;

/// A transaction that waits for a verdict on its client's rights.
pub(crate) struct Undecided {
    /// The client's pool.
    pub(super) pool: PoolId,
    /// The client's login at other proxies, and the number of its pool's login.
    pub(super) login: (Option<Arc<[u8]>>, LoginId),
    /// The request, and whether another proxy has forwarded it.
    pub(super) ticket: (Ticket, bool),
    pub(super) known: Arc<Summary>,
    /// The lock that it names; `true` for one of `shunt.fast_locks`.
    pub(super) guard: Option<bool>,
    pub(super) message: Vec<u8>,
    pub(super) came_ns: u64,
    /// Number of the question that decides on it.
    pub(super) number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(role: &str, bytes: usize) -> GuardedRequest {
        GuardedRequest { to: (0, role.into()), message: vec![0; bytes].into() }
    }

    #[test]
    fn guarded_requests_of_one_role_leave_room_for_those_of_others() {
        let mut waiting = GuardedRequests::default();
        let most = GUARDED_MAX as u64 / 2;
        assert!((0..most).all(|ticket| waiting.insert(Ticket(ticket), guarded("ann", 10))));
        assert!(!waiting.insert(Ticket(most), guarded("ann", 10)));
        assert!(waiting.insert(Ticket(most), guarded("bob", GUARDED_BYTES_MAX / 2)));
        assert!(!waiting.insert(Ticket(most + 1), guarded("bob", 1)));
        (0..=most).for_each(|ticket| assert!(waiting.remove(Ticket(ticket)).is_some()));
        assert!(waiting.remove(Ticket(0)).is_none());
        assert!(waiting.insert(Ticket(0), guarded("ann", GUARDED_BYTES_MAX / 2)));
    }
}
