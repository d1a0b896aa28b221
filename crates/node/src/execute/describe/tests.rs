//! DESCRIBE: its answer for each target, and that its output recreates the described objects.

#![allow(clippy::unwrap_used, reason = "a test that cannot get what it needs fails")]

mod requests;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use proptest::prelude::*;
use shunt_language::ast::Statement;
use shunt_wire::cql::message::ResultMessage;

use crate::cluster::ClusterInfo;
use crate::error::CqlError;
use crate::schema::change::SYSTEM_KEYSPACES;
use crate::schema::tests::{after, schema_of, statements};
use crate::schema::{Schema, Table};

fn cluster() -> ClusterInfo {
    let addresses: Vec<SocketAddr> =
        ["127.0.0.1:9042", "[::1]:9043"].map(|text| text.parse().unwrap()).into();
    ClusterInfo::new("test", &addresses)
}

/// Names of the columns, and the rows.
type Answer = (Vec<String>, Vec<Vec<Vec<u8>>>);

fn answer(schema: &Schema, text: &str, session: Option<&str>) -> Result<Answer, CqlError> {
    let Statement::Describe(describe) = shunt_language::parse(text)?.statement else {
        panic!("{text}: no DESCRIBE")
    };
    let mut body = Vec::new();
    super::run(&describe, session, schema, &cluster(), &mut body)?;
    let ResultMessage::Rows(rows) = ResultMessage::decode(4, &body).unwrap() else {
        panic!("{text}: no rows")
    };
    for column in rows.metadata.columns() {
        assert_eq!((column.keyspace, column.table), ("system", "describe"), "{text}");
    }
    let columns = rows.metadata.columns().map(|column| column.name.to_owned()).collect();
    let row = |row: shunt_wire::cql::message::Row<'_>| {
        row.values().map(|value| value.unwrap().to_vec()).collect()
    };
    let rows = rows.rows().map(|found| row(found.unwrap())).collect();
    Ok((columns, rows))
}

/// The rows as texts.
fn texts(schema: &Schema, text: &str, session: Option<&str>) -> Vec<Vec<String>> {
    let (columns, rows) =
        answer(schema, text, session).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let expected = ["keyspace_name", "type", "name", "create_statement"];
    assert_eq!(columns, expected[..columns.len()], "{text}");
    let value = |value: Vec<u8>| String::from_utf8(value).unwrap();
    rows.into_iter().map(|row| row.into_iter().map(value).collect()).collect()
}

/// Keyspace, kind and name of each row, marked if there is a statement.
fn listed(schema: &Schema, text: &str, session: Option<&str>) -> Vec<String> {
    let rows = texts(schema, text, session);
    let mark = |row: &Vec<String>| if row.len() == 4 { " +" } else { "" };
    rows.iter().map(|row| format!("{} {} {}{}", row[0], row[1], row[2], mark(row))).collect()
}

/// The one statement in an answer.
fn statement(schema: &Schema, text: &str) -> String {
    let rows = texts(schema, text, Some("k"));
    assert_eq!(rows.len(), 1, "{text}");
    rows[0][3].clone()
}

fn schema() -> Schema {
    let statements = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE z_first (x int, y text)",
        "CREATE TYPE a_second (\"A\" list<frozen<z_first>>, b frozen<tuple<int, z_first>>)",
        "CREATE TABLE b (k int PRIMARY KEY, v text)",
        "CREATE TABLE \"A\" (k1 int, \"K2\" text, c int, d frozen<a_second>, s int static, l list<int>, v text, m int, \
         PRIMARY KEY ((k1, \"K2\"), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)",
        "CREATE TABLE k (k int PRIMARY KEY, n counter) WITH comment = 'it''s' AND bloom_filter_fp_chance = 0.0001",
        "CREATE KEYSPACE \"Other\" WITH replication = {'class': 'NetworkTopologyStrategy', 'a': 2} \
         AND durable_writes = false AND durability = 'batch'",
        "CREATE TABLE \"Other\".t (k int PRIMARY KEY, \"where\" int, v text)",
    ];
    let mut schema = after(&Schema::empty(), &statements);
    for keyspace in crate::system::keyspaces().unwrap() {
        schema.keyspaces.insert(keyspace.name.clone(), keyspace.into());
    }
    schema
}

const OPTIONS: &str = "additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'}
    AND cdc = false
    AND comment = ''
    AND compaction = {'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', 'max_threshold': '32', 'min_threshold': '4'}
    AND compression = {'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}
    AND memtable = 'default'
    AND crc_check_chance = 1.0
    AND default_time_to_live = 0
    AND extensions = {}
    AND gc_grace_seconds = 864000
    AND incremental_backups = true
    AND max_index_interval = 2048
    AND memtable_flush_period_in_ms = 0
    AND min_index_interval = 128
    AND read_repair = 'BLOCKING'
    AND speculative_retry = '99p';";

#[test]
fn lists_of_names() {
    let schema = schema();
    for (text, session, expected) in [
        (
            "DESC KEYSPACES",
            Some("k"),
            &[
                "k keyspace k",
                "\"Other\" keyspace \"Other\"",
                "system keyspace system",
                "system_schema keyspace system_schema",
                "system_traces keyspace system_traces",
                "system_views keyspace system_views",
                "system_virtual_schema keyspace system_virtual_schema",
            ][..],
        ),
        ("DESC TABLES", Some("k"), &["k table \"A\"", "k table b", "k table k"]),
        ("DESC TYPES", Some("k"), &["k type a_second", "k type z_first"]),
        ("DESC TYPES", None, &["k type a_second", "k type z_first"]),
        ("DESC FUNCTIONS", Some("k"), &[]),
        ("DESC AGGREGATES", None, &[]),
    ] {
        assert_eq!(listed(&schema, text, session), expected, "{text}");
    }
    let tables = listed(&schema, "DESC TABLES", None);
    assert_eq!(tables[..4], ["k table \"A\"", "k table b", "k table k", "\"Other\" table t"]);
    assert!(tables.contains(&"system table local".to_owned()));
}

/// An index is a separate row behind its table.
#[test]
fn indexes() {
    let schema = after(
        &schema(),
        &[
            "CREATE INDEX ON b (v)",
            "CREATE INDEX \"First\" ON b (v) USING 'sai' WITH OPTIONS = {'normalize': 'false', 'ascii': 'false'}",
            "CREATE CUSTOM INDEX values_of ON \"A\" (l) USING 'StorageAttachedIndex'",
        ],
    );
    let first = "CREATE CUSTOM INDEX \"First\" ON k.b (v) USING 'sai' WITH OPTIONS = {'ascii': 'false', 'normalize': 'false'};";
    for (text, expected) in [
        ("DESC INDEX b_v_idx", "CREATE INDEX b_v_idx ON k.b (v);"),
        ("DESC k.b_v_idx", "CREATE INDEX b_v_idx ON k.b (v);"),
        ("DESC \"First\"", first),
        (
            "DESC INDEX k.values_of",
            "CREATE CUSTOM INDEX values_of ON k.\"A\" (values(l)) USING 'StorageAttachedIndex';",
        ),
    ] {
        assert_eq!(statement(&schema, text), expected, "{text}");
    }
    let table = ["k table b +", "k index b_v_idx +", "k index \"First\" +"];
    assert_eq!(listed(&schema, "DESC TABLE b", Some("k")), table);
    let keyspace = listed(&schema, "DESC KEYSPACE k", None);
    assert_eq!(
        keyspace[3..],
        [&["k table \"A\" +", "k index values_of +"][..], &table, &["k table k +"]].concat()
    );
    let refused = answer(&schema, "DESC INDEX first", Some("k")).unwrap_err();
    assert_eq!(refused, CqlError::invalid("Table for existing index 'first' not found in 'k'"));
}

/// Keyspaces by name, in each its types in order of dependence, then its tables.
#[test]
fn lists_of_statements() {
    let schema = schema();
    let all = [
        "k keyspace k +",
        "k type z_first +",
        "k type a_second +",
        "k table \"A\" +",
        "k table b +",
        "k table k +",
    ];
    let other = ["\"Other\" keyspace \"Other\" +", "\"Other\" table t +"];
    for (text, session, expected) in [
        ("DESC KEYSPACE k", None, &all[..]),
        ("DESC KEYSPACE", Some("k"), &all),
        ("DESC ONLY KEYSPACE k", None, &all[..1]),
        ("DESC SCHEMA", Some("Other"), &[&all[..], &other].concat()),
        ("DESC TABLE b", Some("k"), &all[4..5]),
        ("DESC TABLE k.\"A\"", Some("Other"), &all[3..4]),
        ("DESC TYPE a_second", Some("k"), &all[2..3]),
        // A bare name is a keyspace before it is a table.
        ("DESC k", Some("k"), &all),
        ("DESC k.k", None, &all[5..]),
        ("DESC b", Some("k"), &all[4..5]),
        ("DESC \"Other\"", None, &other),
    ] {
        assert_eq!(listed(&schema, text, session), expected, "{text}");
    }
    let full = listed(&schema, "DESC FULL SCHEMA", None);
    assert!(full.starts_with(&all.map(str::to_owned)));
    assert!(full.contains(&"system_schema table columns +".to_owned()));
}

#[test]
fn missing_objects_are_named() {
    let schema = schema();
    for (text, session, message) in [
        ("DESC nothing", None, "'nothing' not found in keyspaces"),
        ("DESC nothing", Some("k"), "'nothing' not found in keyspace 'k'"),
        ("DESC k.nothing", None, "'nothing' not found in keyspace 'k'"),
        ("DESC nowhere.t", Some("k"), "'nowhere' not found in keyspaces"),
        ("DESC KEYSPACE nothing", Some("k"), "'nothing' not found in keyspaces"),
        ("DESC KEYSPACE", None, "No keyspace specified and no current keyspace"),
        ("DESC TABLES", Some("gone"), "'gone' not found in keyspaces"),
        ("DESC TABLE t", None, "No keyspace specified and no current keyspace"),
        ("DESC TABLE t", Some("k"), "Table 't' not found in keyspace 'k'"),
        ("DESC TYPE t", Some("k"), "User defined type 't' not found in 'k'"),
        ("DESC TYPE t", None, "No keyspace specified and no current keyspace"),
        ("DESC INDEX k.i", None, "Table for existing index 'i' not found in 'k'"),
        ("DESC MATERIALIZED VIEW v", Some("k"), "Materialized view 'v' not found in 'k'"),
        ("DESC FUNCTION k.f", None, "User defined function 'f' not found in 'k'"),
        ("DESC AGGREGATE f", Some("k"), "User defined aggregate 'f' not found in 'k'"),
    ] {
        assert_eq!(answer(&schema, text, session), Err(CqlError::invalid(message)), "{text}");
    }
}

#[test]
fn the_cluster() {
    let schema = schema();
    let values =
        ["test", "Murmur3Partitioner", "SimpleSnitch"].map(|value| value.as_bytes().to_vec());
    for session in [None, Some("system")] {
        let (columns, rows) = answer(&schema, "DESC CLUSTER", session).unwrap();
        assert_eq!(columns, ["cluster", "partitioner", "snitch"]);
        assert_eq!(rows, [values.to_vec()]);
    }
    let (columns, rows) = answer(&schema, "DESC CLUSTER", Some("k")).unwrap();
    assert_eq!(columns[3], "range_ownership");
    assert_eq!((rows.len(), &rows[0][..3]), (1, &values[..]));
    let cql_type = shunt_language::CqlType::parse("map<text, frozen<list<text>>>", &()).unwrap();
    let text = shunt_language::values::literal(&cql_type, &rows[0][3]);
    for node in cluster().nodes {
        for end in &node.tokens {
            let entry = format!("'{end}': ['/{}']", node.address);
            assert!(text.contains(&entry), "{entry} in {text}");
        }
    }
}

#[test]
fn keyspaces_and_types() {
    let schema = schema();
    for (text, expected) in [
        (
            "DESC ONLY KEYSPACE k",
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '1'}  AND durable_writes = true;",
        ),
        (
            "DESC ONLY KEYSPACE \"Other\"",
            "CREATE KEYSPACE \"Other\" WITH replication = {'class': 'NetworkTopologyStrategy', 'a': '2'}  \
             AND durable_writes = false AND durability = 'batch';",
        ),
        (
            "DESC ONLY KEYSPACE system_virtual_schema",
            "/*\nWarning: Keyspace system_virtual_schema is a virtual keyspace and cannot be recreated with CQL.\n\
             Structure, for reference:\nVIRTUAL KEYSPACE system_virtual_schema;\n*/",
        ),
        ("DESC TYPE z_first", "CREATE TYPE k.z_first (\n    x int,\n    y text\n);"),
        (
            "DESC TYPE a_second",
            "CREATE TYPE k.a_second (\n    \"A\" list<frozen<z_first>>,\n    b frozen<tuple<int, frozen<z_first>>>\n);",
        ),
    ] {
        assert_eq!(statement(&schema, text), expected, "{text}");
    }
}

#[test]
fn tables() {
    let schema = schema();
    let expected =
        format!("CREATE TABLE k.b (\n    k int PRIMARY KEY,\n    v text\n) WITH {OPTIONS}");
    assert_eq!(statement(&schema, "DESC TABLE b"), expected);
    // Multi-cell columns come last.
    let expected = format!(
        "CREATE TABLE k.\"A\" (\n    k1 int,\n    \"K2\" text,\n    c int,\n    d frozen<a_second>,\n    s int static,\n    \
         m int,\n    v text,\n    l list<int>,\n    PRIMARY KEY ((k1, \"K2\"), c, d)\n\
         ) WITH CLUSTERING ORDER BY (c DESC, d ASC)\n    AND {OPTIONS}"
    );
    assert_eq!(statement(&schema, "DESC TABLE \"A\""), expected);
    let options = OPTIONS.replace("0.01", "1.0E-4").replace("comment = ''", "comment = 'it''s'");
    let expected =
        format!("CREATE TABLE k.k (\n    k int PRIMARY KEY,\n    n counter\n) WITH {options}");
    assert_eq!(statement(&schema, "DESC TABLE k.k"), expected);
    let expected = "/*\nWarning: Table system_virtual_schema.keyspaces is a virtual table and cannot be recreated with CQL.\n\
                    Structure, for reference:\nVIRTUAL TABLE system_virtual_schema.keyspaces (\n    \
                    keyspace_name text PRIMARY KEY\n) WITH comment = '";
    let found = statement(&schema, "DESC TABLE system_virtual_schema.keyspaces");
    assert!(found.starts_with(expected) && found.ends_with("';\n*/"), "{found}");
}

/// With internals, the id and dropped columns of the table are shown.
#[test]
fn tables_with_internals() {
    let create =
        |name: &str| format!("CREATE TABLE {name} (k int PRIMARY KEY, v text, w text, x int)");
    let schema = after(
        &schema(),
        &[create("n"), "ALTER TABLE n DROP w USING TIMESTAMP 1589286942065000".to_owned()],
    );
    let id = schema.table("k", "n").unwrap().id;
    let id =
        shunt_language::values::literal(&shunt_language::CqlType::parse("uuid", &()).unwrap(), &id);
    let first = format!(
        "CREATE TABLE k.n (\n    k int PRIMARY KEY,\n    v text,\n    x int,\n    w text\n) WITH ID = {id}\n    AND {OPTIONS}\n\
         ALTER TABLE k.n DROP w USING TIMESTAMP 1589286942065000;"
    );
    assert_eq!(statement(&schema, "DESC TABLE n WITH INTERNALS"), first);
    let schema = after(&schema, &["ALTER TABLE n ADD w text"]);
    let second = format!("{first}\nALTER TABLE k.n ADD w text;");
    assert_eq!(statement(&schema, "DESC TABLE n WITH INTERNALS"), second);
    let plain = format!(
        "CREATE TABLE k.n (\n    k int PRIMARY KEY,\n    v text,\n    w text,\n    x int\n) WITH {OPTIONS}"
    );
    assert_eq!(statement(&schema, "DESC TABLE n"), plain);
}

/// A schema without parts that statements cannot express: ids, and numbers in storage. Dropped
/// columns by name, if included.
fn comparable(schema: &Schema, with_dropped: bool) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    for keyspace in schema.keyspaces.values() {
        let mut tables = BTreeMap::new();
        for table in keyspace.tables.values() {
            let mut table = Table::clone(table);
            (table.id, table.number, table.next_column) = ([0; 16], None, 0);
            table.columns.iter_mut().for_each(|column| column.id.0 = 0);
            table.dropped.iter_mut().for_each(|dropped| dropped.column.id.0 = 0);
            table.dropped.sort_by(|one, other| one.column.name.cmp(&other.column.name));
            if !with_dropped {
                table.dropped.clear();
                table.columns.iter_mut().for_each(|column| column.dropped_us = None);
            }
            tables.insert(table.name.clone(), std::sync::Arc::new(table));
        }
        let keyspace = crate::schema::Keyspace { tables, ..keyspace.as_ref().clone() };
        shown.push((keyspace.name.clone(), format!("{keyspace:#?}")));
    }
    shown
}

/// The schema created from the statements in an answer.
fn made_again(rows: &[Vec<String>]) -> Schema {
    let statements = rows.iter().flat_map(|row| {
        // A statement ends where a line ends in a semicolon; names and texts of these tests have no
        // line breaks.
        row[3].split_inclusive(";\n").map(|text| text.trim_end().to_owned())
    });
    after(&Schema::empty(), &statements.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_schema_makes_the_same_schema(statements in statements()) {
        let schema = schema_of(&statements);
        for (text, with_dropped) in [("DESC SCHEMA", false), ("DESC SCHEMA WITH INTERNALS", true)] {
            let again = made_again(&texts(&schema, text, None));
            prop_assert_eq!(comparable(&again, with_dropped), comparable(&schema, with_dropped), "{}", text);
        }
    }
}

/// Copies of system tables must be creatable elsewhere.
#[test]
fn printed_system_tables_parse() {
    let schema = schema();
    let rows = texts(&schema, "DESC FULL SCHEMA WITH INTERNALS", None);
    let virtual_ones = ["system_views", "system_virtual_schema"];
    let real = rows.iter().filter(|row| !virtual_ones.contains(&row[0].as_str()));
    let mut system = 0;
    for row in real {
        shunt_language::parse(&row[3])
            .unwrap_or_else(|error| panic!("{}: {}", row[3], error.message));
        system += usize::from(SYSTEM_KEYSPACES.contains(&row[0].as_str()));
    }
    assert!(system > 15, "{system}");
}
