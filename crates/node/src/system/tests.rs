//! The system tables: valid definitions, and rows that match their tables' types.

#![allow(clippy::unwrap_used, reason = "a test that cannot get what it needs fails")]

use std::net::SocketAddr;

use proptest::prelude::*;
use shunt_language::CqlType;
use shunt_language::values::{literal, plain_text, validate};

use super::{keyspaces, rows};
use crate::cluster::ClusterInfo;
use crate::schema::change::SYSTEM_KEYSPACES;
use crate::schema::tests::{after, schema_of, statements};
use crate::schema::{Schema, Table};

fn with_system(mut schema: Schema) -> Schema {
    for keyspace in keyspaces().unwrap() {
        schema.keyspaces.insert(keyspace.name.clone(), keyspace.into());
    }
    schema
}

fn cluster() -> ClusterInfo {
    let addresses: Vec<SocketAddr> =
        ["127.0.0.1:9042", "127.0.0.1:9043", "[::1]:9044"].map(|text| text.parse().unwrap()).into();
    ClusterInfo::new("test cluster", &addresses)
}

fn value_text(cql_type: &CqlType, value: &[u8]) -> String {
    match cql_type {
        CqlType::Native(native) => plain_text(*native, value).unwrap(),
        other => literal(other, value),
    }
}

/// The rows of a table as texts, `-` for null, columns as given.
fn shown(
    schema: &Schema,
    keyspace: &str,
    table: &str,
    node: usize,
    columns: &[&str],
) -> Vec<String> {
    let table = schema.table(keyspace, table).unwrap();
    let positions: Vec<_> = columns.iter().map(|column| table.position(column).unwrap()).collect();
    let text = |row: &Vec<Option<Vec<u8>>>, position: usize| match &row[position] {
        Some(value) => value_text(&table.columns[position].cql_type, value),
        None => "-".to_owned(),
    };
    let row = |row: &Vec<Option<Vec<u8>>>| {
        positions.iter().map(|position| text(row, *position)).collect::<Vec<_>>().join(" | ")
    };
    rows(table, schema, &cluster(), node).iter().map(row).collect()
}

/// The user keyspaces' rows of a table in `system_schema`.
fn shown_of_user(schema: &Schema, table: &str, columns: &[&str]) -> Vec<String> {
    let mut found =
        shown(schema, "system_schema", table, 0, &[&["keyspace_name"], columns].concat());
    found.retain(|row| row.starts_with("k |"));
    found.sort();
    found.iter().map(|row| row["k | ".len()..].to_owned()).collect()
}

#[test]
fn all_definitions_are_taken() {
    let keyspaces = keyspaces().unwrap();
    let names: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
    assert_eq!(names, SYSTEM_KEYSPACES);
    let count =
        |name: &str| keyspaces.iter().find(|keyspace| keyspace.name == name).unwrap().tables.len();
    assert_eq!(SYSTEM_KEYSPACES.map(count), [6, 11, 2, 0, 3]);
    let tables = || keyspaces.iter().flat_map(|keyspace| keyspace.tables.values());
    let stored: Vec<_> =
        tables().filter(|table| table.number.is_some()).map(|table| table.name.as_str()).collect();
    assert_eq!(stored, ["events", "sessions"], "no others have rows that somebody wrote");
    let mut ids: Vec<_> = tables().map(|table| table.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), tables().count(), "each has an id of its own");
}

/// Every row has a value or null for each column, a complete key, and values of the right types.
fn assert_valid(table: &Table, schema: &Schema) {
    let rows = rows(table, schema, &cluster(), 1);
    let mut keys = Vec::new();
    for row in rows {
        assert_eq!(row.len(), table.columns.len(), "{}.{}", table.keyspace, table.name);
        for (column, value) in table.columns.iter().zip(&row) {
            let place = || format!("{}.{}.{}", table.keyspace, table.name, column.name);
            match value {
                Some(value) => validate(&column.cql_type, value)
                    .unwrap_or_else(|error| panic!("{}: {}", place(), error.message)),
                None => assert!(!column.is_primary_key(), "{} is null", place()),
            }
        }
        keys.push(row[..table.partition_key_len + table.clustering_len].to_vec());
    }
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "{}.{}: a key that is there twice", table.keyspace, table.name);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_of_their_tables_types(statements in statements()) {
        let schema = with_system(schema_of(&statements));
        for table in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            if SYSTEM_KEYSPACES.contains(&table.keyspace.as_str()) {
                assert_valid(table, &schema);
            }
        }
    }
}

fn sample() -> Schema {
    let statements = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE point (x int, \"Y\" frozen<list<text>>)",
        "CREATE TABLE t (p int, \"Q\" text, c timeuuid, d int, s text static, v frozen<point>, m map<text, int>, old int, \
         PRIMARY KEY ((p, \"Q\"), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'sample' AND cdc = true",
        "ALTER TABLE t DROP old USING TIMESTAMP 1500000000000000",
        "CREATE TABLE counts (p int PRIMARY KEY, n counter)",
    ];
    with_system(after(&Schema::empty(), &statements))
}

#[test]
fn columns() {
    let columns = ["table_name", "column_name", "kind", "position", "clustering_order", "type"];
    assert_eq!(
        shown_of_user(&sample(), "columns", &columns),
        [
            "counts | n | regular | -1 | none | counter",
            "counts | p | partition_key | 0 | none | int",
            "t | Q | partition_key | 1 | none | text",
            "t | c | clustering | 0 | desc | timeuuid",
            "t | d | clustering | 1 | asc | int",
            "t | m | regular | -1 | none | map<text, int>",
            "t | p | partition_key | 0 | none | int",
            "t | s | static | -1 | none | text",
            "t | v | regular | -1 | none | frozen<point>",
        ]
    );
}

#[test]
fn tables() {
    let columns = [
        "table_name",
        "comment",
        "flags",
        "gc_grace_seconds",
        "caching",
        "cdc",
        "bloom_filter_fp_chance",
    ];
    assert_eq!(
        shown_of_user(&sample(), "tables", &columns),
        [
            "counts |  | {'compound', 'counter'} | 864000 | {'keys': 'ALL', 'rows_per_partition': 'NONE'} | - | 0.01",
            "t | sample | {'compound'} | 864000 | {'keys': 'ALL', 'rows_per_partition': 'NONE'} | - | 0.01",
        ]
    );
}

#[test]
fn the_rest_of_a_schema() {
    let schema = sample();
    let replication =
        "{'class': 'org.apache.cassandra.locator.SimpleStrategy', 'replication_factor': '1'}";
    for (table, columns, expected) in [
        ("keyspaces", &["durable_writes", "replication"][..], format!("true | {replication}")),
        (
            "types",
            &["type_name", "field_names", "field_types"],
            "point | ['x', 'Y'] | ['int', 'frozen<list<text>>']".to_owned(),
        ),
        (
            "dropped_columns",
            &["table_name", "column_name", "kind", "type", "dropped_time"],
            "t | old | regular | int | 2017-07-14T02:40:00.000Z".to_owned(),
        ),
    ] {
        assert_eq!(shown_of_user(&schema, table, columns), [expected], "{table}");
    }
    let indexes = [
        "CREATE INDEX ON t (\"v\")",
        "CREATE INDEX a ON t (s) USING 'sai' WITH OPTIONS = {'ascii': 'false'}",
    ];
    let indexed = with_system(crate::schema::tests::after(&schema, &indexes));
    assert_eq!(
        shown_of_user(&indexed, "indexes", &["table_name", "index_name", "kind", "options"]),
        [
            "t | a | CUSTOM | {'ascii': 'false', 'class_name': 'sai', 'target': 's'}",
            "t | t_v_idx | COMPOSITES | {'target': 'v'}"
        ]
    );
    assert_eq!(
        shown(&indexed, "system", "IndexInfo", 0, &["table_name", "index_name"]),
        ["k | a", "k | t_v_idx"]
    );
    for table in ["indexes", "views", "functions", "aggregates", "triggers", "column_masks"] {
        assert!(shown_of_user(&schema, table, &[]).is_empty(), "{table}");
    }
}

/// Drivers merge both: a keyspace in both would appear twice, once with the wrong kind.
#[test]
fn virtual_keyspaces_are_shown_as_such() {
    let schema = sample();
    let names = |keyspace: &str, table: &str| {
        let mut names = shown(&schema, keyspace, table, 0, &["keyspace_name"]);
        names.sort();
        names.dedup();
        names
    };
    let keyspaces = ["system_views", "system_virtual_schema"];
    assert_eq!(names("system_virtual_schema", "keyspaces"), keyspaces);
    assert_eq!(
        names("system_schema", "keyspaces"),
        ["k", "system", "system_schema", "system_traces"]
    );
    for table in ["tables", "columns"] {
        assert_eq!(names("system_virtual_schema", table), ["system_virtual_schema"], "{table}");
        assert!(
            !names("system_schema", table).iter().any(|name| keyspaces.contains(&name.as_str())),
            "{table}"
        );
    }
}

/// Each node shows itself in `local` and the others in `peers`, with each token exactly once.
#[test]
fn a_node_and_its_peers() {
    let schema = sample();
    let columns = ["rpc_address", "data_center", "rack", "release_version"];
    assert_eq!(
        shown(
            &schema,
            "system",
            "local",
            2,
            &[&["key", "cluster_name", "rpc_port"], &columns[..]].concat()
        ),
        ["local | test cluster | 9044 | 0:0:0:0:0:0:0:1 | datacenter1 | rack1 | 5.0.0"]
    );
    assert_eq!(
        shown(&schema, "system", "peers_v2", 1, &["native_address", "native_port", "data_center"]),
        ["127.0.0.1 | 9042 | datacenter1", "0:0:0:0:0:0:0:1 | 9044 | datacenter1"]
    );
    for node in 0..3 {
        let mut versions = shown(&schema, "system", "local", node, &["schema_version"]);
        versions.extend(shown(&schema, "system", "peers_v2", node, &["schema_version"]));
        versions.dedup();
        assert_eq!(versions.len(), 1, "nodes of one process agree");
        let mut ids = shown(&schema, "system", "local", node, &["host_id"]);
        ids.extend(shown(&schema, "system", "peers_v2", node, &["host_id"]));
        ids.sort();
        let known = shown(&schema, "system", "local", 0, &["host_id"]);
        assert_eq!((ids.len(), ids.contains(&known[0])), (3, true));
    }
}

#[test]
fn each_token_is_one_nodes() {
    let schema = sample();
    let tokens = |table: &str, node: usize| -> Vec<String> {
        let sets = shown(&schema, "system", table, node, &["tokens"]);
        let tokens = sets.iter().flat_map(|set| set.trim_matches(['{', '}']).split(", "));
        tokens.map(|token| token.trim_matches('\'').to_owned()).collect()
    };
    let mut all = [tokens("local", 0), tokens("peers_v2", 0)].concat();
    let count = all.len();
    assert!(all.iter().all(|token| token.parse::<i64>().is_ok()), "{all:?}");
    all.sort();
    all.dedup();
    assert_eq!(
        (all.len(), count),
        (count, cluster().nodes.iter().map(|node| node.tokens.len()).sum())
    );
}
