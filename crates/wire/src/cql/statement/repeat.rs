//! Decides whether a statement may be sent twice while the fate of a first copy is unknown: in
//! transit, executed, or to be executed when a stalled node continues, long after the second copy
//! was answered.
//!
//! A statement must never count as repeatable if a second execution, at any time, could leave an
//! effect that one execution would not. Never repeatable are therefore:
//!
//! * statements not understood to their end, conditions, counters, functions (their value may
//!   differ);
//! * writes to a list that is not frozen: each execution puts the elements into new cells, or finds
//!   an element by its current position;
//! * JSON, which may name any column, and unknown tables or columns;
//! * values with a time to live: it begins when a node executes the write, so that an expired value
//!   could come back.
//!
//! Any other write may be repeated if its client gave a timestamp, because the write keeps its age
//! whenever it is executed. Otherwise a node stamps the write on execution, and a late copy would
//! overwrite or delete data acknowledged in the meantime.

use std::fmt;

use super::parser;
use super::routing::Bind;
use super::{Identifier, Kind, TEXT_BYTES_MAX};

/// Permission to send a statement a second time, in ascending order.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub enum Repeatable {
    /// Must not be repeated.
    Never,
    /// Repeatable if its message carries a default timestamp.
    WithTimestamp,
    /// Always repeatable: it reads, or has an explicit timestamp.
    Always,
}

/// Facts about a statement that its text lacks.
pub trait Setting: fmt::Debug {
    /// The table with these names; `None` if unknown.
    fn table(&self, keyspace: Option<&Identifier<'_>>, table: &Identifier<'_>) -> Option<&Cells>;

    /// True if a bind marker has a value: neither null nor unset nor missing.
    fn has_value(&self, marker: &Bind<'_>) -> bool;
}

/// Storage of a table's rows, as far as it matters to a repeated write.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Cells {
    /// Sorted by name.
    columns: Vec<(Box<str>, ColumnKind)>,
    expire: bool,
}

/// Storage of a column's values.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ColumnKind {
    /// Written as a whole, or (a user-defined type) field by field: each value has one place.
    Single,
    /// A set or a map: an element's value or key determines its place.
    Keyed,
    /// A list: each write creates new places.
    List,
    /// A counter.
    Counter,
}

impl ColumnKind {
    /// The kind of a type as written in `system_schema.columns`.
    #[must_use]
    pub fn of(cql_type: &str) -> ColumnKind {
        // A type given by its class name is quoted.
        if cql_type.starts_with("list<")
            || cql_type.starts_with('\'') && cql_type.contains("ListType")
        {
            ColumnKind::List
        } else if cql_type.starts_with("set<") || cql_type.starts_with("map<") {
            ColumnKind::Keyed
        } else if cql_type == "counter" {
            ColumnKind::Counter
        } else {
            ColumnKind::Single
        }
    }
}

impl Cells {
    /// * `columns`: names as stored, and kinds.
    /// * `expire`: rows have a time to live unless a statement says otherwise.
    #[must_use]
    pub fn new<N: Into<Box<str>>>(
        columns: impl IntoIterator<Item = (N, ColumnKind)>,
        expire: bool,
    ) -> Cells {
        let mut columns: Vec<_> =
            columns.into_iter().map(|(name, kind)| (name.into(), kind)).collect();
        columns.sort_by(|one, other| one.0.cmp(&other.0));
        Cells { columns, expire }
    }

    /// The kind of a column; `None` if unknown.
    #[must_use]
    pub fn kind(&self, name: &Identifier<'_>) -> Option<ColumnKind> {
        let position =
            self.columns.binary_search_by(|(known, _)| name.compare(known).reverse()).ok()?;
        self.columns.get(position).map(|(_, kind)| *kind)
    }

    /// True for a table of counters.
    #[must_use]
    pub fn has_counters(&self) -> bool {
        self.columns.iter().any(|(_, kind)| *kind == ColumnKind::Counter)
    }

    /// True if rows have a time to live unless a statement says otherwise.
    #[must_use]
    pub fn expire(&self) -> bool {
        self.expire
    }
}

/// Decides whether a statement may be sent twice. Always [`Repeatable::Never`] for a text longer
/// than [`TEXT_BYTES_MAX`]: reading it to its end would hold up all other work.
#[must_use]
pub fn repeatable(text: &str, setting: &dyn Setting) -> Repeatable {
    if text.len() > TEXT_BYTES_MAX {
        return Repeatable::Never;
    }
    let (statement, verdict) = parser::judged(text, setting);
    match statement.kind {
        _ if !verdict.repeatable || statement.conditional => Repeatable::Never,
        Kind::Select => Repeatable::Always,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch if verdict.stamped => {
            Repeatable::Always
        }
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch => Repeatable::WithTimestamp,
        Kind::Use | Kind::Ddl | Kind::Truncate | Kind::Transaction | Kind::Other => {
            Repeatable::Never
        }
    }
}
