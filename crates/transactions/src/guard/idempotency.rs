//! Rows of the fleet's own tables that a transaction reads and writes besides those of its
//! statements: the highest fence of a lock that a keyspace's transactions have seen, and the
//! outcome of what came with a key.
//!
//! They are locked, read and written as the others are, and the same record has them; a fence that
//! is known ([`crate::guard::fences`]) is not read. So whatever fails, there is an outcome if and only if
//! what it tells of was written, and a fence that was seen stays seen. What must never be: a
//! transaction is carried out behind one that came with a later fence of the same lock; two are
//! carried out under one key.
//!
//! Rows live for a day. Whether a lock is held with a fence is asked of its owner just before
//! ([`super::fence`]), so a row is needed for no longer than a transaction may be under way.

use std::sync::{Arc, LazyLock};

use crate::{Claim, Mode, Partition};
use md5::{Digest, Md5};
use shunt_fleet::schema::META_KEYSPACE;
use shunt_language::terms::Value;
use shunt_wire::cql::message::{Rows, Value as Wire, ValueList};

use crate::guard::fences::Fences;
use crate::rejection::Rejection;
use crate::request::Asked;
use crate::{PROTOCOL_VERSION, plan};

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

/// One such row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fence,
    Outcome,
}

impl Kind {
    /// The name of its table.
    fn table(self) -> &'static str {
        match self {
            Kind::Fence => "txn_fence",
            Kind::Outcome => "txn_outcome",
        }
    }
}

/// The first outcome of what came with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub applied: bool,
    /// The result, behind what its head says of it.
    pub body: Box<[u8]>,
}

/// A lock that must be held, as [`crate::guard::request::Guard`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    is_fast: bool,
    name: Box<str>,
    fence: i64,
    is_over: bool,
}

/// A write that is made besides those of the statements.
#[derive(Debug, PartialEq)]
pub struct Write {
    /// The name of its table.
    pub table: &'static str,
    pub text: Arc<str>,
    pub values: Vec<Value>,
}

/// The rows of one transaction.
#[derive(Debug, Default)]
pub struct OwnRows {
    fleet: Box<str>,
    domain: Box<str>,
    guard: Option<Held>,
    key: Box<[u8]>,
    role: Box<str>,
    /// What was asked, to tell it from something else under the same key.
    request: [u8; 16],
    /// What was read: the fence, and the outcome.
    fence: Option<i64>,
    /// The fence's row is not locked alone: another transaction may have it too, and it must not be
    /// written.
    is_shared: bool,
    /// The fence is known, and is not read.
    is_known: bool,
    /// The ownership of the shard under which it has its rows to itself.
    claim: Option<Claim>,
    outcome: Option<([u8; 16], Known)>,
    pub writes: Vec<Write>,
}

fn bytes(value: impl AsRef<[u8]>) -> Value {
    Value::Bytes(value.as_ref().to_vec())
}

impl OwnRows {
    /// Those of a request of this fleet's, whose tables are in this keyspace.
    pub fn of(asked: &Asked<'_>, fleet: &str, domain: &str) -> OwnRows {
        if asked.besides.is_empty() {
            return OwnRows::default();
        }
        let mut hash = Md5::new();
        // The keyspace of its tables, and not that of the session: a text that names it means the
        // same in each.
        for text in [asked.text, domain] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let mut values = Vec::new();
        asked.values.put(&mut values);
        hash.update([u8::from(asked.values.is_named())]);
        hash.update(&values);
        OwnRows {
            fleet: fleet.into(),
            domain: domain.into(),
            guard: asked.besides.guard.map(|guard| Held {
                is_fast: guard.is_fast,
                name: guard.name.into(),
                fence: guard.fence,
                is_over: guard.is_over,
            }),
            key: asked.besides.key.into(),
            role: asked.role.into(),
            request: hash.finalize().into(),
            ..OwnRows::default()
        }
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        let fence = self.guard.is_some().then_some(Kind::Fence);
        fence.into_iter().chain((!self.key.is_empty()).then_some(Kind::Outcome))
    }

    /// Those that are read.
    fn reads(&self) -> impl Iterator<Item = Kind> + use<> {
        let is_known = self.is_known;
        self.kinds().filter(move |kind| !is_known || *kind != Kind::Fence)
    }

    /// How many rows are read.
    pub fn count(&self) -> usize {
        self.reads().count()
    }

    /// The fence that the row of its lock is known to have.
    fn known_fence(&self, claim: Option<Claim>, fences: &mut Fences) -> Option<i64> {
        self.fence_row().zip(claim).and_then(|(row, claim)| fences.get(row, claim))
    }

    /// True if a lock must be held.
    pub fn has_guard(&self) -> bool {
        self.guard.is_some()
    }

    /// The row of its fence, if it has a guard.
    fn fence_row(&self) -> Option<Partition> {
        self.guard.is_some().then(|| self.partition(Kind::Fence))
    }

    /// Before its partitions are locked: the row of its fence is locked together with others', if
    /// it is known to have that fence already.
    pub fn share(&mut self, claim: Option<Claim>, fences: &mut Fences) {
        let known = self.known_fence(claim, fences);
        self.is_shared = self.guard.as_ref().is_some_and(|held| known == Some(held.fence));
    }

    /// It has its partitions, and what is known of the fence of its lock under this ownership
    /// counts for as long as it has them.
    pub fn begin(&mut self, claim: Option<Claim>, fences: &mut Fences) {
        let known = self.known_fence(claim, fences);
        (self.fence, self.is_known, self.claim) = (known, known.is_some(), claim);
    }

    /// All is read, and it is known what it writes.
    pub fn decided(&self, fences: &mut Fences) {
        let Some((row, claim)) = self.fence_row().zip(self.claim) else { return };
        match self.fence {
            _ if self.writes_fence() => fences.forget(row),
            Some(fence) => fences.put(row, claim, fence),
            None => {}
        }
    }

    /// It is committed, and has its partitions still.
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

    /// What is locked for them.
    pub fn partitions(&self) -> impl Iterator<Item = (Partition, Mode)> {
        let mode = |kind: Kind| {
            if kind == Kind::Fence && self.is_shared { Mode::Shared } else { Mode::Exclusive }
        };
        self.kinds().map(move |kind| (self.partition(kind), mode(kind)))
    }

    fn partition(&self, kind: Kind) -> Partition {
        plan::partition(META_KEYSPACE, kind.table(), &self.key_of(kind))
    }

    /// The statement that reads one of them.
    pub fn read(&self, place: usize) -> Option<(Arc<str>, ValueList)> {
        let kind = self.reads().nth(place)?;
        let mut list = ValueList::positional(PROTOCOL_VERSION);
        for part in self.key_of(kind) {
            list.push(Wire::Bytes(&part));
        }
        let text = if kind == Kind::Fence { &*READ_FENCE } else { &*READ_OUTCOME };
        Some((Arc::clone(text), list))
    }

    /// One of them was read. `None`: it is not as a proxy writes it.
    pub fn learn(&mut self, place: usize, rows: &Rows<'_>) -> Option<()> {
        let Some(row) = rows.rows().next() else { return Some(()) };
        let row = row.ok()?;
        match self.reads().nth(place)? {
            Kind::Fence => self.fence = Some(i64::from_be_bytes(row.get(0)?.try_into().ok()?)),
            Kind::Outcome => {
                let known = Known {
                    applied: row.get(1)? == [1],
                    body: row.get(2).unwrap_or_default().into(),
                };
                self.outcome = Some((row.get(0)?.try_into().ok()?, known));
            }
        }
        Some(())
    }

    /// The first outcome of the same request, if there was one.
    ///
    /// # Errors
    /// It was another request. Or the lock has been used with a later fence.
    pub fn check(&self) -> Result<Option<&Known>, Rejection> {
        if let Some(held) = self.guard.as_ref().filter(|_| self.is_shared)
            && self.fence.is_none_or(|seen| seen < held.fence)
        {
            // Forgotten while this one waited. Whoever writes the row has it alone.
            let why = "Shunt: it is not known any more which fence of this lock was the last; nothing was written, ask again";
            return Err(Rejection::overloaded(why));
        }
        if let Some((request, known)) = &self.outcome {
            // What has been carried out is told also to whoever has lost the lock since.
            return match *request == self.request {
                true => Ok(Some(known)),
                false => Err(Rejection::invalid(
                    "Shunt: another transaction was carried out with this shunt-idempotency key: take another key for this one",
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

    /// What is written when the first outcome is told again: the fence still counts as seen.
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

    /// Decides what is written besides, now that it is known whether the statements write, and what
    /// is answered.
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

    /// Adds a write of a row: these values behind its key.
    fn add(&mut self, kind: Kind, text: &Arc<str>, values: impl IntoIterator<Item = Value>) {
        let values = self.key_of(kind).into_iter().map(Value::Bytes).chain(values).collect();
        self.writes.push(Write { table: kind.table(), text: Arc::clone(text), values });
    }

    /// True if its answer is kept.
    pub fn wants_answer(&self) -> bool {
        !self.key.is_empty()
    }
}

/// A lock is not held with this fence any more.
pub fn dead(name: &str, fence: i64) -> Rejection {
    let why = format!(
        "Shunt: fence {fence} of lock '{name}' does not count any more: the lock is not held with it. Nothing was written; acquire the lock, and \
         read anew what it guards"
    );
    Rejection::invalid(why)
}

#[cfg(test)]
mod tests;
