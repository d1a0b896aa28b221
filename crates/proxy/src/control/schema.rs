//! Reads the part of the schema that routing and retries need.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use shunt_topology::schema::{Cells, ColumnKind};
use shunt_topology::{Column, Keyspace, Replication, Table};
use shunt_wire::cql::message::error_code;

use super::connection::Connection;
use super::error::ControlError;
use super::state::TableName;
use super::tables::{self, Row};

const KEYSPACES: &str = "SELECT keyspace_name, replication FROM system_schema.keyspaces";
const COLUMNS: &str = "SELECT keyspace_name, table_name, column_name, kind, position, type FROM system_schema.columns";
const TABLES: &str =
    "SELECT keyspace_name, table_name, default_time_to_live FROM system_schema.tables";

/// Keyspaces and tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schema {
    pub(super) keyspaces: Vec<Keyspace>,
    pub(super) tables: Vec<Table>,
}

/// Reads the schema from `system_schema`. Empty with servers that have no such keyspace (before
/// Cassandra 3.0): queries then go to any node.
pub(super) async fn read(
    connection: &mut Connection,
    limit: Duration,
) -> Result<Schema, ControlError> {
    let keyspaces = match tables::read(connection, KEYSPACES, limit).await {
        Err(ControlError::Node { code: error_code::INVALID, .. }) => return Ok(Schema::default()),
        outcome => outcome?,
    };
    let columns = tables::read(connection, COLUMNS, limit).await?;
    // A missing table has rows that may expire, for all that is known.
    let tables = match tables::read(connection, TABLES, limit).await {
        Err(ControlError::Node { code: error_code::INVALID, .. }) => Vec::new(),
        outcome => outcome?,
    };
    Ok(Schema {
        keyspaces: keyspaces.iter().filter_map(keyspace).collect(),
        tables: group(&columns, &tables),
    })
}

/// Reads one table again, or a new one, with its keyspace if that is new. True if anything changed.
pub(super) async fn read_table(
    connection: &mut Connection,
    limit: Duration,
    known: &mut Schema,
    name: &TableName,
) -> Result<bool, ControlError> {
    let quoted = |text: &str| text.replace('\'', "''");
    let of_keyspace = format!(" WHERE keyspace_name = '{}'", quoted(&name.keyspace));
    let of_table = format!("{of_keyspace} AND table_name = '{}'", quoted(&name.table));
    let keyspaces = known.keyspaces.len();
    if !known.keyspaces.iter().any(|keyspace| keyspace.name == name.keyspace) {
        let rows = tables::read(connection, &format!("{KEYSPACES}{of_keyspace}"), limit).await?;
        known
            .keyspaces
            .extend(rows.iter().filter_map(keyspace).filter(|one| one.name == name.keyspace));
    }
    let columns = tables::read(connection, &format!("{COLUMNS}{of_table}"), limit).await?;
    let tables = tables::read(connection, &format!("{TABLES}{of_table}"), limit).await?;
    let key = |table: &Table| (table.keyspace.clone(), table.name.clone());
    let wanted = (name.keyspace.clone(), name.table.clone());
    let read = group(&columns, &tables).into_iter().find(|table| key(table) == wanted);
    // Keep the order of a full read, so that the next one finds nothing new.
    let place = known.tables.binary_search_by_key(&wanted, key);
    let is_new = match (place, read) {
        (Ok(place), Some(table)) => {
            let is_new = known.tables[place] != table;
            known.tables[place] = table;
            is_new
        }
        (Err(place), Some(table)) => {
            known.tables.insert(place, table);
            true
        }
        (Ok(place), None) => {
            known.tables.remove(place);
            true
        }
        (Err(_), None) => false,
    };
    Ok(is_new || known.keyspaces.len() > keyspaces)
}

fn keyspace(row: &Row) -> Option<Keyspace> {
    let replication = Replication::parse(row.text_map("replication"));
    Some(Keyspace { name: row.text("keyspace_name")?.to_owned(), replication })
}

/// Tables (and materialised views) from the rows of their columns and their own. A table with an
/// unreadable row is left out.
fn group(columns: &[Row], tables: &[Row]) -> Vec<Table> {
    #[derive(Default)]
    struct Parts<'a> {
        key: Vec<(i32, Column)>,
        kinds: Vec<(&'a str, ColumnKind)>,
    }
    let name = |row: &'_ Row| {
        Some((row.text("keyspace_name")?.to_owned(), row.text("table_name")?.to_owned()))
    };
    let kept: HashSet<(String, String)> = tables
        .iter()
        .filter(|row| row.int("default_time_to_live") == Some(0))
        .filter_map(name)
        .collect();
    let mut tables: BTreeMap<(&str, &str), Parts<'_>> = BTreeMap::new();
    for row in columns {
        let (Some(keyspace), Some(table)) = (row.text("keyspace_name"), row.text("table_name"))
        else {
            continue;
        };
        let (Some(name), Some(cql_type)) = (row.text("column_name"), row.text("type")) else {
            continue;
        };
        let parts = tables.entry((keyspace, table)).or_default();
        parts.kinds.push((name, ColumnKind::of(cql_type)));
        if row.text("kind") == Some("partition_key") {
            let column = Column::new(name, cql_type);
            parts.key.push((row.int("position").unwrap_or_default(), column));
        }
    }
    let table = |((keyspace, name), mut parts): ((&str, &str), Parts<'_>)| {
        parts.key.sort_by_key(|(position, _)| *position);
        let in_order =
            parts.key.iter().map(|(position, _)| *position).eq(0..parts.key.len() as i32);
        let partition_key = parts.key.into_iter().map(|(_, column)| column).collect();
        let table = (keyspace.to_owned(), name.to_owned());
        let cells = Cells::new(parts.kinds, !kept.contains(&table));
        let (keyspace, name) = table;
        in_order.then_some(Table { keyspace, name, partition_key, cells })
    };
    tables.into_iter().filter_map(table).collect()
}
