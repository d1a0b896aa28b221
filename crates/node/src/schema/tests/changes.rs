//! Statements that change the schema, each against the same small schema.

use super::{Schema, after, carry_out};
use crate::error::CqlError;
use crate::schema::change::{Change, Object, Outcome};
use crate::schema::{ColumnKind, Durability};

fn schema() -> Schema {
    let statements = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE point (x int, y int)",
        "CREATE TYPE line (a frozen<point>, b frozen<point>)",
        "CREATE TABLE t (p int, c int, s text static, v text, l list<int>, old int, PRIMARY KEY (p, c))",
        "ALTER TABLE t DROP old",
        "CREATE TABLE plain (p int PRIMARY KEY, v text)",
        "CREATE TABLE counts (p int PRIMARY KEY, n counter)",
    ];
    let schema = after(&Schema::empty(), &statements);
    let mut with_system = schema;
    for keyspace in crate::system::keyspaces().unwrap() {
        with_system.keyspaces.insert(keyspace.name.clone(), keyspace.into());
    }
    with_system
}

/// Describes the change, or the class of the error.
fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(None) => "nothing".to_owned(),
        Ok(Some((_, Change { kind, keyspace, object }))) => match object {
            Object::Keyspace => format!("{kind} keyspace {keyspace}"),
            Object::Table(name) => format!("{kind} table {keyspace}.{name}"),
            Object::Type(name) => format!("{kind} type {keyspace}.{name}"),
        },
        Err(CqlError::Syntax(_)) => "syntax error".to_owned(),
        Err(CqlError::Invalid(_)) => "invalid".to_owned(),
        Err(CqlError::Config(_)) => "bad property".to_owned(),
        Err(CqlError::Unauthorized(_)) => "unauthorized".to_owned(),
        Err(CqlError::AlreadyExists { keyspace, table }) => format!("there is {keyspace}.{table}"),
        Err(other) => panic!("{other:?}"),
    }
}

/// Executes each statement on the schema above, with `k` in use.
fn check(cases: &[(&str, &str)]) {
    let schema = schema();
    let wrong = cases.iter().filter_map(|(statement, expected)| {
        let outcome = carry_out(&schema, statement, Some("k"));
        let found = describe_outcome(&outcome);
        if let Ok(Some((changed, _))) = &outcome {
            assert_eq!(changed.number, schema.number + 1, "{statement}");
            assert_ne!(changed.version, schema.version, "{statement}");
        }
        (found != *expected).then(|| {
            format!("{statement}\n    expected: {expected}\n    found: {found} {:?}", outcome.err())
        })
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn keyspaces() {
    check(&[
        (
            "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATED keyspace n",
        ),
        (
            "CREATE KEYSPACE \"N\" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc': 3}",
            "CREATED keyspace N",
        ),
        ("CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy'}", "bad property"),
        ("CREATE KEYSPACE n WITH replication = {'class': 'NoStrategy'}", "bad property"),
        (
            "CREATE KEYSPACE n WITH replication = {'class': 'org.example.SimpleStrategy'}",
            "bad property",
        ),
        ("CREATE KEYSPACE n WITH replication = {'class': 'LocalStrategy'}", "invalid"),
        ("CREATE KEYSPACE n WITH replication = {'class': 'EverywhereStrategy'}", "bad property"),
        (
            "CREATE KEYSPACE n WITH replication = {'class': 'NetworkTopologyStrategy', 'mars': 1}",
            "bad property",
        ),
        (
            "ALTER KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'mars': 1}",
            "bad property",
        ),
        (
            "CREATE KEYSPACE n WITH replication = {'class': 'NetworkTopologyStrategy', 'REPLICATION_FACTOR': 1}",
            "bad property",
        ),
        (
            "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1, 'dc': 1}",
            "bad property",
        ),
        ("CREATE KEYSPACE n WITH replication = {'replication_factor': 1}", "bad property"),
        (
            "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 'x'}",
            "bad property",
        ),
        ("CREATE KEYSPACE n WITH durable_writes = true", "bad property"),
        ("CREATE KEYSPACE n WITH replication = 'SimpleStrategy'", "syntax error"),
        ("CREATE KEYSPACE n WITH unheard_of = 1", "syntax error"),
        (
            "CREATE KEYSPACE \"a-b\" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "invalid",
        ),
        (
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "there is k.",
        ),
        (
            "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'LocalStrategy'}",
            "nothing",
        ),
        (
            "CREATE KEYSPACE IF NOT EXISTS system WITH replication = {'class': 'LocalStrategy'}",
            "unauthorized",
        ),
        ("ALTER KEYSPACE k WITH durable_writes = false", "UPDATED keyspace k"),
        ("ALTER KEYSPACE k WITH durability = 'batch'", "UPDATED keyspace k"),
        ("ALTER KEYSPACE k WITH durability = 'sometimes'", "bad property"),
        ("ALTER KEYSPACE n WITH durable_writes = false", "invalid"),
        ("ALTER KEYSPACE IF EXISTS n WITH durable_writes = false", "nothing"),
        ("ALTER KEYSPACE system_schema WITH durable_writes = false", "unauthorized"),
        ("DROP KEYSPACE k", "DROPPED keyspace k"),
        ("DROP KEYSPACE n", "invalid"),
        ("DROP KEYSPACE IF EXISTS n", "nothing"),
        ("DROP KEYSPACE system", "unauthorized"),
    ]);
}

#[test]
fn new_tables() {
    check(&[
        ("CREATE TABLE n (p int PRIMARY KEY)", "CREATED table k.n"),
        ("CREATE TABLE k.n (p int, c int, PRIMARY KEY ((p, c)))", "CREATED table k.n"),
        (
            "CREATE TABLE n (p int, c int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)",
            "CREATED table k.n",
        ),
        (
            "CREATE TABLE n (p int PRIMARY KEY, v point, w line, x list<frozen<line>>)",
            "CREATED table k.n",
        ),
        ("CREATE TABLE n (p frozen<point> PRIMARY KEY, n counter)", "CREATED table k.n"),
        ("CREATE TABLE t (p int PRIMARY KEY)", "there is k.t"),
        ("CREATE TABLE IF NOT EXISTS t (p int PRIMARY KEY)", "nothing"),
        ("CREATE TABLE other.n (p int PRIMARY KEY)", "invalid"),
        ("CREATE TABLE system.n (p int PRIMARY KEY)", "unauthorized"),
        ("CREATE TABLE \"a b\" (p int PRIMARY KEY)", "bad property"),
        ("CREATE TABLE n (p int)", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY, c int, PRIMARY KEY (c))", "invalid"),
        ("CREATE TABLE n (p int, PRIMARY KEY (p, p))", "invalid"),
        ("CREATE TABLE n (p int, PRIMARY KEY (c))", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY, v int, v text)", "invalid"),
        ("CREATE TABLE n (p circle PRIMARY KEY)", "invalid"),
        ("CREATE TABLE n (p point PRIMARY KEY)", "invalid"),
        ("CREATE TABLE n (p list<int> PRIMARY KEY)", "invalid"),
        ("CREATE TABLE n (p duration PRIMARY KEY)", "invalid"),
        ("CREATE TABLE n (p counter PRIMARY KEY)", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY, v list<list<int>>)", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY, v list<point>)", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY, v list<counter>)", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY, s int static)", "invalid"),
        ("CREATE TABLE n (p int, c int static, PRIMARY KEY (p, c))", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY, v int, n counter)", "invalid"),
        (
            "CREATE TABLE n (p int PRIMARY KEY, n counter) WITH default_time_to_live = 1",
            "bad property",
        ),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH CLUSTERING ORDER BY (p DESC)", "invalid"),
        (
            "CREATE TABLE n (p int, c int, d int, PRIMARY KEY (p, c, d)) WITH CLUSTERING ORDER BY (d DESC)",
            "invalid",
        ),
        (
            "CREATE TABLE n (p int, c int, d int, PRIMARY KEY (p, c, d)) WITH CLUSTERING ORDER BY (c DESC)",
            "CREATED table k.n",
        ),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH COMPACT STORAGE", "invalid"),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH unheard_of = 1", "syntax error"),
        (
            "CREATE TABLE n (p int PRIMARY KEY) WITH id = 5f9ac1c0-0000-1000-8000-000000000000",
            "CREATED table k.n",
        ),
        (
            "CREATE TABLE n (p int PRIMARY KEY) WITH id = '5f9ac1c0-0000-1000-8000-000000000000'",
            "CREATED table k.n",
        ),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH id = 'n'", "bad property"),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH gc_grace_seconds = -1", "bad property"),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH gc_grace_seconds = 1.5", "syntax error"),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH max_index_interval = 1.5", "syntax error"),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH min_index_interval = 4096", "bad property"),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH cdc = 'perhaps'", "syntax error"),
        ("CREATE TABLE n (p int PRIMARY KEY) WITH compression = 'LZ4'", "syntax error"),
        (
            "CREATE TABLE n (p int PRIMARY KEY) WITH compression = {'chunk_length_in_kb': 4}",
            "bad property",
        ),
        (
            "CREATE TABLE n (p int PRIMARY KEY) WITH compaction = {'max_threshold': 4}",
            "bad property",
        ),
        (
            "CREATE TABLE n (p int PRIMARY KEY) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18 AND comment = 'x'",
            "CREATED table k.n",
        ),
    ]);
}

/// Applications have tables with names longer than 48 characters, the limit for keyspaces only.
#[test]
fn long_names() {
    let replication = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    let (n48, n49, n222, n223) = ("n".repeat(48), "n".repeat(49), "n".repeat(222), "n".repeat(223));
    let cases = [
        (format!("CREATE KEYSPACE {n48} WITH {replication}"), format!("CREATED keyspace {n48}")),
        (format!("CREATE KEYSPACE {n49} WITH {replication}"), "invalid".to_owned()),
        (format!("CREATE TABLE {n49} (p int PRIMARY KEY)"), format!("CREATED table k.{n49}")),
        (format!("CREATE TABLE {n222} (p int PRIMARY KEY)"), format!("CREATED table k.{n222}")),
        (format!("CREATE TABLE {n223} (p int PRIMARY KEY)"), "bad property".to_owned()),
        (format!("CREATE TYPE {n222} (x int)"), format!("CREATED type k.{n222}")),
    ];
    check(&cases.each_ref().map(|(statement, expected)| (statement.as_str(), expected.as_str())));
}

#[test]
fn changed_tables() {
    check(&[
        ("ALTER TABLE t ADD n int", "UPDATED table k.t"),
        ("ALTER TABLE t ADD (n int, m set<int>)", "UPDATED table k.t"),
        ("ALTER TABLE t ADD n int static", "UPDATED table k.t"),
        ("ALTER TABLE t ADD old int", "UPDATED table k.t"),
        ("ALTER TABLE t ADD old text", "invalid"),
        ("ALTER TABLE t ADD old int static", "invalid"),
        ("ALTER TABLE t ADD v text", "invalid"),
        ("ALTER TABLE t ADD IF NOT EXISTS v text", "UPDATED table k.t"),
        ("ALTER TABLE t ADD (n int, n int)", "invalid"),
        ("ALTER TABLE t ADD n counter", "bad property"),
        ("ALTER TABLE counts ADD n2 counter", "UPDATED table k.counts"),
        ("ALTER TABLE counts ADD v int", "bad property"),
        ("ALTER TABLE plain ADD s int static", "invalid"),
        ("ALTER TABLE plain ADD n list<point>", "invalid"),
        ("ALTER TABLE t DROP v", "UPDATED table k.t"),
        ("ALTER TABLE t DROP (v, l) USING TIMESTAMP 1", "UPDATED table k.t"),
        ("ALTER TABLE t DROP s", "UPDATED table k.t"),
        ("ALTER TABLE t DROP p", "invalid"),
        ("ALTER TABLE t DROP c", "invalid"),
        ("ALTER TABLE t DROP n", "invalid"),
        ("ALTER TABLE t DROP IF EXISTS n", "UPDATED table k.t"),
        ("ALTER TABLE t RENAME p TO q AND c TO d", "UPDATED table k.t"),
        ("ALTER TABLE t RENAME p TO c", "invalid"),
        ("ALTER TABLE t RENAME v TO w", "invalid"),
        ("ALTER TABLE t RENAME n TO m", "invalid"),
        ("ALTER TABLE t ALTER v TYPE blob", "invalid"),
        ("ALTER TABLE t WITH comment = 'x' AND gc_grace_seconds = 1", "UPDATED table k.t"),
        ("ALTER TABLE t WITH gc_grace_seconds = 'x'", "syntax error"),
        ("ALTER TABLE t WITH unheard_of = 1", "syntax error"),
        ("ALTER TABLE t WITH id = 5f9ac1c0-0000-1000-8000-000000000000", "bad property"),
        ("ALTER TABLE counts WITH default_time_to_live = 1", "bad property"),
        ("ALTER TABLE n ADD v int", "invalid"),
        ("ALTER TABLE IF EXISTS n ADD v int", "nothing"),
        ("ALTER TABLE system.local ADD v int", "unauthorized"),
        ("DROP TABLE t", "DROPPED table k.t"),
        ("DROP TABLE n", "invalid"),
        ("DROP TABLE IF EXISTS n", "nothing"),
        ("DROP TABLE system.local", "unauthorized"),
    ]);
}

#[test]
fn types() {
    check(&[
        ("CREATE TYPE n (x int, \"Y\" frozen<line>, z list<int>)", "CREATED type k.n"),
        ("CREATE TYPE point (x int)", "invalid"),
        ("CREATE TYPE IF NOT EXISTS point (x int)", "nothing"),
        ("CREATE TYPE n (x int, x text)", "invalid"),
        ("CREATE TYPE n (x counter)", "invalid"),
        ("CREATE TYPE n (x point)", "invalid"),
        ("CREATE TYPE n (x frozen<n>)", "invalid"),
        ("CREATE TYPE system.n (x int)", "unauthorized"),
        ("ALTER TYPE point ADD z int", "UPDATED type k.point"),
        ("ALTER TYPE point ADD x int", "invalid"),
        ("ALTER TYPE point ADD IF NOT EXISTS x int", "nothing"),
        ("ALTER TYPE point ADD z frozen<line>", "invalid"),
        ("ALTER TYPE point ADD z frozen<list<frozen<point>>>", "invalid"),
        ("ALTER TYPE point RENAME x TO z AND y TO x", "UPDATED type k.point"),
        ("ALTER TYPE point RENAME x TO y", "invalid"),
        ("ALTER TYPE point RENAME z TO w", "invalid"),
        ("ALTER TYPE point ALTER x TYPE blob", "invalid"),
        ("ALTER TYPE n ADD z int", "invalid"),
        ("ALTER TYPE IF EXISTS n ADD z int", "nothing"),
        ("DROP TYPE line", "DROPPED type k.line"),
        ("DROP TYPE point", "invalid"),
        ("DROP TYPE n", "invalid"),
        ("DROP TYPE IF EXISTS n", "nothing"),
    ]);
}

#[test]
fn unsupported_changes_are_refused() {
    check(&[
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE c IS NOT NULL AND p IS NOT NULL PRIMARY KEY (c, p)",
            "invalid",
        ),
        (
            "CREATE FUNCTION f (x int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return x;'",
            "invalid",
        ),
        ("DROP MATERIALIZED VIEW m", "invalid"),
        ("DROP FUNCTION IF EXISTS f", "nothing"),
        ("DROP AGGREGATE f", "invalid"),
    ]);
}

#[test]
fn without_a_keyspace_in_use_names_need_one() {
    let schema = schema();
    for (statement, expected) in [
        ("CREATE TABLE n (p int PRIMARY KEY)", "invalid"),
        ("CREATE TYPE n (x int)", "invalid"),
        ("ALTER TABLE t ADD n int", "invalid"),
        ("DROP TYPE line", "invalid"),
        ("DROP TABLE k.t", "DROPPED table k.t"),
        ("CREATE TABLE k.n (p int PRIMARY KEY, v point)", "CREATED table k.n"),
    ] {
        assert_eq!(describe_outcome(&carry_out(&schema, statement, None)), expected, "{statement}");
    }
}

#[test]
fn a_table_is_what_its_statement_says() {
    let create = "CREATE TABLE n (v text, c2 int, p2 int, s int static, c1 int, p1 int, a int, PRIMARY KEY ((p1, p2), c1, c2)) \
                  WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)";
    let schema = after(&schema(), &[create]);
    let table = schema.table("k", "n").unwrap();
    let names: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["p1", "p2", "c1", "c2", "s", "a", "v"]);
    let descending: Vec<_> = table.clustering().iter().map(|column| column.descending).collect();
    assert_eq!(descending, [false, true]);
    assert_eq!(
        (table.partition_key_len, table.clustering_len, table.has_static, table.is_counter),
        (2, 2, true, false)
    );
    assert_eq!(table.values()[0].kind, ColumnKind::Static);
    assert!(schema.table("k", "counts").unwrap().is_counter);
}

/// A column added again is the same one in storage and keeps the time of its drop; another name
/// gets a new number.
#[test]
fn a_column_that_comes_back_knows_when_it_was_dropped() {
    let before = schema();
    let statements = [
        "ALTER TABLE t DROP v USING TIMESTAMP 5",
        "ALTER TABLE t ADD w text",
        "ALTER TABLE t ADD v text",
    ];
    let schema = after(&before, &statements);
    let (old, new) = (before.table("k", "t").unwrap(), schema.table("k", "t").unwrap());
    assert_eq!(new.column("v").unwrap().id, old.column("v").unwrap().id);
    assert_eq!(new.column("v").unwrap().dropped_us, Some(5));
    let mut ids: Vec<_> = new.columns.iter().map(|column| column.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), new.columns.len());
    let dropped: Vec<_> = new
        .dropped
        .iter()
        .map(|dropped| (dropped.column.name.as_str(), dropped.dropped_us))
        .collect();
    assert_eq!(dropped[1..], [("v", 5)]);
    assert_eq!(dropped[0].0, "old");
}

/// Missing parts of a map option have their defaults.
#[test]
fn options_of_several_parts_are_whole() {
    for (given, expected) in [
        (
            "compaction = {'class': 'LeveledCompactionStrategy', 'max_threshold': 8}",
            "class: org.apache.cassandra.db.compaction.LeveledCompactionStrategy, max_threshold: 8, min_threshold: 4",
        ),
        (
            "compression = {'class': 'ZstdCompressor'}",
            "chunk_length_in_kb: 16, class: org.apache.cassandra.io.compress.ZstdCompressor",
        ),
        ("compression = {'enabled': false}", "enabled: false"),
        ("caching = {'keys': 'NONE'}", "keys: NONE, rows_per_partition: NONE"),
    ] {
        let schema =
            after(&schema(), &[format!("CREATE TABLE n (p int PRIMARY KEY) WITH {given}")]);
        let option = given.split(' ').next().unwrap();
        let found = &schema.table("k", "n").unwrap().options.maps[option];
        let shown: Vec<_> = found.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        assert_eq!(shown.join(", "), expected, "{given}");
    }
}

#[test]
fn writes_are_durable_unless_told_otherwise() {
    let mut schema = schema();
    for (change, expected) in [
        ("durable_writes = true", Durability::Batch),
        ("durable_writes = false", Durability::Periodic),
        ("durability = 'batch'", Durability::Batch),
        ("durable_writes = true", Durability::Batch),
        ("durability = 'periodic' AND durable_writes = true", Durability::Periodic),
        ("durable_writes = false", Durability::Periodic),
    ] {
        schema = after(&schema, &[&format!("ALTER KEYSPACE k WITH {change}")]);
        assert_eq!(schema.keyspace("k").unwrap().durability, expected, "{change}");
    }
}

#[test]
fn levelled_compaction_has_a_filter_of_its_own() {
    for (given, expected) in [
        ("comment = ''", 0.01),
        ("compaction = {'class': 'LeveledCompactionStrategy'}", 0.1),
        (
            "bloom_filter_fp_chance = 0.5 AND compaction = {'class': 'LeveledCompactionStrategy'}",
            0.5,
        ),
    ] {
        let created =
            after(&schema(), &[format!("CREATE TABLE n (p int PRIMARY KEY) WITH {given}")]);
        let found = |schema: &Schema| schema.table("k", "n").unwrap().options.numbers["bloom_filter_fp_chance"];
        assert_eq!(found(&created), expected, "{given}");
        let altered = after(
            &created,
            &["ALTER TABLE n WITH compaction = {'class': 'LeveledCompactionStrategy'}"],
        );
        assert_eq!(found(&altered), expected, "{given}, altered");
    }
}

#[test]
fn columns_and_fields_are_counted_before_they_are_compared() {
    let schema = schema();
    let list = |count: usize| {
        (0..count).map(|number| format!("f{number} int")).collect::<Vec<_>>().join(",")
    };
    let refused = |text: &str, schema: &Schema| match carry_out(schema, text, Some("k")) {
        Err(CqlError::Invalid(message)) => message,
        other => panic!("{other:?}"),
    };
    // The last is named twice: the number is looked at first.
    let text = format!("CREATE TABLE wide ({}, f0 int, PRIMARY KEY (f0))", list(60_000));
    assert_eq!(refused(&text, &schema), "a table has at most 4096 columns");
    let text = format!("CREATE TYPE broad ({}, f0 int)", list(60_000));
    assert_eq!(refused(&text, &schema), "a type has at most 4096 fields");
    let text = format!("CREATE TABLE wide ({}, PRIMARY KEY (f0))", list(4_096));
    let schema = after(&schema, &[text, format!("CREATE TYPE broad ({})", list(4_096))]);
    assert_eq!(refused("ALTER TABLE wide ADD g int", &schema), "a table has at most 4096 columns");
    assert_eq!(refused("ALTER TYPE broad ADD g int", &schema), "a type has at most 4096 fields");
}
