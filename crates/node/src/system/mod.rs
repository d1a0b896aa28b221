//! Tables that show the node's own state: `system`, `system_schema` and others that drivers and
//! cqlsh read.
//!
//! Prepared statements treat them like any other table; only their rows come from memory, recreated
//! for every read, and they are read-only. Tables of `system_traces` are stored like other tables.

mod cluster;
mod definitions;
mod schema_tables;
#[cfg(test)]
mod tests;
pub(crate) mod traces;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use shunt_language::ast::{SchemaStatement, Statement};

use crate::cluster::ClusterInfo;
use crate::schema::{Durability, Keyspace, Schema, Table};

use values::RowMaker;

/// Rows of a system table: for each row the values in the order of the table's columns.
pub(crate) type SystemRows = Vec<Vec<Option<Vec<u8>>>>;

/// The system keyspaces.
///
/// # Errors
/// A definition that the node's grammar refuses, which tests rule out.
pub(crate) fn keyspaces() -> Result<Vec<Keyspace>, String> {
    definitions::KEYSPACES.iter().map(|(name, tables)| keyspace(name, tables)).collect()
}

fn keyspace(name: &str, statements: &[&str]) -> Result<Keyspace, String> {
    let mut keyspace = Keyspace {
        name: name.to_owned(),
        durable_writes: true,
        replication: replication(name),
        durability: Durability::Periodic,
        tables: Default::default(),
        types: Default::default(),
    };
    for (index, text) in statements.iter().enumerate() {
        let parsed = shunt_language::parse(text).map_err(|error| format!("{text}: {error}"))?;
        let Statement::Schema(SchemaStatement::CreateTable(create)) = parsed.statement else {
            return Err(format!("{text}: not CREATE TABLE"));
        };
        let mut id = [0; 16];
        id[..name.len().min(14)].copy_from_slice(&name.as_bytes()[..name.len().min(14)]);
        id[15] = index as u8;
        let number = traces::number(name, index);
        let table = Table::create(&create, name, &Schema::empty(), id, number)
            .map_err(|error| format!("{text}: {error:?}"))?;
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
    }
    Ok(keyspace)
}

/// True if Cassandra shows a keyspace as virtual, one that no statement can create. Drivers read
/// about these in `system_virtual_schema`, about all others in `system_schema`.
pub(crate) fn is_virtual(keyspace: &str) -> bool {
    matches!(keyspace, "system_views" | "system_virtual_schema")
}

/// Traces are spread over the nodes; each node has its own copy of other system data.
fn replication(keyspace: &str) -> BTreeMap<String, String> {
    let class = |name: &str| ("class".to_owned(), format!("org.apache.cassandra.locator.{name}"));
    match keyspace {
        traces::KEYSPACE => {
            [class("SimpleStrategy"), ("replication_factor".to_owned(), "1".to_owned())].into()
        }
        _ => [class("LocalStrategy")].into(),
    }
}

/// Current rows of a system table.
pub(crate) fn rows(
    table: &Table,
    schema: &Schema,
    cluster: &ClusterInfo,
    node: usize,
) -> SystemRows {
    let made = match (table.keyspace.as_str(), table.name.as_str()) {
        ("system", "IndexInfo") => schema_tables::built_indexes(schema),
        ("system", name) => cluster::rows(name, schema, cluster, node),
        ("system_schema", name) => {
            schema_tables::rows(name, schema, |keyspace| !is_virtual(keyspace))
        }
        ("system_virtual_schema", name) => schema_tables::rows(name, schema, is_virtual),
        _ => Vec::new(),
    };
    made.into_iter().map(|row| in_order(table, row)).collect()
}

fn in_order(table: &Table, mut row: RowMaker) -> Vec<Option<Vec<u8>>> {
    table.columns.iter().map(|column| row.0.remove(column.name.as_str())).collect()
}
