//! What a statement's text does not have and repeating it depends on: how its table keeps rows, and
//! which bind markers have a value.

use std::fmt;

use super::identifier::Identifier;
use super::terms::Bind;

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
