//! `system_schema`: the source of drivers' metadata.

use std::collections::BTreeMap;

use shunt_language::values::split;

use super::values::RowMaker;
use crate::schema::{Column, ColumnKind, Index, Keyspace, Schema, Table};

/// Rows of one of these tables, about keyspaces that are `shown`.
pub(super) fn rows(name: &str, schema: &Schema, shown: impl Fn(&str) -> bool) -> Vec<RowMaker> {
    let keyspaces = || schema.keyspaces.values().filter(|keyspace| shown(&keyspace.name));
    let tables = || keyspaces().flat_map(|keyspace| keyspace.tables.values());
    match name {
        "keyspaces" => keyspaces().map(|keyspace| keyspace_row(keyspace)).collect(),
        "tables" => tables().map(|table| table_row(table)).collect(),
        "columns" => tables()
            .flat_map(|table| table.columns.iter().map(|column| column_row(table, column)))
            .collect(),
        "dropped_columns" => tables().flat_map(|table| dropped_rows(table)).collect(),
        "indexes" => tables()
            .flat_map(|table| table.indexes.iter().map(|index| index_row(table, index)))
            .collect(),
        "types" => keyspaces().flat_map(|keyspace| type_rows(keyspace)).collect(),
        _ => Vec::new(),
    }
}

fn keyspace_row(keyspace: &Keyspace) -> RowMaker {
    RowMaker::default()
        .text("keyspace_name", &keyspace.name)
        .boolean("durable_writes", keyspace.durable_writes)
        .map("replication", &keyspace.replication)
}

fn table_row(table: &Table) -> RowMaker {
    let options = &table.options;
    let flags: &[&str] = if table.is_counter { &["compound", "counter"] } else { &["compound"] };
    let mut row = RowMaker::default()
        .text("keyspace_name", &table.keyspace)
        .text("table_name", &table.name)
        .uuid("id", &table.id)
        .text("comment", &options.comment)
        .int("default_time_to_live", options.default_time_to_live as i32)
        .int("gc_grace_seconds", options.gc_grace_seconds as i32)
        .texts("flags", flags.iter().copied())
        .double("dclocal_read_repair_chance", 0.0)
        .double("read_repair_chance", 0.0);
    for (name, value) in &options.numbers {
        row = match *name {
            "bloom_filter_fp_chance" | "crc_check_chance" => row.double(name, *value),
            _ => row.int(name, *value as i32),
        };
    }
    for (name, value) in &options.texts {
        // A table with the default memtable shows none.
        if !(*name == "memtable" && value == "default") {
            row = row.text(name, value);
        }
    }
    for (name, value) in &options.maps {
        row = if *name == "extensions" {
            row.map(name, &BTreeMap::new())
        } else {
            row.map(name, value)
        };
    }
    // Hidden unless they differ from the defaults.
    for (name, value) in options.flags.iter().filter(|(name, _)| **name != "cdc") {
        row = row.boolean(name, *value);
    }
    row
}

fn kind(column: &Column) -> &'static str {
    match column.kind {
        ColumnKind::PartitionKey => "partition_key",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

fn column_row(table: &Table, column: &Column) -> RowMaker {
    let order = match (column.kind, column.descending) {
        (ColumnKind::Clustering, true) => "desc",
        (ColumnKind::Clustering, false) => "asc",
        _ => "none",
    };
    let position = if column.is_primary_key() { column.position as i32 } else { -1 };
    RowMaker::default()
        .text("keyspace_name", &table.keyspace)
        .text("table_name", &table.name)
        .text("column_name", &column.name)
        .text("clustering_order", order)
        .blob("column_name_bytes", column.name.as_bytes())
        .text("kind", kind(column))
        .int("position", position)
        .text("type", &column.cql_type.to_string())
}

fn index_row(table: &Table, index: &Index) -> RowMaker {
    let mut options = index.options.clone();
    options.insert("target".to_owned(), index.target_text());
    options.extend(index.class.clone().map(|class| ("class_name".to_owned(), class)));
    RowMaker::default()
        .text("keyspace_name", &table.keyspace)
        .text("table_name", &table.name)
        .text("index_name", &index.name)
        .text("kind", if index.is_storage_attached() { "CUSTOM" } else { "COMPOSITES" })
        .map("options", &options)
}

/// Rows of `system.IndexInfo`, the built indexes: all, as there is nothing to build. The column
/// `table_name` has the name of the keyspace.
pub(super) fn built_indexes(schema: &Schema) -> Vec<RowMaker> {
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let row = |(table, index): (&Table, &Index)| {
        RowMaker::default().text("table_name", &table.keyspace).text("index_name", &index.name)
    };
    tables.flat_map(|table| table.indexes.iter().map(|index| row((table, index)))).collect()
}

fn dropped_rows(table: &Table) -> Vec<RowMaker> {
    let row = |dropped: &crate::schema::DroppedColumn| {
        RowMaker::default()
            .text("keyspace_name", &table.keyspace)
            .text("table_name", &table.name)
            .text("column_name", &dropped.column.name)
            .bigint("dropped_time", dropped.dropped_us / 1000)
            .text("kind", kind(&dropped.column))
            .text("type", &dropped.column.cql_type.to_string())
    };
    table.dropped.iter().map(row).collect()
}

fn type_rows(keyspace: &Keyspace) -> Vec<RowMaker> {
    let row = |definition: &std::sync::Arc<shunt_language::types::UserType>| {
        let types: Vec<String> =
            definition.fields.iter().map(|(_, field)| field.to_string()).collect();
        RowMaker::default()
            .text("keyspace_name", &keyspace.name)
            .text("type_name", &definition.name)
            .texts("field_names", definition.fields.iter().map(|(name, _)| name.as_str()))
            .blob("field_types", &split::join_collection(types.len(), &types))
    };
    keyspace.types.values().map(row).collect()
}
