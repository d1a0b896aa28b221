//! Keyspaces, tables and types.
//!
//! A [`Schema`] is a value: a statement that changes it makes a new one ([`change`]), which is
//! written to disk ([`persist`]) and then replaces the old one for all users at once. Prepared
//! statements remember their schema.

pub(crate) mod change;
pub(crate) mod index;
pub(crate) mod options;
pub(crate) mod persist;
pub(crate) mod resolve;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use shunt_language::types::{CqlType, UserType};
use shunt_language::values::ordered;
use shunt_storage::row::{Cell, ColumnId};

pub(crate) use index::Index;
pub(crate) use options::TableOptions;

/// A UUID as its 16 bytes.
pub(crate) type Uuid = [u8; 16];

/// The whole schema at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// Changes with every change of the schema.
    pub(crate) version: Uuid,
    /// Incremented by every change; prepared statements of another number are prepared again.
    pub(crate) number: u64,
    pub(crate) keyspaces: BTreeMap<String, Arc<Keyspace>>,
    /// Storage number of the next table; never reused.
    pub(crate) next_table: u32,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Durability {
    /// After its log record is on disk.
    Batch,
    /// Immediately; the log is synced periodically.
    Periodic,
}

impl Durability {
    /// Returns the default durability of a keyspace. Without `durable_writes` Cassandra writes no
    /// log at all; the node writes one, and syncs it in the background.
    pub(crate) fn of(durable_writes: bool) -> Durability {
        if durable_writes { Durability::Batch } else { Durability::Periodic }
    }
}

/// A keyspace and its content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keyspace {
    pub(crate) name: String,
    /// `durable_writes`.
    pub(crate) durable_writes: bool,
    /// `replication` as given; a node always has one copy of everything.
    pub(crate) replication: BTreeMap<String, String>,
    pub(crate) durability: Durability,
    pub(crate) tables: BTreeMap<String, Arc<Table>>,
    pub(crate) types: BTreeMap<String, Arc<UserType>>,
}

impl Keyspace {
    /// Sets `durable_writes`, and with it a durability that was not set explicitly.
    pub(crate) fn set_durable_writes(&mut self, durable_writes: bool) {
        if self.durability == Durability::of(self.durable_writes) {
            self.durability = Durability::of(durable_writes);
        }
        self.durable_writes = durable_writes;
    }
}

/// Role of a column in its table.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ColumnKind {
    PartitionKey,
    Clustering,
    Static,
    Regular,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: ColumnKind,
    /// Index among the columns of the partition key, or among the clustering columns; 0 for others.
    pub(crate) position: usize,
    /// A clustering column in descending order.
    pub(crate) descending: bool,
    pub(crate) cql_type: CqlType,
    /// Storage number. After a drop only a column added again under the same name has it.
    pub(crate) id: ColumnId,
    /// Time at which a column of its name was dropped, microseconds since 1970: only later writes
    /// are shown.
    pub(crate) dropped_us: Option<i64>,
}

impl Column {
    /// True if a stored cell belongs to this column, rather than one dropped after the cell was
    /// written.
    pub(crate) fn shows(&self, cell: &Cell) -> bool {
        self.id == cell.column
            && self.dropped_us.is_none_or(|dropped_us| cell.timestamp > dropped_us)
    }

    /// True if the value is stored element by element.
    pub(crate) fn is_multi_cell(&self) -> bool {
        self.cql_type.is_multi_cell()
    }

    pub(crate) fn is_primary_key(&self) -> bool {
        matches!(self.kind, ColumnKind::PartitionKey | ColumnKind::Clustering)
    }
}

/// A dropped column: earlier writes stay hidden when one of its name is added again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DroppedColumn {
    pub(crate) column: Column,
    /// Microseconds since 1970.
    pub(crate) dropped_us: i64,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) keyspace: String,
    pub(crate) name: String,
    pub(crate) id: Uuid,
    /// Storage number; `None` for tables that show the node's own state.
    pub(crate) number: Option<shunt_storage::row::TableId>,
    /// In the order of `SELECT *`: partition key, clustering columns, then static and regular by
    /// name.
    pub(crate) columns: Vec<Column>,
    pub(crate) partition_key_len: usize,
    pub(crate) clustering_len: usize,
    pub(crate) has_static: bool,
    pub(crate) is_counter: bool,
    /// Rows keep the written form of their clustering values beside the key.
    pub(crate) keeps_written_keys: bool,
    pub(crate) next_column: u32,
    pub(crate) dropped: Vec<DroppedColumn>,
    /// Secondary indexes, by name.
    pub(crate) indexes: Vec<Index>,
    pub(crate) options: TableOptions,
}

/// The order of the columns of one kind, as in Cassandra's wildcard. It separates single-cell from
/// multi-cell columns, each in an order with non-ASCII letters first, and takes the first non-ASCII
/// names of the latter as the end of the former. It then merges both by the names' bytes as signed
/// numbers.
fn in_order(columns: Vec<Column>) -> Vec<Column> {
    let beyond_ascii =
        |column: &Column| column.name.as_bytes().first().is_some_and(|byte| !byte.is_ascii());
    let (mut many, mut one): (Vec<Column>, Vec<Column>) =
        columns.into_iter().partition(|column| column.is_multi_cell() && !beyond_ascii(column));
    one.sort_by(|left, right| {
        let place = |column: &Column| (column.is_multi_cell(), !beyond_ascii(column));
        place(left).cmp(&place(right)).then_with(|| left.name.cmp(&right.name))
    });
    many.sort_by(|left, right| left.name.cmp(&right.name));
    let signed = |column: &Column| column.name.bytes().map(u8::cast_signed).collect::<Vec<i8>>();
    let mut merged = Vec::with_capacity(one.len() + many.len());
    let (mut one, mut many) = (one.into_iter().peekable(), many.into_iter().peekable());
    while let (Some(left), Some(right)) = (one.peek(), many.peek()) {
        merged.extend(if signed(left) <= signed(right) { one.next() } else { many.next() });
    }
    merged.extend(one);
    merged.extend(many);
    merged
}

impl Table {
    /// Position of a column in [`Table::columns`].
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(crate) fn partition_key(&self) -> &[Column] {
        &self.columns[..self.partition_key_len]
    }

    pub(crate) fn clustering(&self) -> &[Column] {
        &self.columns[self.partition_key_len..self.partition_key_len + self.clustering_len]
    }

    /// Static and regular columns.
    pub(crate) fn values(&self) -> &[Column] {
        &self.columns[self.partition_key_len + self.clustering_len..]
    }

    /// Sorts the columns and derives the dependent fields.
    pub(crate) fn arrange(&mut self) {
        self.columns.sort_by_key(|column| (column.kind, column.position));
        let is_key = |column: &Column| {
            matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering)
        };
        let values = self.columns.split_off(self.columns.partition_point(is_key));
        let (statics, regular): (Vec<Column>, Vec<Column>) =
            values.into_iter().partition(|column| column.kind == ColumnKind::Static);
        self.columns.extend(in_order(statics));
        self.columns.extend(in_order(regular));
        for column in &mut self.columns {
            let before = self.dropped.iter().rfind(|dropped| dropped.column.name == column.name);
            column.dropped_us = before.map(|dropped| dropped.dropped_us);
        }
        let count = |kind| self.columns.iter().filter(|column| column.kind == kind).count();
        (self.partition_key_len, self.clustering_len) =
            (count(ColumnKind::PartitionKey), count(ColumnKind::Clustering));
        self.has_static = count(ColumnKind::Static) > 0;
        self.keeps_written_keys =
            self.clustering().iter().any(|column| ordered::has_forms(&column.cql_type));
        // A counter table stays one, even after its last counter is dropped.
        self.is_counter |= self.values().iter().any(|column| column.cql_type.is_counter());
    }
}

impl Schema {
    /// A schema without keyspaces.
    pub(crate) fn empty() -> Schema {
        Schema { version: [0; 16], number: 0, keyspaces: BTreeMap::new(), next_table: 0 }
    }

    pub(crate) fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    pub(crate) fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(name)
    }
}
