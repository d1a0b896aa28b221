//! Statements on the tables of the keyspace `shunt`, the applications' interface to locks. A proxy
//! answers them itself; the tables exist for drivers, which expect them, and stay empty.
//!
//! ```text
//! -- acquire; wait_ms is optional
//! INSERT INTO shunt.locks (name, owner, wait_ms) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?
//! -- renew; AND fence is optional
//! UPDATE shunt.locks USING TTL ? SET owner = ? WHERE name = ? IF owner = ? AND fence = ?
//! -- release; AND fence is optional
//! DELETE FROM shunt.locks WHERE name = ? IF owner = ? AND fence = ?
//! -- look
//! SELECT owner, fence, ttl_ms, waiters FROM shunt.locks WHERE name = ?
//! -- locks of one proxy, longest queues first
//! SELECT * FROM shunt.locks LIMIT ?
//! -- acquire several, all or none
//! BEGIN BATCH INSERT ..; INSERT ..; APPLY BATCH
//! ```
//!
//! `fast_locks` is the same for locks in memory. `rwlocks` and `fast_rwlocks` have the key (name,
//! owner) and a column `mode`, 'S' or 'X'. `lock_queue` shows the holders and waiters of a lock.
//!
//! [`parse`] reads a text, at PREPARE or for a QUERY; [`Statement::bind`] puts the values in;
//! [`reply`] writes the answers. Any other statement on these tables is refused with a message that
//! shows the right form: a row stored in one of the tables would show a lock that nobody holds.
//! Changes of the tables are refused too.

mod bind;
mod read;
pub mod reply;
mod schema;
#[cfg(test)]
mod tests;

pub use bind::{Asked, Request};
pub use read::{find_table, of_parsed, parse};
pub use schema::may_change;

use crate::error::InvalidRequest;

/// The keyspace of the tables.
pub const KEYSPACE: &str = "shunt";
/// Most statements of one batch.
pub const BATCH_MAX: usize = 16;
/// Most bytes of a lock's name; at least 1.
pub const NAME_BYTES_MAX: usize = 1024;
/// Most columns of a SELECT, however often one is named: a list has a thousand rows.
pub const COLUMNS_MAX: usize = 16;
/// Most bytes of an owner's text; at least 1.
pub const OWNER_BYTES_MAX: usize = 256;
/// Least remaining time of a hold granted after a wait, in milliseconds.
pub const TTL_LEFT_MS: u32 = 1_000;

/// One of the tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Table {
    /// Exclusive locks stored in Cassandra.
    Locks,
    /// Exclusive locks kept in memory.
    FastLocks,
    /// Shared and exclusive locks stored in Cassandra, including those of `locks`.
    RwLocks,
    /// Shared and exclusive locks kept in memory, including those of `fast_locks`.
    FastRwLocks,
    /// Holders and waiters of a lock.
    LockQueue,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ColumnType {
    /// `boolean`
    Boolean,
    /// `text`
    Text,
    /// `int`
    Int,
    /// `bigint`
    BigInt,
}

impl Table {
    /// The tables in declaration order.
    pub const ALL: [Table; 5] =
        [Table::Locks, Table::FastLocks, Table::RwLocks, Table::FastRwLocks, Table::LockQueue];

    /// Name of the table in the keyspace.
    pub fn name(self) -> &'static str {
        match self {
            Table::Locks => "locks",
            Table::FastLocks => "fast_locks",
            Table::RwLocks => "rwlocks",
            Table::FastRwLocks => "fast_rwlocks",
            Table::LockQueue => "lock_queue",
        }
    }

    /// True if the table's locks are kept in memory.
    pub fn is_fast(self) -> bool {
        matches!(self, Table::FastLocks | Table::FastRwLocks)
    }

    /// True if the table's locks can be shared, and its key includes the owner.
    pub fn is_shared(self) -> bool {
        matches!(self, Table::RwLocks | Table::FastRwLocks)
    }

    /// Columns of the table in the order of `SELECT *`: the key first, then by name.
    pub fn columns(self) -> &'static [(&'static str, ColumnType)] {
        use ColumnType::{BigInt, Boolean, Int, Text};
        match self {
            Table::Locks | Table::FastLocks => &[
                ("name", Text),
                ("fence", BigInt),
                ("owner", Text),
                ("ttl_ms", Int),
                ("wait_ms", Int),
                ("waiters", Int),
            ],
            Table::RwLocks | Table::FastRwLocks => &[
                ("name", Text),
                ("owner", Text),
                ("fence", BigInt),
                ("mode", Text),
                ("ttl_ms", Int),
                ("wait_ms", Int),
                ("waiters", Int),
            ],
            Table::LockQueue => &[
                ("name", Text),
                ("fast", Boolean),
                ("position", Int),
                ("fence", BigInt),
                ("mode", Text),
                ("owner", Text),
                ("role", Text),
                ("state", Text),
                ("ttl_ms", Int),
                ("waited_ms", Int),
            ],
        }
    }
}

/// Source of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// A literal, encoded as a client would send it.
    Literal(Box<[u8]>),
    /// A bind marker.
    Marker(u16),
}

/// A selected column and its name in the result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selected {
    /// The name in the result.
    pub shown: Box<str>,
    /// Index in [`Table::columns`].
    pub column: usize,
}

/// Form of one statement, before its values are bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    Acquire {
        name: Source,
        owner: Source,
        mode: Option<Source>,
        wait_ms: Option<Source>,
        ttl: Source,
    },
    Renew {
        name: Source,
        owners: Vec<Source>,
        modes: Vec<Source>,
        fence: Option<Source>,
        ttl: Source,
    },
    Release {
        name: Source,
        owner: Source,
        fence: Option<Source>,
    },
    Look {
        name: Source,
        owner: Option<Source>,
        columns: Vec<Selected>,
        limit: Option<Source>,
    },
    Queue {
        name: Source,
        fast: Option<Source>,
        columns: Vec<Selected>,
        limit: Option<Source>,
    },
    Longest {
        columns: Vec<Selected>,
        limit: Option<Source>,
    },
}

/// One statement on one of the tables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Single {
    pub(crate) table: Table,
    pub(crate) form: Form,
}

/// A parsed statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Statement {
    /// One statement, or those of a batch.
    pub(crate) singles: Vec<Single>,
    /// Names of the bind markers; `None` for `?`.
    pub(crate) markers: Vec<Option<Box<str>>>,
}

impl Statement {
    /// Number of statements; more than one in a batch.
    pub fn len(&self) -> usize {
        self.singles.len()
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        let source = |source: &Source| match source {
            Source::Literal(bytes) => bytes.len(),
            Source::Marker(_) => 0,
        };
        let columns = |columns: &[Selected]| -> usize {
            columns.iter().map(|column| size_of::<Selected>() + column.shown.len()).sum()
        };
        let form = |single: &Single| -> usize {
            match &single.form {
                Form::Acquire { name, owner, mode, wait_ms, ttl } => {
                    [Some(name), Some(owner), mode.as_ref(), wait_ms.as_ref(), Some(ttl)]
                        .into_iter()
                        .flatten()
                        .map(source)
                        .sum()
                }
                Form::Renew { name, owners, modes, fence, ttl } => {
                    let more = [Some(name), fence.as_ref(), Some(ttl)].into_iter().flatten();
                    owners
                        .iter()
                        .chain(modes)
                        .chain(more)
                        .map(|value| size_of::<Source>() + source(value))
                        .sum()
                }
                Form::Release { name, owner, fence } => [Some(name), Some(owner), fence.as_ref()]
                    .into_iter()
                    .flatten()
                    .map(source)
                    .sum(),
                Form::Longest { columns: shown, limit } => {
                    limit.as_ref().map_or(0, source) + columns(shown)
                }
                Form::Look { name, owner: more, columns: shown, limit }
                | Form::Queue { name, fast: more, columns: shown, limit } => {
                    let values = [Some(name), more.as_ref(), limit.as_ref()].into_iter().flatten();
                    values.map(source).sum::<usize>() + columns(shown)
                }
            }
        };
        let markers = self.markers.iter().flatten().map(|name| name.len()).sum::<usize>();
        let singles =
            self.singles.iter().map(|single| size_of::<Single>() + form(single)).sum::<usize>();
        size_of::<Self>() + singles + self.markers.len() * size_of::<Option<Box<str>>>() + markers
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.singles.is_empty()
    }

    /// Columns of the result, if the statement reads.
    pub fn selected(&self) -> Option<&[Selected]> {
        match &self.singles.first()?.form {
            Form::Look { columns, .. }
            | Form::Queue { columns, .. }
            | Form::Longest { columns, .. } => Some(columns),
            _ => None,
        }
    }

    /// Table of the first statement.
    pub fn table(&self) -> Table {
        self.singles.first().map_or(Table::Locks, |single| single.table)
    }
}

/// Checks that the statements of a batch are compatible: all acquire or all release, and all of
/// locks stored in the same way.
///
/// # Errors
/// The incompatibility.
pub fn may_be_together<'a>(
    statements: impl Iterator<Item = &'a Statement>,
) -> Result<(), InvalidRequest> {
    let singles: Vec<&Single> = statements.flat_map(|statement| &statement.singles).collect();
    if singles.len() > BATCH_MAX {
        let count = singles.len();
        return Err(InvalidRequest::new(format!(
            "a batch on locks has {count} statements; the limit is {BATCH_MAX}"
        )));
    }
    let kind = |single: &Single| match single.form {
        Form::Acquire { .. } => Some(true),
        Form::Release { .. } => Some(false),
        _ => None,
    };
    if !singles.iter().all(|single| kind(single).is_some() && kind(single) == kind(singles[0])) {
        return Err(InvalidRequest::new(
            "a batch on the tables of shunt has only INSERTs (to acquire several locks) or only DELETEs (to release them)",
        ));
    }
    if singles.iter().any(|single| single.table.is_fast() != singles[0].table.is_fast()) {
        return Err(InvalidRequest::new("a batch has either locks or fast_locks, not both"));
    }
    Ok(())
}
