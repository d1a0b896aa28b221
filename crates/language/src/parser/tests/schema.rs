//! Statements of the schema, roles and `DESCRIBE`.

use super::{schema, statement};
use crate::ast::{
    DescribeTarget, DropKind, LiteralKind, PropertyValue, QualifiedName, SchemaStatement,
    Statement, TableAlteration,
};
use crate::parse_type;

#[test]
fn tables() {
    let text = "CREATE TABLE IF NOT EXISTS k.t (a int, b text STATIC, \"C\" frozen<map<text, list<int>>>, d vector<float, 3>, \
                PRIMARY KEY ((a, \"C\"), d)) WITH CLUSTERING ORDER BY (d DESC) AND comment = 'x' \
                AND compaction = {'class': 'y', 'n': 1} AND COMPACT STORAGE AND gc = 5";
    let SchemaStatement::CreateTable(table) = schema(text) else { panic!("no table") };
    assert!(table.if_not_exists && table.columns[1].is_static);
    assert_eq!(table.columns[2].type_name.to_string(), "frozen<map<text, list<int>>>");
    assert_eq!(table.primary_keys, [(vec!["a".to_owned(), "C".to_owned()], vec!["d".to_owned()])]);
    assert_eq!(table.options.clustering_order, [("d".to_owned(), true)]);
    assert!(table.options.compact_storage);
    let properties = &table.options.properties;
    assert_eq!(properties[0].1, PropertyValue::Constant(LiteralKind::String, "x".to_owned()));
    let compaction =
        [("class", "y"), ("n", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(properties[1].1, PropertyValue::Map(compaction.to_vec()));
}

#[test]
fn primary_key_of_one_column() {
    let SchemaStatement::CreateTable(table) = schema("CREATE TABLE t (a int PRIMARY KEY, b int,)")
    else {
        panic!("no table");
    };
    assert_eq!(table.primary_keys, [(vec!["a".to_owned()], vec![])]);
    assert_eq!(table.columns.len(), 2);
}

#[test]
fn alterations_of_tables() {
    let alteration = |text: &str| match schema(text) {
        SchemaStatement::AlterTable(alter) => alter.alteration,
        other => panic!("{text}: {other:?}"),
    };
    let TableAlteration::Add { if_not_exists: true, columns } =
        alteration("ALTER TABLE t ADD IF NOT EXISTS (a int, b int)")
    else {
        panic!("no ADD");
    };
    assert_eq!(columns.len(), 2);
    let dropped = alteration("ALTER TABLE t DROP IF EXISTS a USING TIMESTAMP 5");
    let expected = TableAlteration::Drop {
        if_exists: true,
        columns: vec!["a".to_owned()],
        timestamp: Some(5),
    };
    assert_eq!(dropped, expected);
    assert_eq!(
        alteration("ALTER TABLE t DROP COMPACT STORAGE"),
        TableAlteration::DropCompactStorage
    );
    assert!(matches!(alteration("ALTER TABLE t DROP compact"), TableAlteration::Drop { .. }));
    assert!(
        matches!(alteration("ALTER TABLE t RENAME a TO b AND c TO d"), TableAlteration::Rename { columns, .. } if columns.len() == 2)
    );
    assert!(matches!(alteration("ALTER TABLE t WITH a = 1"), TableAlteration::With(_)));
}

#[test]
fn drops() {
    let cases = [
        ("DROP KEYSPACE k", DropKind::Keyspace),
        ("DROP COLUMNFAMILY IF EXISTS t", DropKind::Table),
        ("DROP TYPE k.u", DropKind::Type),
        ("DROP INDEX i", DropKind::Index),
        ("DROP MATERIALIZED VIEW v", DropKind::View),
        ("DROP FUNCTION f(int)", DropKind::Function),
        ("DROP AGGREGATE f", DropKind::Aggregate),
        ("DROP TRIGGER x ON t", DropKind::Trigger),
    ];
    for (text, kind) in cases {
        let SchemaStatement::Drop(drop) = schema(text) else { panic!("{text}: no DROP") };
        assert_eq!(drop.kind, kind, "{text}");
        assert_eq!(drop.if_exists, text.contains("EXISTS"), "{text}");
    }
}

#[test]
fn descriptions() {
    let local = QualifiedName::local;
    let cases = [
        ("DESC CLUSTER", DescribeTarget::Cluster),
        ("DESCRIBE SCHEMA", DescribeTarget::Schema { full: false }),
        ("DESC FULL SCHEMA WITH INTERNALS", DescribeTarget::Schema { full: true }),
        ("DESC KEYSPACES", DescribeTarget::Keyspaces),
        ("DESC KEYSPACE", DescribeTarget::Keyspace { name: None, only: false }),
        (
            "DESC ONLY KEYSPACE k",
            DescribeTarget::Keyspace { name: Some("k".to_owned()), only: true },
        ),
        ("DESC TABLES", DescribeTarget::Tables),
        ("DESC TABLE t", DescribeTarget::Table(local("t"))),
        ("DESC TYPE t", DescribeTarget::Type(local("t"))),
        ("DESC type", DescribeTarget::Any(local("type"))),
        ("DESC MATERIALIZED VIEW v", DescribeTarget::View(local("v"))),
        ("DESC t", DescribeTarget::Any(local("t"))),
        (
            "DESC k.t",
            DescribeTarget::Any(QualifiedName {
                keyspace: Some("k".to_owned()),
                name: "t".to_owned(),
            }),
        ),
    ];
    for (text, target) in cases {
        let Statement::Describe(describe) = statement(text) else { panic!("{text}: no DESCRIBE") };
        assert_eq!(describe.target, target, "{text}");
        assert_eq!(describe.with_internals, text.contains("INTERNALS"), "{text}");
    }
}

#[test]
fn access_statements_say_which_they_are() {
    let cases = [
        ("CREATE ROLE r WITH PASSWORD = 'x' AND LOGIN = true", "CREATE ROLE"),
        ("DROP ROLE IF EXISTS r", "DROP ROLE"),
        ("GRANT SELECT ON KEYSPACE k TO r", "GRANT PERMISSION"),
        ("GRANT a TO b", "GRANT ROLE"),
        ("REVOKE ALL ON ALL KEYSPACES FROM r", "REVOKE PERMISSION"),
        ("LIST ROLES OF x NORECURSIVE", "LIST ROLES"),
        ("LIST ALL PERMISSIONS", "LIST PERMISSIONS"),
        ("LIST USERS", "LIST USERS"),
        ("CREATE USER u WITH PASSWORD 'x' NOSUPERUSER", "CREATE USER"),
        ("ADD IDENTITY 'i' TO ROLE 'r'", "ADD IDENTITY"),
    ];
    for (text, name) in cases {
        assert_eq!(statement(text), Statement::Access(name), "{text}");
    }
}

#[test]
fn types_print_as_they_parse() {
    let types = [
        "int",
        "list<int>",
        "frozen<set<text>>",
        "map<int, frozen<list<k.u>>>",
        "tuple<int, frozen<u>>",
        "vector<float, 3>",
        "'org.example.Type'",
        "\"U\"",
    ];
    for text in types {
        assert_eq!(parse_type(text).map(|parsed| parsed.to_string()), Ok(text.to_owned()));
    }
    assert_eq!(parse_type("VARCHAR").map(|parsed| parsed.to_string()), Ok("text".to_owned()));
    assert!(
        parse_type("list<int").is_err()
            && parse_type("list<int> x").is_err()
            && parse_type("date.x").is_ok()
    );
}

/// Each name is looked up among those before it, so that their number decides how long that takes.
#[test]
fn properties_have_a_bound_in_number() {
    let map = |count: usize| {
        let entries: Vec<_> = (0..count).map(|number| format!("'{number}': 1")).collect();
        format!("ALTER TABLE k.t WITH compression = {{{}}}", entries.join(","))
    };
    let SchemaStatement::AlterTable(alter) = schema(&map(65_535)) else { panic!("no table") };
    let TableAlteration::With(properties) = alter.alteration else { panic!("no properties") };
    let [(_, PropertyValue::Map(entries))] = &properties[..] else { panic!("no map") };
    assert_eq!(entries.len(), 65_535);
    let refused = |text: &str| crate::parse(text).expect_err("too many").message;
    assert!(refused(&map(65_536)).contains("at most 65535 elements"));
    let again = map(65_000).replace("{", "{'64999': 1,");
    assert_eq!(refused(&again), "Multiple definition for property 64999");
    let several = |count: usize| {
        let all: Vec<_> = (0..count).map(|number| format!("p{number} = 1")).collect();
        format!("ALTER TABLE k.t WITH {}", all.join(" AND "))
    };
    schema(&several(256));
    assert!(refused(&several(257)).contains("at most 256 properties"));
}

#[test]
fn types_have_a_bound_in_fields() {
    let text = |count: usize| {
        let fields: Vec<_> = (0..count).map(|number| format!("f{number} int")).collect();
        format!("CREATE TYPE k.u ({})", fields.join(","))
    };
    schema(&text(65_535));
    let error = crate::parse(&text(65_536)).expect_err("too many");
    assert!(error.message.contains("at most 65535 fields"), "{}", error.message);
}
