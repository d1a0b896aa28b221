//! Reads the part of the schema that routing and retries need.

use std::collections::{BTreeMap, HashSet};
use std::panic::resume_unwind;
use std::time::Duration;

use shunt_topology::schema::{Cells, ColumnKind};
use shunt_topology::{Column, Keyspace, Replication, Table};
use shunt_wire::cql::message::error_code;
use shunt_wire::printable::printable_to;
use tokio::task::spawn_blocking;

use super::connection::Connection;
use super::error::ControlError;
use super::state::TableName;
use super::tables::{self, Reading, Row, read_some};
use crate::limits;

const KEYSPACES: &str = "SELECT keyspace_name, replication FROM system_schema.keyspaces";
const COLUMNS: &str = "SELECT keyspace_name, table_name, column_name, kind, position, type FROM system_schema.columns";
const TABLES: &str =
    "SELECT keyspace_name, table_name, default_time_to_live FROM system_schema.tables";

/// Bytes of rows about columns that one read of the schema takes: 200,000 columns. A node may name
/// any number of them.
const COLUMNS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of rows about keyspaces, and of those about tables.
const OTHERS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Keyspaces and tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schema {
    pub(super) keyspaces: Vec<Keyspace>,
    pub(super) tables: Vec<Table>,
    /// Bounds that the schema exceeds, and what that means.
    pub(super) excess: Vec<String>,
}

/// Reads the schema from `system_schema`. Empty with servers that have no such keyspace (before
/// Cassandra 3.0): queries then go to any node.
pub(super) async fn read(
    connection: &mut Connection,
    limit: Duration,
) -> Result<Schema, ControlError> {
    let keyspaces = match read_some(connection, KEYSPACES, OTHERS_BYTES_MAX, limit).await {
        Err(ControlError::Node { code: error_code::INVALID, .. }) => return Ok(Schema::default()),
        outcome => outcome?,
    };
    let columns = read_some(connection, COLUMNS, COLUMNS_BYTES_MAX, limit).await?;
    // A missing table has rows that may expire, for all that is known.
    let tables = match read_some(connection, TABLES, OTHERS_BYTES_MAX, limit).await {
        Err(ControlError::Node { code: error_code::INVALID, .. }) => {
            Reading { rows: Vec::new(), is_cut: false }
        }
        outcome => outcome?,
    };
    match spawn_blocking(move || Schema::of(keyspaces, columns, &tables)).await {
        Ok(schema) => Ok(schema),
        Err(error) => resume_unwind(error.into_panic()),
    }
}

impl Schema {
    /// The schema of these rows. Columns come table by table, so that only the last table can lack
    /// some if rows were left out; it is left out too.
    fn of(keyspaces: Reading, mut columns: Reading, tables: &Reading) -> Schema {
        let mut excess = Vec::new();
        let mib = |bytes: usize| bytes >> 20;
        if keyspaces.is_cut {
            excess.push(format!(
                "there are more than {} MiB about keyspaces: queries for the others go to any node",
                mib(OTHERS_BYTES_MAX)
            ));
        }
        if columns.is_cut {
            let named = |row: &Row| {
                let names = ["keyspace_name", "table_name"];
                names.map(|name| row.text(name).unwrap_or_default().to_owned())
            };
            let last = columns.rows.last().map(named).unwrap_or_default();
            columns.rows.retain(|row| named(row) != last);
            let last = last.map(|name| printable_to(&name, limits::NAME_SHOWN_BYTES_MAX)).join(".");
            excess.push(format!(
                "there are more than {} MiB about columns: from table {last} on, in the order of \
                 system_schema.columns, keys are not known: statements that are not prepared go to \
                 any node, and writes are not repeated",
                mib(COLUMNS_BYTES_MAX)
            ));
        }
        if tables.is_cut {
            excess.push(format!(
                "there are more than {} MiB about tables: rows of the others count as rows that may \
                 expire",
                mib(OTHERS_BYTES_MAX)
            ));
        }
        let tables = group(&columns.rows, &tables.rows);
        let keyspaces = keyspaces.rows.iter().filter_map(keyspace).collect();
        Schema { keyspaces, tables, excess }
    }
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

#[cfg(test)]
mod tests {
    use std::iter::once;

    use super::*;

    fn reading(rows: Vec<Row>, is_cut: bool) -> Reading {
        Reading { rows, is_cut }
    }

    fn column(table: &str, name: &str, kind: &str) -> Row {
        let position = if kind == "partition_key" { 0 } else { -1_i32 };
        Row::of(&[
            ("keyspace_name", b"ks"),
            ("table_name", table.as_bytes()),
            ("column_name", name.as_bytes()),
            ("kind", kind.as_bytes()),
            ("position", &position.to_be_bytes()),
            ("type", b"int"),
        ])
    }

    #[test]
    fn a_schema_beyond_the_bound_lacks_tables_and_says_which() {
        let whole = ["a", "b"]
            .into_iter()
            .flat_map(|table| [column(table, "k", "partition_key"), column(table, "v", "regular")]);
        let rows: Vec<Row> = whole.chain(once(column("c", "k", "partition_key"))).collect();
        let schema = |is_cut| {
            let columns = reading(rows.clone(), is_cut);
            Schema::of(reading(Vec::new(), is_cut), columns, &reading(Vec::new(), is_cut))
        };
        let names = |schema: &Schema| {
            schema.tables.iter().map(|table| table.name.clone()).collect::<Vec<_>>()
        };
        let (cut, all) = (schema(true), schema(false));
        assert_eq!(
            (names(&cut), names(&all)),
            (vec!["a".into(), "b".into()], vec!["a".into(), "b".into(), "c".into()])
        );
        assert_eq!((cut.excess.len(), all.excess.len()), (3, 0));
        assert!(cut.excess[1].contains("64 MiB about columns: from table ks.c on"), "{cut:?}");
    }
}
