//! Texts that are not statements, and their messages. Cases in the first table match Cassandra's
//! parser exactly; in the second one only the wording differs.

use crate::parse;

#[test]
fn messages_as_cassandra_has_them() {
    let cases = [
        (
            "SELECT * FORM t",
            "line 1:9 mismatched input 'FORM' expecting K_FROM (SELECT * [FORM]...)",
        ),
        ("foo", "line 1:0 no viable alternative at input 'foo' ([foo])"),
        ("", "line 0:-1 no viable alternative at input '<EOF>'"),
        (
            "SELECT a, b, c, d, e, f, g, h FROM t WHERE a = = 3 and b = 4",
            "line 1:47 no viable alternative at input '=' (...FROM t WHERE a = [=]...)",
        ),
        (
            "SELECT * FROM t WHERE a = 1 LIMIT 1 LIMIT 2",
            "line 1:36 mismatched input 'LIMIT' expecting EOF (...a = 1 LIMIT 1 [LIMIT]...)",
        ),
        ("SELECT * FROM ?.t", "Bind variables cannot be used for keyspace names"),
        (
            "UPDATE t SET a = b + 1 WHERE k = 0",
            "Only expressions of the form X = X +<value> are supported.",
        ),
        ("UPDATE t SET a = 1, a = 2 WHERE k = 0", "Multiple incompatible setting of column a"),
        ("UPDATE t SET a[1] = 1, a = 2 WHERE k = 0", "Multiple incompatible setting of column a"),
        ("CREATE KEYSPACE a WITH a = 1 and a = 2", "Multiple definitions for property 'a'"),
        ("CREATE KEYSPACE a WITH r = {'a': 1, 'a': 2}", "Multiple definition for property a"),
        ("CREATE KEYSPACE k", "line 0:-1 mismatched input '<EOF>' expecting K_WITH"),
        (
            "CREATE TABLE select (a int primary key)",
            "line 1:13 no viable alternative at input 'select' (CREATE TABLE [select]...)",
        ),
        (
            "CREATE TYPE date (a int)",
            "line 1:17 mismatched input '(' expecting '.' (CREATE TYPE date [(]...)",
        ),
        (
            "CREATE TABLE t (a frozen<int> primary key)",
            "frozen<> is only allowed on collections, tuples, and user-defined types (got int)",
        ),
        (
            "INSERT INTO t (a) VALUES (('0') ([1]))",
            "Error setting type 0: Unable to find abstract-type class 'org.apache.cassandra.db.marshal.0'",
        ),
        (
            "SELECT * FROM t WHERE (a) IN (?, (1))",
            "line 1:33 no viable alternative at input '(' (...(a) IN (?, [(]...)",
        ),
        (
            "BEGIN LOGGED BATCH APPLY BATCH",
            "line 1:6 mismatched input 'LOGGED' expecting K_BATCH (BEGIN [LOGGED]...)",
        ),
        (
            "INSERT INTO t (a b) VALUES (1)",
            "line 1:17 mismatched input 'b' expecting ')' (INSERT INTO t (a [b]...)",
        ),
        (
            "SELECT a, FROM t",
            "line 1:10 no viable alternative at input 'FROM' (SELECT a, [FROM]...)",
        ),
        (
            "TRUNCATE ks.table",
            "line 1:12 no viable alternative at input 'table' (TRUNCATE ks.[table])",
        ),
        (
            "CREATE TABLE t (a int PRIMARY KEY) WITH a = {'a': ?}",
            "Invalid property value: ? for property: 'a' (bind variables are not supported in DDL queries)",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(parse(text).expect_err(text).message, message, "{text}");
    }
}

#[test]
fn rejected_as_by_cassandra() {
    let cases = [
        "SELECT * FROM t foo",
        "SELECT * FROM t WHERE a BETWEEN 1 AND 2",
        "SELECT * FROM t WHERE a NOT IN (1)",
        "SELECT * FROM t WHERE k = 3-1",
        "SELECT * FROM t WHERE a > b",
        "SELECT * FROM t -- foo",
        "SELECT 12abc FROM t",
        "SELECT \"\" FROM t",
        "SELECT a.b.c(d) FROM t",
        "SELECT writetime(*) FROM t",
        "SELECT * FROM t; SELECT * FROM t",
        "SELECT * FROM t LIMIT 2 PER PARTITION LIMIT 2",
        "SELECT * FROM t WHERE expr (idx, 'foo')",
        "INSERT INTO t (a) VALUES ((int) - 5)",
        "INSERT INTO t (a) VALUES (- - 3)",
        "INSERT INTO t (a) VALUES (1) USING TIMESTAMP 1 IF NOT EXISTS",
        "UPDATE t SET a = a WHERE k = 1",
        "UPDATE t SET a = [1] + a + 3 WHERE k = 1",
        "UPDATE t SET a = 1 WHERE k = 1 IF EXISTS AND a = 1",
        "UPDATE t SET a = 1 WHERE k = 0 IF b NOT CONTAINS 4",
        "DELETE * FROM t WHERE k = 0",
        "BEGIN BATCH INSERT INTO t(a) VALUES (2);; APPLY BATCH",
        "CREATE TABLE t ()",
        "CREATE TABLE x (a int CHECK a > 3, PRIMARY KEY(a))",
        "CREATE TABLE t2 LIKE t",
        "CREATE TABLE t (a int PRIMARY KEY) WITH a = b",
        "CREATE TABLE t (a int PRIMARY KEY) WITH CLUSTERING ORDER BY (a)",
        "CREATE ROLE r WITH GENERATED PASSWORD",
        "ALTER TABLE t ADD a int, b int",
        "ALTER TYPE t ADD a int, b int",
        "LIST SUPERUSERS",
        "DESC a.table",
        "DESCRIBE",
        "USE 'ks'",
        "DROP FOO x",
    ];
    for text in cases {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn places_are_lines_and_characters() {
    let error = parse("SELECT *\n  FROM t\n  WHERE é = 1").expect_err("no name");
    assert_eq!((error.line, error.column), (3, 8));
    let error = parse("SELECT * FROM").expect_err("no table");
    assert_eq!((error.line, error.column), (0, -1));
}

#[test]
fn nesting_and_lists_have_limits() {
    let deep = |open: &str, close: &str| {
        format!("INSERT INTO t (a) VALUES ({}1{})", open.repeat(1000), close.repeat(1000))
    };
    for text in [deep("[", "]"), deep("(", ")"), deep("{", "}"), deep("f(", ")")] {
        assert!(
            parse(&text).expect_err("too deep").message.contains("nest at most"),
            "{}",
            &text[..40]
        );
    }
    assert!(parse(&deep("(list<int>) ", "")).is_err());
    let types =
        format!("CREATE TABLE t (a {}int{} PRIMARY KEY)", "list<".repeat(1000), ">".repeat(1000));
    assert!(parse(&types).expect_err("too deep").message.contains("nest at most"));
    let sum = format!("INSERT INTO t (a) VALUES (1{})", " + 1".repeat(1000));
    assert!(parse(&sum).expect_err("too long").message.contains("at most"));
    let select = format!("SELECT {}a FROM t", "- ".repeat(1000));
    assert!(parse(&select).expect_err("too deep").message.contains("nest at most"));
    let list = |count: usize| format!("SELECT * FROM t WHERE k IN ({}?)", "?,".repeat(count - 1));
    assert!(parse(&list(65_535)).is_ok());
    assert!(parse(&list(65_536)).is_err());
}
