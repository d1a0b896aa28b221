//! Endless nesting is an error of the language instead of a stack overflow.

use shunt_language::{parse, parse_type};

/// Openers of nested constructs, with a place for the content.
const OPENERS: &[&str] = &[
    "(",
    "((int) ",
    "(int) ",
    "(list<",
    "[",
    "{",
    "{1: ",
    "{f: ",
    "- ",
    "-",
    "1 + ",
    "1 * ",
    "f(",
    "k.f(",
    "cast(",
    "(a, ",
    "token(",
    "list<",
    "set<",
    "map<int, ",
    "map<",
    "tuple<int, ",
    "frozen<",
    "vector<",
    "'VectorType(",
    "VectorType(",
    "a.",
    "a[",
    "writetime(",
    "count(",
    "a = 1 AND ",
    "a IN (",
    "BEGIN BATCH ",
];
const PLACES: &[&str] = &[
    "INSERT INTO t (a) VALUES (",
    "SELECT ",
    "SELECT a FROM t WHERE ",
    "SELECT a FROM t WHERE a = ",
    "SELECT a FROM t WHERE a IN ",
    "SELECT a FROM t WHERE (a, b) IN (",
    "UPDATE t SET a = ",
    "UPDATE t SET a[",
    "DELETE a[",
    "DELETE FROM t WHERE a = 1 IF a = ",
    "CREATE TABLE t (a ",
    "CREATE TABLE t (PRIMARY KEY (",
    "CREATE TABLE t (a int) WITH a = ",
    "CREATE FUNCTION f (a ",
    "CREATE AGGREGATE a(int) SFUNC f STYPE int INITCOND ",
    "ALTER TABLE t ADD a ",
    "",
];

#[test]
fn a_hundred_thousand_brackets_are_an_error() {
    for opener in OPENERS {
        // A tenth of them also overflows a stack.
        let (most, many) = (opener.repeat(100_000), opener.repeat(10_000));
        for (number, place) in PLACES.iter().enumerate() {
            let brackets = if number == 0 { &most } else { &many };
            assert!(parse(&format!("{place}{brackets}")).is_err(), "{place}{opener}");
        }
        assert!(parse_type(&most).is_err(), "{opener}");
    }
}

/// Every pair of parentheses is tried as a type first. If that error searched for its line, this
/// would take minutes.
#[test]
fn the_largest_number_of_tuples_parses() {
    let tuples = vec!["(1)"; 65_535].join(",");
    let lists = vec![format!("[{tuples}]"); 8].join(",");
    assert!(parse(&format!("INSERT INTO t (a) VALUES ([{lists}])")).is_ok());
    assert!(parse(&format!("INSERT INTO t (a) VALUES ([{tuples},(1)])")).is_err(), "one too many");
}
