//! Parts of drafts and plans: statements, and where the values of their markers come from.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use shunt_language::terms::Prepared;
use shunt_language::transaction::{PreparedReference, PreparedSelfAssignment};
use shunt_wire::cql::message::Prepared as Answer;

use super::schema::Table;
use crate::Partition;

/// A statement that a node executes by itself.
#[derive(Debug)]
pub struct Standalone {
    /// The text.
    pub text: Arc<str>,
    /// Source of each marker's value.
    pub(super) values: Vec<Source>,
}

/// Place where the value of a marker comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// From the client, by index.
    Client(u16),
    /// From a row that was read; an index in [`Draft::references`].
    Reference(usize),
    /// Computed from the row that is written; an index in [`Draft::computed`].
    Computed(usize),
    /// From functions, once per transaction; an index in [`Draft::called`].
    Called(usize),
    /// From a column of a statement's key.
    Key { statement: usize, part: usize },
}

/// The row or partition of a statement.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) table: Arc<Table>,
    /// Values of the partition key, then of the clustering as far as it is given.
    pub(super) parts: Vec<Prepared>,
}

/// `a = a + x`, and where `a` was read.
#[derive(Debug)]
pub(super) struct Computed {
    pub(super) assignment: PreparedSelfAssignment,
    pub(super) statement: usize,
    pub(super) read: usize,
    pub(super) column: usize,
}

/// A reference, and where it was read.
#[derive(Debug)]
pub(super) struct ReferenceRead {
    pub(super) reference: PreparedReference,
    pub(super) read: usize,
    pub(super) column: Place,
}

/// The place of a column in a row that was read.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// By name, for `SELECT *`.
    Named(String),
    At(usize),
}

/// A column or marker, as a node describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// The name.
    pub name: Box<str>,
    /// The type, encoded as in the protocol.
    pub type_option: Box<[u8]>,
}

/// A node's description of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedText {
    pub(super) markers: Vec<ColumnSpec>,
    pub(super) columns: Vec<ColumnSpec>,
}

impl PreparedText {
    /// Reads a node's answer to PREPARE.
    pub fn of(prepared: &Answer<'_>) -> PreparedText {
        let markers = prepared.bind.markers().map(|marker| ColumnSpec {
            name: marker.name.into(),
            type_option: marker.type_option.into(),
        });
        let columns = prepared.result.columns().map(|column| ColumnSpec {
            name: column.name.into(),
            type_option: column.type_option.into(),
        });
        PreparedText { markers: markers.collect(), columns: columns.collect() }
    }
}

/// Hash of a partition.
pub fn partition(keyspace: &str, table: &str, parts: &[Vec<u8>]) -> Partition {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        // By names: one plan may know a table that was dropped, and another plan the table that
        // replaced it.
        (keyspace, table).hash(&mut hasher);
        parts.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    Partition(half(0) << 64 | half(1))
}
