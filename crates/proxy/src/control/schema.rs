//! Reads the part of the schema that routing and retries need.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use shunt_topology::schema::{Cells, ColumnKind};
use shunt_topology::{Column, Keyspace, Replication, Table};
use shunt_wire::cql::message::{Consistency, error_code};
use tracing::warn;

use super::connection::Connection;
use super::error::ControlError;
use super::state::TableName;
use super::tables::{self, Row};
use crate::fault::is_right_missing;
use shunt_transactions::catalogue::modes::{self as routed, TableModes};
use shunt_transactions::catalogue::rules;

const KEYSPACES: &str = "SELECT keyspace_name, replication FROM system_schema.keyspaces";
const COLUMNS: &str = "SELECT keyspace_name, table_name, column_name, kind, position, type FROM system_schema.columns";
const TABLES: &str =
    "SELECT keyspace_name, table_name, default_time_to_live FROM system_schema.tables";

/// Keyspaces and tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schema {
    pub(super) keyspaces: Vec<Keyspace>,
    pub(super) tables: Vec<Table>,
    /// Tables whose statements are transactions.
    pub(super) modes: TableModes,
}

/// Reads the schema from `system_schema`. Empty with servers that have no such keyspace (before
/// Cassandra 3.0): queries then go to any node. `with_modes`: read the table of modes of this
/// proxy's fleet too.
pub(super) async fn read(
    connection: &mut Connection,
    limit: Duration,
    with_modes: bool,
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
    let modes =
        if with_modes { read_modes(connection, limit).await? } else { TableModes::default() };
    Ok(Schema {
        keyspaces: keyspaces.iter().filter_map(keyspace).collect(),
        tables: group(&columns, &tables),
        modes,
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

/// Reads modes and rules before clients are served, so that no write bypasses transactions or a
/// rule. If only one replica answers, or none, or if the node denies a table, the modes are in
/// doubt, and no table is served by them.
async fn read_modes(
    connection: &mut Connection,
    limit: Duration,
) -> Result<TableModes, ControlError> {
    let mut modes = TableModes::default();
    let of_modes =
        read_own(connection, routed::QUESTION, "shunt_meta.transactional", limit).await?;
    let of_rules = read_own(connection, rules::QUESTION, "shunt.guards", limit).await?;
    if of_modes.is_in_doubt || of_rules.is_in_doubt {
        modes.set_in_doubt();
    }
    for row in &of_modes.rows {
        if let (Some(keyspace), Some(table), Some(mode)) =
            (row.text("keyspace_name"), row.text("table_name"), row.text("mode"))
        {
            modes.add(keyspace, table, mode);
        }
    }
    for row in &of_rules.rows {
        let Some(table_name) = row.text("table_name") else { continue };
        let is_fast = row.bytes("fast") == Some(&[1]);
        modes.rules.add(&rules::Row {
            table_name,
            lock: row.text("lock"),
            is_fast,
            mode: row.text("mode"),
        });
    }
    Ok(modes)
}

/// Rows of one of the fleet's own tables.
struct OwnRows {
    rows: Vec<Row>,
    /// True if no quorum answered: these are one replica's rows, or none, or a node knows no such
    /// table.
    is_in_doubt: bool,
}

/// Reads one of the fleet's own tables. If no quorum answers, the proxy begins with one replica's
/// answer, and without any if no replica answers: the cores read again at the fleet's level, which
/// is not known here.
async fn read_own(
    connection: &mut Connection,
    question: &str,
    table: &str,
    limit: Duration,
) -> Result<OwnRows, ControlError> {
    // A fleet of an older version, or none yet, has no such table; a role may lack the right to
    // read it.
    let may_have_rows = |error: &ControlError| match error {
        ControlError::Node { code, message } => {
            *code != error_code::INVALID && !is_right_missing(*code, message)
        }
        _ => true,
    };
    let (mut read, mut is_in_doubt) =
        (tables::read_at(connection, question, Consistency::QUORUM, limit).await, false);
    if read.as_ref().is_err_and(may_have_rows) {
        (read, is_in_doubt) =
            (tables::read_at(connection, question, Consistency::ONE, limit).await, true);
    }
    match read {
        Ok(rows) => Ok(OwnRows { rows, is_in_doubt }),
        Err(error) if may_have_rows(&error) => match error {
            ControlError::Node { code, message } => {
                warn!(code, message, "no replica of {table} answers");
                Ok(OwnRows { rows: Vec::new(), is_in_doubt })
            }
            lost => Err(lost),
        },
        Err(error) => {
            // Without the right this proxy carries out no transaction.
            if let ControlError::Node { code: error_code::UNAUTHORIZED, message: why } = &error {
                warn!(
                    why,
                    "this proxy's role may not read {table}: statements on tables with a mode or \
                    a rule bypass transactions here"
                );
            }
            // A node that denies the table may have missed the schema.
            let is_in_doubt = matches!(error, ControlError::Node { code: error_code::INVALID, .. });
            Ok(OwnRows { rows: Vec::new(), is_in_doubt })
        }
    }
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
