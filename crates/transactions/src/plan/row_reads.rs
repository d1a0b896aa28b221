//! Reads that the text does not name: of the row that a write computes something from, and of
//! static columns.
//!
//! A node returns static columns beside a clustering column only if the row exists. They are
//! therefore read by the partition key alone: `total += 1` beside a new row, or a `LET` of a row
//! that does not exist, would otherwise take an existing value for null.

use std::sync::Arc;

use shunt_language::InvalidRequest;
use shunt_language::ast::{Relation, Select, Statement, quoted_name};

use super::draft::Drafting;
use super::parts::{Place, Source, Standalone};
use super::schema::Table;

/// The read of the static columns that are referred to in the row of a `LET`.
#[derive(Debug)]
pub(super) struct StaticRead {
    /// Index of the `LET`.
    statement: usize,
    read: usize,
    columns: Vec<String>,
}

impl Drafting<'_> {
    /// Reads columns of the row that a statement writes.
    pub(super) fn read_row(
        &mut self,
        statement: usize,
        columns: &[&str],
    ) -> Result<(), InvalidRequest> {
        let (table, given) = (&self.keys[statement].table, self.keys[statement].parts.len());
        if let Some(column) = table.partition_key.iter().chain(&table.clustering).nth(given) {
            let why = format!(
                "the statement's row is not known in advance: give {column} one value with ="
            );
            return Err(InvalidRequest::new(why));
        }
        self.read_by_key(statement, columns, given, "");
        Ok(())
    }

    /// Reads static columns of a statement's partition, whether it has rows or not.
    pub(super) fn read_static_row(&mut self, statement: usize, columns: &[&str]) {
        let given = self.keys[statement].table.partition_key.len();
        self.read_by_key(statement, columns, given, " LIMIT 1");
    }

    fn read_by_key(&mut self, statement: usize, columns: &[&str], given: usize, end: &str) {
        let table = &self.keys[statement].table;
        let key = table.partition_key.iter().chain(&table.clustering).take(given);
        let key: Vec<String> = key.map(|column| format!("{} = ?", quoted_name(column))).collect();
        let columns: Vec<String> = columns.iter().map(|column| quoted_name(column)).collect();
        let text = format!(
            "SELECT {} FROM {}.{} WHERE {}{end}",
            columns.join(", "),
            quoted_name(&table.keyspace),
            quoted_name(&table.name),
            key.join(" AND ")
        );
        let values = (0..given).map(|part| Source::Key { statement, part }).collect();
        self.reads.push(Standalone { text: text.into(), values });
    }

    /// The read and place of a static column of the row of a `LET`. None if the `LET` itself finds
    /// the column whether there are rows or not, and if it filters rows by their values.
    pub(super) fn static_column(
        &mut self,
        statement: usize,
        column: &str,
        table: &Arc<Table>,
    ) -> Option<(usize, Place)> {
        let transaction = self.transaction;
        let Statement::Select(select) = &transaction.statements.get(statement)?.statement else {
            return None;
        };
        if !table.is_static(column) || !is_by_clustering(select, table) {
            return None;
        }
        let found = self.static_reads.iter().position(|read| read.statement == statement);
        let found = found.unwrap_or_else(|| {
            let row = transaction.lets.get(statement);
            let named = transaction.references().filter(|reference| Some(&reference.row) == row);
            let mut columns: Vec<String> =
                named.filter_map(|reference| reference.column.clone()).collect();
            columns.retain(|column| table.is_static(column));
            columns.sort();
            columns.dedup();
            let read = self.reads.len();
            let names: Vec<&str> = columns.iter().map(String::as_str).collect();
            self.read_static_row(statement, &names);
            self.static_reads.push(StaticRead { statement, read, columns });
            self.static_reads.len() - 1
        });
        let StaticRead { read, columns, .. } = &self.static_reads[found];
        Some((*read, Place::At(columns.iter().position(|name| name == column)?)))
    }
}

/// True if a SELECT names rows by clustering columns, and by nothing else than the key.
fn is_by_clustering(select: &Select, table: &Table) -> bool {
    let is_custom = |relation: &Relation| matches!(relation, Relation::Custom { .. });
    if select.relations.iter().any(is_custom) {
        return false;
    }
    let columns: Vec<&String> = select.relations.iter().flat_map(columns_of).collect();
    let is_clustering = |column: &&String| table.clustering.contains(column);
    columns.iter().any(is_clustering)
        && columns
            .iter()
            .all(|column| is_clustering(column) || table.partition_key.contains(column))
}

/// The columns that a relation restricts.
fn columns_of(relation: &Relation) -> &[String] {
    match relation {
        Relation::Column { column, .. }
        | Relation::In { column, .. }
        | Relation::InMarker { column, .. }
        | Relation::Element { column, .. }
        | Relation::IsNotNull(column) => std::slice::from_ref(column),
        Relation::Token { columns, .. }
        | Relation::Tuple { columns, .. }
        | Relation::TupleIn { columns, .. }
        | Relation::TupleInMarker { columns, .. } => columns,
        Relation::Custom { .. } => &[],
    }
}
