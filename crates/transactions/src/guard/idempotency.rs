//! Rows of the fleet's own tables that guarded and idempotent transactions read and write: the
//! highest fence of a lock that a keyspace's transactions have seen, and the outcome under a key.
//!
//! These rows are locked, read and written like those of the statements, and the same record holds
//! them. A fence that is known ([`super::fences`]) is not read. Whatever fails, an outcome exists
//! if and only if the writes that it reports were made, and a fence that was seen stays seen. This
//! must never: carry a transaction out after one that came with a later fence of the same lock;
//! carry two out under one key.
//!
//! Rows live for a day. The owner of a lock is asked just before whether the lock is held with the
//! fence, so a row is needed for no longer than a transaction may be under way.

use std::sync::{Arc, LazyLock};

use md5::{Digest, Md5};
use shunt_fleet::schema::META_KEYSPACE;
use shunt_language::terms::Value;
use shunt_wire::cql::message::{Rows, Value as Wire, ValueList};

use crate::guard::fences::Fences;
use crate::rejection::Rejection;
use crate::request::Request;
use crate::{Claim, Mode, PROTOCOL_VERSION, Partition, plan};

/// Seconds that a row lives.
const KEPT_S: i32 = 24 * 60 * 60;
/// Bytes of an answer that is kept under a key.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

static READ_FENCE: LazyLock<Arc<str>> = LazyLock::new(|| {
    Arc::from(
        "SELECT fence FROM shunt_meta.txn_fence WHERE cluster = ? AND keyspace_name = ? AND fast = ? AND name = ?",
    )
});
static WRITE_FENCE: LazyLock<Arc<str>> = LazyLock::new(|| {
    Arc::from(
        "INSERT INTO shunt_meta.txn_fence (cluster, keyspace_name, fast, name, fence) VALUES (?, ?, ?, ?, ?) USING TTL ?",
    )
});
static READ_OUTCOME: LazyLock<Arc<str>> = LazyLock::new(|| {
    Arc::from(
        "SELECT request, applied, body FROM shunt_meta.txn_outcome WHERE cluster = ? AND keyspace_name = ? AND role = ? AND key = ?",
    )
});
static WRITE_OUTCOME: LazyLock<Arc<str>> = LazyLock::new(|| {
    Arc::from(
        "INSERT INTO shunt_meta.txn_outcome (cluster, keyspace_name, role, key, request, applied, body) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?",
    )
});

/// Kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fence,
    Outcome,
}

impl Kind {
    /// The name of the row's table.
    fn table(self) -> &'static str {
        match self {
            Kind::Fence => "txn_fence",
            Kind::Outcome => "txn_outcome",
        }
    }
}

/// The first outcome under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOutcome {
    /// True if the statements wrote.
    pub applied: bool,
    /// The result, without its payload.
    pub body: Box<[u8]>,
}

/// A lock that must be held, as [`super::request::Guard`] describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    is_fast: bool,
    name: Box<str>,
    fence: i64,
    is_over: bool,
}

/// A write to one of the rows.
#[derive(Debug, PartialEq)]
pub struct Write {
    /// Name of the table.
    pub table: &'static str,
    /// Text of the statement.
    pub text: Arc<str>,
    /// Values of its markers.
    pub values: Vec<Value>,
}

/// The rows of one transaction.
#[derive(Debug, Default)]
pub struct GuardRows {
    fleet: Box<str>,
    domain: Box<str>,
    guard: Option<Held>,
    key: Box<[u8]>,
    role: Box<str>,
    /// Hash of the request, which tells it from another request under the same key.
    request: [u8; 16],
    /// The fence in the row, once it is read or known.
    fence: Option<i64>,
    /// The row of the fence is locked together with other transactions, and must not be written.
    is_shared: bool,
    /// The fence is known, and is not read.
    is_known: bool,
    /// The shard's ownership under which the rows are locked.
    claim: Option<Claim>,
    /// The outcome that was read, with the hash of its request.
    outcome: Option<([u8; 16], KeptOutcome)>,
    /// Writes to these rows.
    pub writes: Vec<Write>,
}

fn bytes(value: impl AsRef<[u8]>) -> Value {
    Value::Bytes(value.as_ref().to_vec())
}

impl GuardRows {
    /// Determines the rows of a request. `domain` is the keyspace of its tables.
    pub fn for_request(asked: &Request<'_>, fleet: &str, domain: &str) -> GuardRows {
        if asked.safeguards.is_empty() {
            return GuardRows::default();
        }
        let mut hash = Md5::new();
        // The keyspace of the tables, not that of the session: a text that names its keyspace means
        // the same in every session.
        for text in [asked.text, domain] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let mut values = Vec::new();
        asked.values.put(&mut values);
        hash.update([u8::from(asked.values.is_named())]);
        hash.update(&values);
        GuardRows {
            fleet: fleet.into(),
            domain: domain.into(),
            guard: asked.safeguards.guard.map(|guard| Held {
                is_fast: guard.is_fast,
                name: guard.name.into(),
                fence: guard.fence,
                is_over: guard.is_over,
            }),
            key: asked.safeguards.key.into(),
            role: asked.role.into(),
            request: hash.finalize().into(),
            ..GuardRows::default()
        }
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        let fence = self.guard.is_some().then_some(Kind::Fence);
        fence.into_iter().chain((!self.key.is_empty()).then_some(Kind::Outcome))
    }

    /// Kinds of rows that are read.
    fn reads(&self) -> impl Iterator<Item = Kind> + use<> {
        let is_known = self.is_known;
        self.kinds().filter(move |kind| !is_known || *kind != Kind::Fence)
    }

    /// Number of rows that are read.
    pub fn count(&self) -> usize {
        self.reads().count()
    }

    /// The fence that the lock's row is known to have.
    fn known_fence(&self, claim: Option<Claim>, fences: &mut Fences) -> Option<i64> {
        self.fence_row().zip(claim).and_then(|(row, claim)| fences.get(row, claim))
    }

    /// True if a lock must be held.
    pub fn has_guard(&self) -> bool {
        self.guard.is_some()
    }

    /// The row of the fence, if there is a guard.
    fn fence_row(&self) -> Option<Partition> {
        self.guard.is_some().then(|| self.partition(Kind::Fence))
    }

    /// Decides, before partitions are locked, whether the row of the fence is locked together with
    /// others: if the row is known to have this fence already.
    pub fn share(&mut self, claim: Option<Claim>, fences: &mut Fences) {
        let known = self.known_fence(claim, fences);
        self.is_shared = self.guard.as_ref().is_some_and(|held| known == Some(held.fence));
    }

    /// Notes the fence that is known under this ownership; it counts for as long as the partitions
    /// are locked.
    pub fn begin(&mut self, claim: Option<Claim>, fences: &mut Fences) {
        let known = self.known_fence(claim, fences);
        (self.fence, self.is_known, self.claim) = (known, known.is_some(), claim);
    }

    /// Updates the known fences once all is read and the writes are decided.
    pub fn decided(&self, fences: &mut Fences) {
        let Some((row, claim)) = self.fence_row().zip(self.claim) else { return };
        match self.fence {
            _ if self.writes_fence() => fences.forget(row),
            Some(fence) => fences.put(row, claim, fence),
            None => {}
        }
    }

    /// Updates the known fences once the transaction is committed, while it still has its
    /// partitions.
    pub fn committed(&self, fences: &mut Fences) {
        if let (Some(row), Some(claim), Some(held)) = (self.fence_row(), self.claim, &self.guard)
            && self.writes_fence()
        {
            fences.put(row, claim, held.fence);
        }
    }

    fn writes_fence(&self) -> bool {
        self.writes.iter().any(|write| write.table == Kind::Fence.table())
    }

    fn key_of(&self, kind: Kind) -> Vec<Vec<u8>> {
        let (first, second) = match (kind, &self.guard) {
            (Kind::Fence, Some(held)) => {
                (vec![u8::from(held.is_fast)], held.name.as_bytes().to_vec())
            }
            _ => (self.role.as_bytes().to_vec(), self.key.to_vec()),
        };
        vec![self.fleet.as_bytes().to_vec(), self.domain.as_bytes().to_vec(), first, second]
    }

    /// Partitions to lock.
    pub fn partitions(&self) -> impl Iterator<Item = (Partition, Mode)> {
        let mode = |kind: Kind| {
            if kind == Kind::Fence && self.is_shared { Mode::Shared } else { Mode::Exclusive }
        };
        self.kinds().map(move |kind| (self.partition(kind), mode(kind)))
    }

    fn partition(&self, kind: Kind) -> Partition {
        plan::partition(META_KEYSPACE, kind.table(), &self.key_of(kind))
    }

    /// The statement that reads the row at this place.
    pub fn read_statement(&self, place: usize) -> Option<(Arc<str>, ValueList)> {
        let kind = self.reads().nth(place)?;
        let mut list = ValueList::positional(PROTOCOL_VERSION);
        for part in self.key_of(kind) {
            list.push(Wire::Bytes(&part));
        }
        let text = if kind == Kind::Fence { &*READ_FENCE } else { &*READ_OUTCOME };
        Some((Arc::clone(text), list))
    }

    /// Takes in a row that was read. `None` if no proxy has written the row so.
    pub fn learn(&mut self, place: usize, rows: &Rows<'_>) -> Option<()> {
        let Some(row) = rows.rows().next() else { return Some(()) };
        let row = row.ok()?;
        match self.reads().nth(place)? {
            Kind::Fence => self.fence = Some(i64::from_be_bytes(row.get(0)?.try_into().ok()?)),
            Kind::Outcome => {
                let known = KeptOutcome {
                    applied: row.get(1)? == [1],
                    body: row.get(2).unwrap_or_default().into(),
                };
                self.outcome = Some((row.get(0)?.try_into().ok()?, known));
            }
        }
        Some(())
    }

    /// Returns the first outcome of the same request, if there was one.
    ///
    /// # Errors
    /// The key belongs to another request, or the lock has been used with a later fence.
    ///
    /// # Errors
    /// It was another request. Or the lock has been used with a later fence.
    pub fn check(&self) -> Result<Option<&KeptOutcome>, Rejection> {
        if let Some(held) = self.guard.as_ref().filter(|_| self.is_shared)
            && self.fence.is_none_or(|seen| seen < held.fence)
        {
            // The fence was forgotten while this transaction waited. A transaction that writes the
            // row locks it exclusively.
            let why = "Shunt: the last fence of this lock is no longer known; nothing was written, ask again";
            return Err(Rejection::overloaded(why));
        }
        if let Some((request, known)) = &self.outcome {
            // A client that has lost the lock since still gets the outcome.
            return match *request == self.request {
                true => Ok(Some(known)),
                false => Err(Rejection::invalid(
                    "Shunt: this shunt-idempotency key belongs to another transaction; use another key",
                )),
            };
        }
        match &self.guard {
            Some(held) if held.is_over || self.fence.is_some_and(|seen| seen > held.fence) => {
                Err(dead(&held.name, held.fence))
            }
            _ => Ok(None),
        }
    }

    /// Decides the writes of a repeated request: only its fence counts as seen.
    pub fn raise(&mut self) {
        self.writes.clear();
        if self
            .guard
            .as_ref()
            .is_some_and(|held| !held.is_over && self.fence.is_none_or(|seen| seen < held.fence))
        {
            self.decide(false, None);
        }
    }

    /// Decides the writes, once the statements' outcome and the answer are known.
    pub fn decide(&mut self, applied: bool, answer: Option<Vec<u8>>) {
        self.writes.clear();
        let ttl = || bytes(KEPT_S.to_be_bytes());
        if let Some(fence) = self.guard.as_ref().map(|held| held.fence)
            && self.fence != Some(fence)
        {
            self.add(Kind::Fence, &WRITE_FENCE, [bytes(fence.to_be_bytes()), ttl()]);
        }
        if let Some(answer) = answer.filter(|_| self.wants_answer()) {
            let values =
                [bytes(self.request), bytes([u8::from(applied)]), Value::Bytes(answer), ttl()];
            self.add(Kind::Outcome, &WRITE_OUTCOME, values);
        }
    }

    /// Adds a write of a row: these values after its key.
    fn add(&mut self, kind: Kind, text: &Arc<str>, values: impl IntoIterator<Item = Value>) {
        let values = self.key_of(kind).into_iter().map(Value::Bytes).chain(values).collect();
        self.writes.push(Write { table: kind.table(), text: Arc::clone(text), values });
    }

    /// True if the answer is kept.
    pub fn wants_answer(&self) -> bool {
        !self.key.is_empty()
    }
}

/// The error for a fence with which the lock is no longer held.
pub fn dead(name: &str, fence: i64) -> Rejection {
    let why = format!(
        "Shunt: fence {fence} of lock '{name}' does not count any more: the lock is not held with it. Nothing was written; acquire the lock, and \
         read anew what it guards"
    );
    Rejection::invalid(why)
}

#[cfg(test)]
mod tests;
