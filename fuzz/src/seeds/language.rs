//! Seeds of the language: statements of every kind, terms, types, JSON, and values with their
//! components.

use shunt_language::values::{from_string, json, ordered};
use shunt_language::{CqlType, ast::NativeType};

use super::Add;
use crate::values::TYPES;

const STATEMENTS: [(&str, &str); 24] = [
    (
        "select_plain",
        "SELECT JSON DISTINCT a AS \"B c\", count(*), ks.f(b) FROM \"T\".u WHERE k = $$it's$$ AND j = 'it''s'",
    ),
    (
        "select_relations",
        "SELECT * FROM t WHERE a IN (1, 2) AND (b, c) > (1, :m) AND (d) IN ((1), ?) AND token(a, b) <= ? AND e CONTAINS KEY 5",
    ),
    (
        "select_selectors",
        "SELECT m['a'], l[0..3], s[..?], u.f.g, -(a), (int) a, {1: b}, [a], cast(a + 1 as text) FROM t",
    ),
    (
        "select_times",
        "SELECT ttl(a), writetime(u.f), maxwritetime(m['a']) FROM t PER PARTITION LIMIT 2 LIMIT :l ALLOW FILTERING",
    ),
    (
        "select_order",
        "SELECT a FROM t WHERE a = -5 AND c IS NOT NULL AND d LIKE '%x' GROUP BY a, f(b) ORDER BY a, b ANN OF [1.0]",
    ),
    (
        "insert",
        "INSERT INTO ks.t (a, b, c) VALUES ({f: 1, \"G\": {1, 2}}, {'a': -0x1f, 'b': NaN}, now()) IF NOT EXISTS USING TTL 3",
    ),
    (
        "insert_json",
        "INSERT INTO t JSON '{\"a\": [1.5e3, null, \"\\u00e9\"], \"\\\"B\\\"\": {}}' DEFAULT UNSET USING TIMESTAMP ?",
    ),
    (
        "update",
        "UPDATE t USING TTL ? SET a = a - 3, b = ? + b, u.f = 3, l[0] = 4, c += {'x'} WHERE k = 1 IF a != 1 AND l[0] < 5",
    ),
    ("delete", "DELETE a[0], b.c FROM t USING TIMESTAMP -1 WHERE k = 0 IF EXISTS"),
    (
        "batch",
        "BEGIN COUNTER BATCH USING TIMESTAMP 1 UPDATE t SET c = c + 1 WHERE k = 1; UPDATE t SET c -= 1 WHERE k = 2 APPLY BATCH;",
    ),
    (
        "create_table",
        "CREATE TABLE IF NOT EXISTS k.t (a int, b map<text, frozen<list<uuid>>> STATIC, c vector<float, 3>, PRIMARY KEY ((a), c)) \
         WITH CLUSTERING ORDER BY (c DESC) AND comment = 'x' AND x = {'a': 'b'}",
    ),
    (
        "create_masked",
        "CREATE TABLE t (a int MASKED WITH mask_inner(1, null) PRIMARY KEY, b 'org.example.Opaque')",
    ),
    (
        "create_view",
        "CREATE MATERIALIZED VIEW v AS SELECT a, b FROM t WHERE a IS NOT NULL PRIMARY KEY ((a), b)",
    ),
    ("create_index", "CREATE CUSTOM INDEX i ON t (values(a)) USING 'x' WITH OPTIONS = {'a': 'b'}"),
    (
        "create_function",
        "CREATE OR REPLACE FUNCTION f (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$return 1;$$",
    ),
    (
        "create_aggregate",
        "CREATE AGGREGATE IF NOT EXISTS a(int) SFUNC f STYPE tuple<int, int> FINALFUNC g INITCOND (0, 0)",
    ),
    ("create_type", "CREATE TYPE k.u (a int, \"B\" frozen<set<text>>)"),
    (
        "create_keyspace",
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false",
    ),
    (
        "create_role",
        "CREATE ROLE 'x' WITH PASSWORD = 'y' AND LOGIN = true AND ACCESS TO DATACENTERS {'a'}",
    ),
    ("alter", "ALTER TABLE IF EXISTS t ADD IF NOT EXISTS (a int static, b duration)"),
    ("alter_rename", "ALTER TYPE k.u RENAME a TO b AND c TO d"),
    ("drop", "DROP MATERIALIZED VIEW IF EXISTS k.v"),
    ("describe", "DESC ONLY KEYSPACE foo WITH INTERNALS"),
    ("grant", "GRANT SELECT PERMISSION, MODIFY ON ALL TABLES IN KEYSPACE k TO r"),
];

const OTHERS: [(&str, &str); 8] = [
    ("term_numbers", "-(5), 1 + 2 * -3 % (int) 4, 1.5e-3, -NaN, Infinity, 0xCAFE"),
    ("term_arithmetic", "1 - -1 * f(- 2, (tuple<int, text>) (1, 'a')) / cast(5 as text)"),
    (
        "term_collections",
        "{[1, ?]: {'a', null}, (1,): {f: {}, \"G g\": [P1Y2M, 3h, 5f9ac1c0-0000-1000-8000-000000000000]}}",
    ),
    ("type_nested", "frozen<map<tuple<int, vector<text, 2>>, frozen<set<frozen<list<k.\"U\">>>>>>"),
    ("type_class", "'org.apache.cassandra.db.marshal.VectorType(FloatType , 3)'"),
    ("type_user", "\"K\".u"),
    (
        "json_row",
        "{\"a\": [1, -2.5E+3, true, null], \"\\\"B\\\"\": {\"x\": \"\\n\\u00e9\\ud83d\\ude00\"}}",
    ),
    ("json_string", "\"[\\\"a\\\"]\""),
];

/// Texts of values of the types in [`TYPES`], in order.
const VALUES: [&str; TYPES.len()] = [
    "'it''s'",
    "-5",
    "0x00ff00",
    "true",
    "7",
    "'2026-11-21'",
    "-1.50e3",
    "1.5",
    "1y2mo3d4h",
    "-0.0",
    "'2001:db8::1'",
    "-5",
    "300",
    "'a\u{0}\u{e9}'",
    "'23:59:59.999999999'",
    "'2026-11-21 09:30:00.123+0100'",
    "5f9ac1c0-0000-1000-8000-000000000000",
    "-1",
    "123e4567-e89b-42d3-a456-426614174000",
    "-123456789012345678901234567890",
    "[1.50, \"1e400\", -7]",
    "[-1, 0, 300]",
    "{\"a\": 1, \"b\": 2}",
    "{\"1.5\": [1.0, -2.0]}",
    "[1, null, true]",
    "[[1.5], \"3h\"]",
    "[1.0, 2.0, 3.0]",
    "[\"a\", \"\"]",
    "[[\"123e4567-e89b-42d3-a456-426614174000\", null]]",
    "{\"[\\\"1.2.3.4\\\"]\": {\"2026-11-21\": \"01:02:03\"}}",
    "[1.50, 100]",
    "\"0x00ff\"",
];

/// Texts.
pub(super) fn language(add: Add<'_>) {
    for (name, text) in STATEMENTS.iter().chain(&OTHERS) {
        add("language", name, text.as_bytes().to_vec());
    }
}

/// A value of each type, with its components in both directions and its text.
pub(super) fn values(add: Add<'_>) {
    for (place, (name, text)) in TYPES.iter().zip(VALUES).enumerate() {
        let cql_type = CqlType::parse(name, &()).expect("a type");
        let bytes = match cql_type {
            CqlType::Native(native) => {
                let bare = text.trim_matches('\'').replace("''", "'");
                let bare = if native == NativeType::Blob { &bare[2..] } else { &bare };
                let input = [&[place as u8], bare.as_bytes()].concat();
                add("values", &format!("{place:02}_text"), input);
                from_string(native, bare, 0).expect(name)
            }
            _ => {
                let value = json::parse(text).and_then(|json| json::from_json(&cql_type, &json, 0));
                value.expect(name).expect("no null")
            }
        };
        add("values", &format!("{place:02}_value"), [&[place as u8], &bytes[..]].concat());
        for (descending, direction) in [(false, "ascending"), (true, "descending")] {
            let mut input = vec![place as u8];
            ordered::encode(&cql_type, descending, &bytes, &mut input).expect(name);
            add("values", &format!("{place:02}_{direction}"), input);
        }
    }
}
