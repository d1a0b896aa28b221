//! Kind, table and condition of statements.

use crate::cql::statement::Kind::{self, *};
use crate::cql::statement::{TEXT_BYTES_MAX, classify};

/// `keyspace.table` as stored, `-` for what is absent.
fn target(text: &str) -> String {
    let statement = classify(text);
    let name = |name: Option<_>| {
        name.map_or("-".to_owned(), |name: crate::cql::statement::Identifier<'_>| name.to_string())
    };
    format!("{}.{}", name(statement.keyspace), name(statement.table))
}

#[test]
fn kind_and_table() {
    let list: &[(&str, Kind, &str)] = &[
        ("SELECT * FROM t", Select, "-.t"),
        ("select a, b from KS.T where a = 1", Select, "ks.t"),
        ("SELECT * FROM \"Ks\".\"T\"\"x\"", Select, "Ks.T\"x"),
        ("SELECT \"from\" FROM ks . t;", Select, "ks.t"),
        ("SELECT cast(a AS text), f(?, b), m['from'] FROM t", Select, "-.t"),
        ("SELECT JSON DISTINCT a FROM t ;; ", Select, "-.t"),
        (
            "  \n\t-- comment; DROP\n // other ' one\r /* FROM x */SELECT/**/a/* */FROM t",
            Select,
            "-.t",
        ),
        ("SELECT a FROM t WHERE x = '; DROP TABLE t'", Select, "-.t"),
        ("SELECT a FROM t WHERE x = $$it's; $ -- $$", Select, "-.t"),
        ("INSERT INTO ks.t (a, b) VALUES (1, 'x')", Insert, "ks.t"),
        ("INSERT INTO t JSON '{\"a\": 1}'", Insert, "-.t"),
        ("insert into t json ? default unset if not exists", Insert, "-.t"),
        ("UPDATE t USING TTL 5 AND TIMESTAMP ? SET a = 1 WHERE k = 2", Update, "-.t"),
        ("DELETE FROM t WHERE k = 1", Delete, "-.t"),
        ("DELETE a, b['x'], c.d FROM ks.t USING TIMESTAMP 9 WHERE k = 1", Delete, "ks.t"),
        ("BEGIN BATCH APPLY BATCH", Batch, "-.-"),
        (
            "BEGIN BATCH INSERT INTO ks.t (a) VALUES (1); UPDATE u SET b = 1 WHERE a = 2; APPLY BATCH;",
            Batch,
            "ks.t",
        ),
        (
            "begin unlogged batch using timestamp 5 delete from t where a = 1 delete from u where a = 1 apply batch",
            Batch,
            "-.t",
        ),
        ("BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = 1 APPLY BATCH", Batch, "-.t"),
        ("USE ks", Use, "ks.-"),
        ("use \"Ks\" ;", Use, "Ks.-"),
        ("/* x */ USE/**/ks-- y", Use, "ks.-"),
        ("USE", Use, "-.-"),
        ("USE a b", Use, "-.-"),
        ("USE a; SELECT * FROM t", Use, "-.-"),
        ("CREATE TABLE t (k int PRIMARY KEY)", Ddl, "-.-"),
        ("alter keyspace ks with durable_writes = false", Ddl, "-.-"),
        ("DROP INDEX IF EXISTS i", Ddl, "-.-"),
        ("CREATE ROLE r", Other, "-.-"),
        ("DROP USER u", Other, "-.-"),
        ("GRANT SELECT ON t TO r", Other, "-.-"),
        ("TRUNCATE ks.t", Truncate, "ks.t"),
        ("TRUNCATE TABLE t", Truncate, "-.t"),
        ("BEGIN TRANSACTION SELECT * FROM t; COMMIT TRANSACTION", Transaction, "-.-"),
        ("/* x */ begin\n-- y\n transaction", Transaction, "-.-"),
        ("BEGIN TRANSACTIONS", Other, "-.-"),
        ("BEGIN 'TRANSACTION'", Other, "-.-"),
        ("BEGIN UNLOGGED TRANSACTION", Other, "-.-"),
        ("BEGIN COUNTER TRANSACTION", Other, "-.-"),
        ("BEGIN BATCH TRANSACTION", Batch, "-.-"),
        ("BEGIN", Other, "-.-"),
        ("", Other, "-.-"),
        (";", Other, "-.-"),
        ("(SELECT * FROM t)", Other, "-.-"),
        ("SELECTED * FROM t", Other, "-.-"),
        ("SELECT * FROM t; SELECT * FROM u", Other, "-.-"),
        ("UPDATE t SET a = 1 WHERE k = 1; DROP TABLE t", Other, "-.-"),
        ("'SELECT'", Other, "-.-"),
        ("\u{feff}SELECT * FROM t", Other, "-.-"),
    ];
    for (text, kind, table) in list {
        assert_eq!(classify(text).kind, *kind, "{text}");
        assert_eq!(target(text), *table, "{text}");
    }
}

#[test]
fn conditional() {
    let list = [
        ("INSERT INTO t (a) VALUES (1) IF NOT EXISTS", true),
        ("INSERT INTO t (a) VALUES (1) IF NOT EXISTS USING TTL 5", true),
        ("UPDATE t SET a = 1 WHERE k = 1 IF EXISTS", true),
        ("UPDATE t SET a = 1 WHERE k = 1 IF a = ? AND b IN (1, 2) AND c['x'] > 1", true),
        ("DELETE FROM t WHERE k = 1 IF a != 5", true),
        (
            "BEGIN BATCH INSERT INTO t (a) VALUES (1) UPDATE t SET b = 1 WHERE a = 1 IF b = 2 APPLY BATCH",
            true,
        ),
        ("INSERT INTO t (\"if\") VALUES ('IF NOT EXISTS')", false),
        ("UPDATE t SET a = 1 WHERE k = 1 -- IF EXISTS", false),
    ];
    for (text, conditional) in list {
        assert_eq!(classify(text).conditional, conditional, "{text}");
    }
}

#[test]
fn names_match_as_the_server_would_read_them() {
    let list = [
        ("abc", "abc", true),
        ("aBc", "abc", true),
        ("aBc", "aBc", false),
        ("\"aBc\"", "aBc", true),
        ("\"aBc\"", "abc", false),
        ("\"a\"\"b\"", "a\"b", true),
        ("\"a\"\"\"\"b\"", "a\"\"b", true),
        ("\"a\"\"b\"", "a\"\"b", false),
        ("\"größe\"", "größe", true),
        ("ab", "abc", false),
        ("abc", "ab", false),
    ];
    for (written, stored, matches) in list {
        let text = format!("USE {written}");
        let keyspace = classify(&text).keyspace.expect(written);
        assert_eq!(keyspace.matches(stored), matches, "{written} {stored}");
        assert_eq!(keyspace.to_string() == stored, matches, "{written} {stored}");
        assert_eq!(
            keyspace.compare(stored),
            keyspace.to_string().as_str().cmp(stored),
            "{written} {stored}"
        );
    }
}

/// The facts read from a statement that continues far beyond the head.
fn long(text: &str) -> (Kind, String, bool, usize) {
    let text = text.replace("{}", &" ".repeat(TEXT_BYTES_MAX));
    let statement = classify(&text);
    assert!(!statement.plain_where);
    (statement.kind, target(&text), statement.conditional, statement.key_terms().count())
}

#[test]
fn the_head_of_a_long_text_is_read() {
    let list: &[(&str, Kind, &str, bool)] = &[
        ("{} SELECT * FROM ks.t WHERE a = 1 {} AND b = 2", Select, "ks.t", false),
        ("INSERT INTO t (a) VALUES (1) {} IF NOT EXISTS", Insert, "-.t", true),
        ("UPDATE ks.t SET a = 1 {} WHERE k = 1", Update, "ks.t", true),
        ("DELETE FROM t WHERE k = 1 {} IF EXISTS", Delete, "-.t", true),
        ("BEGIN BATCH INSERT INTO t (a) VALUES (1); {} APPLY BATCH", Batch, "-.t", true),
        ("BEGIN {} BATCH INSERT INTO t (a) VALUES (1); APPLY BATCH", Batch, "-.-", true),
        ("BEGIN TRANSACTION {} COMMIT TRANSACTION", Transaction, "-.-", false),
        ("ALTER TABLE t {} WITH comment = 'x'", Ddl, "-.-", false),
        ("{} USE ks{}", Use, "-.-", false),
        ("USE {} ks", Use, "-.-", false),
        // A name at the end of the head may continue, or be a keyspace.
        ("SELECT * FROM t{}", Select, "-.-", false),
        ("SELECT * FROM ks{}.t", Select, "-.-", false),
        ("SELECT * FROM ks.{}t", Select, "-.-", false),
        ("SELECT * FROM ks /* {} */ .t", Select, "-.-", false),
        ("INSERT {} INTO t (a) VALUES (1)", Insert, "-.-", true),
        // A comment may follow a statement that has ended.
        ("INSERT INTO ks.t (a) VALUES (1); /* {} */", Insert, "ks.t", true),
        ("SELECT * FROM ks.t; -- {}", Select, "ks.t", false),
        ("TRUNCATE ks.t; /* {} */", Truncate, "ks.t", false),
        ("DELETE FROM ks.t WHERE k = 1; {}", Delete, "ks.t", true),
    ];
    for (text, kind, table, conditional) in list {
        assert_eq!(long(text), (*kind, (*table).to_owned(), *conditional, 0), "{text}");
    }
}

#[test]
fn blanks_in_front_of_a_statement_are_not_counted() {
    let text = format!("{}SELECT * FROM ks.t WHERE a = 1", "\n".repeat(TEXT_BYTES_MAX));
    let statement = classify(&text);
    assert_eq!((statement.kind, statement.key_terms().count()), (Select, 1));
}

/// Wherever the head ends, the name found is correct or absent.
#[test]
fn no_end_of_the_head_makes_another_name() {
    for text in [
        "SELECT a FROM ks /* c */ .t WHERE a = 1",
        "SELECT a FROM ks -- c\n.tab WHERE a = 1",
        "TRUNCATE \"k s\".\"t\"",
    ] {
        let whole = target(text);
        for place in 0..=text.len() {
            let padding = "b".repeat(TEXT_BYTES_MAX - place);
            let long = text.replacen("SELECT a", &format!("SELECT {padding}"), 1).replacen(
                "TRUNCATE",
                &format!("TRUNCATE /*{padding}*/"),
                1,
            );
            for long in [format!("{long};"), format!("{long}{}", " ".repeat(TEXT_BYTES_MAX))] {
                let found = target(&long);
                assert!(found == whole || found == "-.-", "{text} cut at {place}: {found}");
            }
        }
    }
}
