//! Secondary indexes of a table.
//!
//! An index has no separate structure: a statement that it answers reads the table, or the named
//! partition, and tests each row. The index decides which statements need no ALLOW FILTERING.

use std::collections::BTreeMap;

use shunt_language::ast::{IndexTarget, NativeType, quoted_name};
use shunt_language::types::CqlType;

use super::{Column, Table};

/// Most indexes of one table.
pub(crate) const INDEXES_MAX: usize = 64;

/// A secondary index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Index {
    /// Name, unique among the indexes of the keyspace.
    pub(crate) name: String,
    /// The indexed column.
    pub(crate) column: String,
    /// Indexed part of the column.
    pub(crate) target: IndexTarget,
    /// Class of a storage-attached index, as spelt in the statement; `None` for Cassandra's older
    /// indexes.
    pub(crate) class: Option<String>,
    /// `WITH OPTIONS`
    pub(crate) options: BTreeMap<String, String>,
}

/// Condition of a restriction on a column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Condition {
    Equal,
    /// `IN` with any number of values but one.
    In,
    /// `<`, `<=`, `>` or `>=`
    Range,
    Contains,
    ContainsKey,
    /// `m[key] = value`
    Entry,
}

/// The indexed part of a column as written in a statement.
pub(crate) fn target_text(target: IndexTarget, column: &str) -> String {
    let column = quoted_name(column);
    match target {
        IndexTarget::Simple => column,
        IndexTarget::Values => format!("values({column})"),
        IndexTarget::Keys => format!("keys({column})"),
        IndexTarget::Entries => format!("entries({column})"),
        IndexTarget::Full => format!("full({column})"),
    }
}

impl Index {
    /// The indexed part as shown in `system_schema.indexes`.
    pub(crate) fn target_text(&self) -> String {
        target_text(self.target, &self.column)
    }

    /// True for a storage-attached index.
    pub(crate) fn is_storage_attached(&self) -> bool {
        self.class.is_some()
    }

    /// True if two indexes differ only in their names.
    pub(crate) fn duplicates(&self, other: &Index) -> bool {
        (&self.column, self.target, &self.class, &self.options)
            == (&other.column, other.target, &other.class, &other.options)
    }

    /// True if the index answers a condition on a column.
    pub(crate) fn supports(&self, column: &Column, condition: Condition) -> bool {
        if self.column != column.name {
            return false;
        }
        match self.target {
            IndexTarget::Values => condition == Condition::Contains,
            IndexTarget::Keys => condition == Condition::ContainsKey,
            IndexTarget::Entries => condition == Condition::Entry,
            IndexTarget::Full => condition == Condition::Equal,
            IndexTarget::Simple => match condition {
                Condition::Equal => true,
                Condition::Range => self.is_storage_attached() && has_ranges(&column.cql_type),
                _ => false,
            },
        }
    }
}

/// True if a storage-attached index on a column of this type answers ranges.
fn has_ranges(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Native(native) => !matches!(
            native,
            NativeType::Ascii | NativeType::Text | NativeType::Boolean | NativeType::Uuid
        ),
        _ => false,
    }
}

impl Table {
    /// Names of the indexes on a column, separated by commas; `None` if there are none.
    pub(crate) fn index_names(&self, column: &str) -> Option<String> {
        let names: Vec<&str> = self
            .indexes
            .iter()
            .filter(|index| index.column == column)
            .map(|index| index.name.as_str())
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}
