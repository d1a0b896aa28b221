//! Decides whether a statement may be sent twice while a first is somewhere: on its way, carried
//! out, or still to be carried out when a node that stood still goes on, long after the second was
//! answered.
//!
//! It must never be said of a statement that it may be repeated, when a second execution, at
//! whatever time, could leave anything behind that one alone would not. So these are never
//! repeated:
//!
//! * what is not understood to its end, conditions, counters, functions (their value may be
//!   another);
//! * what writes a list that is not frozen: each execution puts the elements into cells of its own,
//!   or finds an element by where it stands now;
//! * JSON, which may name any column, and tables or columns that are not known;
//! * values with a time to live: it begins when a node carries the write out, so that an expired
//!   value could come back.
//!
//! Any other write may be repeated with a time that its client gave, because it then is as old as
//! it was, whenever it is carried out. Without one a node stamps it when it gets to it, and it
//! would take back, or delete, what was acknowledged meanwhile.

use std::fmt;

use super::parser;
use super::routing::Bind;
use super::{Identifier, Kind, TEXT_BYTES_MAX};

/// How far a statement may be sent a second time; the less it may, the smaller.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub enum Repeatable {
    /// Not at all.
    Never,
    /// If its message carries a default timestamp.
    WithTimestamp,
    /// In any case: it reads, or says itself when it was written.
    Always,
}

/// The facts about a statement that its text does not have.
pub trait Setting: fmt::Debug {
    /// The table that these names mean; `None` if it is not known.
    fn table(&self, keyspace: Option<&Identifier<'_>>, table: &Identifier<'_>) -> Option<&Cells>;

    /// True if a bind marker has a value: neither null nor unset nor missing.
    fn has_value(&self, marker: &Bind<'_>) -> bool;
}

/// How a table keeps its rows, as far as it matters to a write that is carried out twice.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Cells {
    /// Sorted by name.
    columns: Vec<(Box<str>, ColumnKind)>,
    expire: bool,
}

/// How a column keeps its values.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ColumnKind {
    /// Written as a whole, or (a user-defined type) field by field: one value has one place.
    Single,
    /// A set or a map: the place of an element follows from its value or key.
    Keyed,
    /// A list: each write makes new places.
    List,
    /// A counter.
    Counter,
}

impl ColumnKind {
    /// From a type as `system_schema.columns` shows it.
    #[must_use]
    pub fn of(cql_type: &str) -> ColumnKind {
        // A type by the name of its class is quoted.
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

    /// The kind of a column; `None` if it is not known.
    #[must_use]
    pub fn kind(&self, name: &Identifier<'_>) -> Option<ColumnKind> {
        let position =
            self.columns.binary_search_by(|(known, _)| name.compare(known).reverse()).ok()?;
        self.columns.get(position).map(|(_, kind)| *kind)
    }

    /// True if it is a table of counters.
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

/// Decides whether a statement may be sent twice. A text that is longer than [`TEXT_BYTES_MAX`] may
/// not: reading it to its end would hold up all other work.
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
