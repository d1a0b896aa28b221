//! A changed user-defined type changes everywhere it is used.

use std::sync::Arc;

use shunt_language::types::{CqlType, UserType};

use super::{Schema, after, carry_out};

/// All places of `point`: in a table, in other types, in collections of all kinds, frozen and not.
fn schema() -> Schema {
    let statements = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE point (x int, y int)",
        "CREATE TYPE line (a frozen<point>, b frozen<point>)",
        "CREATE TYPE drawing (lines list<frozen<line>>)",
        "CREATE TABLE t (p int, c int, by_line map<int, frozen<line>>, own point, frozen_own frozen<point>, \
         many list<frozen<point>>, by_point map<frozen<point>, int>, all_of set<frozen<line>>, \
         pair tuple<int, point>, row vector<frozen<point>, 2>, d drawing, plain int, PRIMARY KEY (p, c))",
        "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE other.point (x int, y int)",
        "CREATE TABLE other.t (p int PRIMARY KEY, own frozen<other.point>)",
    ];
    after(&Schema::empty(), &statements)
}

/// The definitions of `point` anywhere in a type.
fn points<'t>(cql_type: &'t CqlType, found: &mut Vec<&'t Arc<UserType>>) {
    match cql_type {
        CqlType::List { element, .. }
        | CqlType::Set { element, .. }
        | CqlType::Vector { element, .. } => {
            points(element, found);
        }
        CqlType::Map { key, value, .. } => {
            points(key, found);
            points(value, found);
        }
        CqlType::Tuple(elements) => elements.iter().for_each(|element| points(element, found)),
        CqlType::Udt { definition, .. } => {
            if definition.name == "point" {
                found.push(definition);
            }
            definition.fields.iter().for_each(|(_, field)| points(field, found));
        }
        CqlType::Native(_) | CqlType::Custom(_) => {}
    }
}

/// The fields of every `point` in the types and columns of a keyspace.
fn fields_of_points(schema: &Schema, keyspace: &str) -> Vec<Vec<String>> {
    let keyspace = schema.keyspace(keyspace).unwrap();
    let mut found = Vec::new();
    for definition in keyspace.types.values() {
        if definition.name == "point" {
            found.push(definition);
        }
        definition.fields.iter().for_each(|(_, field)| points(field, &mut found));
    }
    let columns = keyspace.tables.values().flat_map(|table| &table.columns);
    columns.for_each(|column| points(&column.cql_type, &mut found));
    found
        .iter()
        .map(|point| point.fields.iter().map(|(name, field)| format!("{name} {field}")).collect())
        .collect()
}

#[test]
fn a_changed_type_reaches_all_that_use_it() {
    let schema = schema();
    let count = fields_of_points(&schema, "k").len();
    assert_eq!(count, 1 + 2 + 2 + 2 + 1 + 1 + 1 + 1 + 2 + 1 + 1 + 2);
    for (statement, expected) in [
        ("ALTER TYPE point ADD z list<int>", ["x int", "y int", "z list<int>"].as_slice()),
        ("ALTER TYPE point RENAME x TO \"X\" AND y TO x", &["X int", "x int"]),
    ] {
        let changed = after(&schema, &[statement]);
        let found = fields_of_points(&changed, "k");
        assert_eq!(found.len(), count, "{statement}");
        // A list within a frozen type is frozen too.
        let plain = |field: &String| field.replace("frozen<list<int>>", "list<int>");
        for fields in found {
            assert_eq!(fields.iter().map(plain).collect::<Vec<_>>(), expected, "{statement}");
        }
        assert_eq!(changed.keyspace("other"), schema.keyspace("other"), "{statement}");
    }
}

/// Frozen and unfrozen uses keep their form, and equal the result of a statement after the change.
#[test]
fn a_changed_type_is_what_a_new_column_of_it_has() {
    let columns = ["own point", "frozen_own frozen<point>", "d drawing", "pair tuple<int, point>"];
    let schema = after(&schema(), &["ALTER TYPE point ADD z list<int>"]);
    let names: Vec<_> = columns.iter().map(|column| column.split_once(' ').unwrap()).collect();
    let definitions: Vec<_> =
        names.iter().map(|(name, cql_type)| format!("{name} {cql_type}")).collect();
    let create = format!("CREATE TABLE new (p int PRIMARY KEY, {})", definitions.join(", "));
    let schema = after(&schema, &[create]);
    let (old, new) = (schema.table("k", "t").unwrap(), schema.table("k", "new").unwrap());
    for (name, _) in names {
        assert_eq!(
            old.column(name).unwrap().cql_type,
            new.column(name).unwrap().cql_type,
            "{name}"
        );
    }
}

#[test]
fn types_that_are_used_stay() {
    let schema = schema();
    for (statement, user) in [
        ("DROP TYPE point", "drawing"),
        ("DROP TYPE line", "drawing"),
        ("DROP TYPE drawing", "still used by tables: t"),
    ] {
        let error = carry_out(&schema, statement, Some("k")).unwrap_err();
        assert!(format!("{error:?}").contains(user), "{statement}: {error:?}");
    }
    let schema =
        after(&schema, &["DROP TABLE t", "DROP TYPE drawing", "DROP TYPE line", "DROP TYPE point"]);
    assert!(schema.keyspace("k").unwrap().types.is_empty());
}

/// Rows in keys are in the order of their fields: another field would move them.
#[test]
fn a_type_in_a_key_gets_no_new_field() {
    let tables = [
        "CREATE TABLE n (p frozen<point> PRIMARY KEY)",
        "CREATE TABLE n (p int, c frozen<list<frozen<point>>>, PRIMARY KEY (p, c))",
    ];
    for table in tables {
        let schema = after(&schema(), &[table]);
        let error = carry_out(&schema, "ALTER TYPE point ADD z int", Some("k")).unwrap_err();
        assert!(
            format!("{error:?}").contains("in the primary key of table n"),
            "{table}: {error:?}"
        );
        after(&schema, &["ALTER TYPE point RENAME x TO z"]);
    }
}
