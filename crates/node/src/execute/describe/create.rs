//! Keyspaces, types, tables and indexes as the statements that create them, exactly as Cassandra
//! 5.0 writes them.

use std::collections::BTreeMap;

use shunt_language::ast::{NativeType, quoted_name, quoted_string, quoted_type_name};
use shunt_language::types::UserType;
use shunt_language::values::{float_text, literal};

use crate::schema::{
    Column, ColumnKind, DroppedColumn, Durability, Index, Keyspace, Table, TableOptions,
};
use crate::system::is_virtual;

/// Options in display order, which is almost alphabetical.
const OPTIONS: [&str; 19] = [
    "additional_write_policy",
    "allow_auto_snapshot",
    "bloom_filter_fp_chance",
    "caching",
    "cdc",
    "comment",
    "compaction",
    "compression",
    "memtable",
    "crc_check_chance",
    "default_time_to_live",
    "extensions",
    "gc_grace_seconds",
    "incremental_backups",
    "max_index_interval",
    "memtable_flush_period_in_ms",
    "min_index_interval",
    "read_repair",
    "speculative_retry",
];

/// CREATE KEYSPACE.
pub(super) fn keyspace(keyspace: &Keyspace) -> String {
    let name = quoted_name(&keyspace.name);
    if is_virtual(&keyspace.name) {
        return format!(
            "/*\nWarning: Keyspace {name} is a virtual keyspace and cannot be recreated with CQL.\n\
             Structure, for reference:\nVIRTUAL KEYSPACE {name};\n*/"
        );
    }
    let durable = keyspace.durable_writes;
    // Cassandra has no such property, but recreating the keyspace must not lose it.
    let durability = match keyspace.durability {
        implied if implied == Durability::of(keyspace.durable_writes) => "",
        Durability::Periodic => " AND durability = 'periodic'",
        Durability::Batch => " AND durability = 'batch'",
    };
    let replication = replication(&keyspace.replication);
    format!(
        "CREATE KEYSPACE {name} WITH replication = {replication}  AND durable_writes = {durable}{durability};"
    )
}

/// The class comes first, without its package.
fn replication(settings: &BTreeMap<String, String>) -> String {
    let mut parts = Vec::new();
    if let Some(class) = settings.get("class") {
        let class = class.strip_prefix("org.apache.cassandra.locator.").unwrap_or(class);
        parts.push(format!("'class': {}", quoted_string(class)));
    }
    for (name, value) in settings.iter().filter(|(name, _)| *name != "class") {
        parts.push(format!("{}: {}", quoted_string(name), quoted_string(value)));
    }
    format!("{{{}}}", parts.join(", "))
}

/// CREATE TYPE.
pub(super) fn user_type(definition: &UserType) -> String {
    let fields = definition.fields.iter();
    let fields: Vec<_> =
        fields.map(|(name, cql_type)| format!("    {} {cql_type}", quoted_name(name))).collect();
    let name =
        format!("{}.{}", quoted_name(&definition.keyspace), quoted_type_name(&definition.name));
    format!("CREATE TYPE {name} (\n{}\n);", fields.join(",\n"))
}

/// CREATE TABLE. `with_internals` adds the table's id, and dropped columns with the statements that
/// dropped them, so that a table created from it can read data of an old table.
pub(super) fn table(table: &Table, with_internals: bool) -> String {
    let name = format!("{}.{}", quoted_name(&table.keyspace), quoted_name(&table.name));
    let dropped: Vec<&DroppedColumn> = if with_internals { dropped(table) } else { Vec::new() };
    let lines = column_lines(table, &dropped).join(",\n");
    let mut options = Vec::new();
    if with_internals {
        options.push(format!("ID = {}", literal(&NativeType::Uuid.into(), &table.id)));
    }
    if !table.clustering().is_empty() {
        options.push(clustering_order(table));
    }
    if is_virtual(&table.keyspace) {
        options.push(format!("comment = {}", quoted_string(&table.options.comment)));
        let options = options.join("\n    AND ");
        return format!(
            "/*\nWarning: Table {name} is a virtual table and cannot be recreated with CQL.\n\
             Structure, for reference:\nVIRTUAL TABLE {name} (\n{lines}\n) WITH {options};\n*/"
        );
    }
    let shown =
        |option: &&str| Some(format!("{option} = {}", option_value(&table.options, option)?));
    options.extend(OPTIONS.iter().filter_map(shown));
    let mut text =
        format!("CREATE TABLE {name} (\n{lines}\n) WITH {};", options.join("\n    AND "));
    for dropped in dropped {
        let column = quoted_name(&dropped.column.name);
        text.push_str(&format!(
            "\nALTER TABLE {name} DROP {column} USING TIMESTAMP {};",
            dropped.dropped_us
        ));
        if let Some(again) = table.column(&dropped.column.name) {
            text.push_str(&format!("\nALTER TABLE {name} ADD {};", definition(again)));
        }
    }
    text
}

/// CREATE INDEX.
pub(super) fn index(table: &Table, index: &Index) -> String {
    let Index { name, class, options, .. } = index;
    let name = quoted_name(name);
    let place = format!(
        "{}.{} ({})",
        quoted_name(&table.keyspace),
        quoted_name(&table.name),
        index.target_text()
    );
    let Some(class) = class else { return format!("CREATE INDEX {name} ON {place};") };
    let options = if options.is_empty() {
        String::new()
    } else {
        format!(" WITH OPTIONS = {}", map(options, false))
    };
    format!("CREATE CUSTOM INDEX {name} ON {place} USING {}{options};", quoted_string(class))
}

/// Dropped columns. A column whose name now belongs to the primary key cannot be shown.
fn dropped(table: &Table) -> Vec<&DroppedColumn> {
    let taken = |name: &str| table.column(name).is_some_and(Column::is_primary_key);
    table.dropped.iter().filter(|dropped| !taken(&dropped.column.name)).collect()
}

/// Writes the lines between the parentheses. A column that was dropped and added again is shown as
/// before the drop; the following statements do the rest.
fn column_lines(table: &Table, dropped: &[&DroppedColumn]) -> Vec<String> {
    let alone = table.partition_key().len() == 1 && table.clustering().is_empty();
    let was_dropped =
        |column: &Column| dropped.iter().any(|dropped| dropped.column.name == column.name);
    let shown = columns(table).into_iter().filter(|column| !was_dropped(column));
    let mut lines: Vec<String> = shown
        .map(|column| match column.kind {
            ColumnKind::PartitionKey if alone => format!("    {} PRIMARY KEY", definition(column)),
            _ => format!("    {}", definition(column)),
        })
        .collect();
    lines.extend(dropped.iter().map(|dropped| format!("    {}", definition(&dropped.column))));
    if !alone {
        lines.push(format!("    PRIMARY KEY ({})", primary_key(table)));
    }
    lines
}

/// Columns of one kind, multi-cell ones last.
fn columns(table: &Table) -> Vec<&Column> {
    let mut columns: Vec<&Column> = table.columns.iter().collect();
    columns.sort_by_key(|column| (column.kind, column.position, column.is_multi_cell()));
    columns
}

fn definition(column: &Column) -> String {
    let is_static = if column.kind == ColumnKind::Static { " static" } else { "" };
    format!("{} {}{is_static}", quoted_name(&column.name), column.cql_type)
}

fn primary_key(table: &Table) -> String {
    let names = |columns: &[Column]| {
        columns.iter().map(|column| quoted_name(&column.name)).collect::<Vec<_>>()
    };
    let partition_key = names(table.partition_key());
    let partition_key = match &partition_key[..] {
        [only] => only.clone(),
        several => format!("({})", several.join(", ")),
    };
    [vec![partition_key], names(table.clustering())].concat().join(", ")
}

fn clustering_order(table: &Table) -> String {
    let order = |column: &Column| {
        format!("{} {}", quoted_name(&column.name), if column.descending { "DESC" } else { "ASC" })
    };
    let orders: Vec<_> = table.clustering().iter().map(order).collect();
    format!("CLUSTERING ORDER BY ({})", orders.join(", "))
}

fn option_value(options: &TableOptions, name: &str) -> Option<String> {
    match name {
        "comment" => return Some(quoted_string(&options.comment)),
        "default_time_to_live" => return Some(options.default_time_to_live.to_string()),
        "gc_grace_seconds" => return Some(options.gc_grace_seconds.to_string()),
        _ => {}
    }
    let text = options.texts.get(name).map(|text| quoted_string(text));
    let flag = || options.flags.get(name).map(bool::to_string);
    let settings = || options.maps.get(name).map(|settings| map(settings, name == "extensions"));
    let number = || {
        options.numbers.get(name).map(|number| match name {
            "bloom_filter_fp_chance" | "crc_check_chance" => float_text(*number, false),
            _ => (*number as i64).to_string(),
        })
    };
    text.or_else(flag).or_else(settings).or_else(number)
}

/// A map of texts; `bytes` if its values are blobs, which are not quoted.
fn map(settings: &BTreeMap<String, String>, bytes: bool) -> String {
    let value = |value: &str| {
        let digits = value
            .strip_prefix("0x")
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        if bytes && digits.is_some() { value.to_owned() } else { quoted_string(value) }
    };
    let pairs: Vec<_> = settings
        .iter()
        .map(|(key, given)| format!("{}: {}", quoted_string(key), value(given)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}
