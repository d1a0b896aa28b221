//! Limits, and time that grows linearly with the text.

use std::time::{Duration, Instant};

use super::{check_standalone, transaction};
use crate::error::Refusal;
use crate::transaction::{STATEMENTS_MAX, TEXT_BYTES_MAX, parse};

fn deletes(count: usize) -> String {
    format!("BEGIN TRANSACTION {} COMMIT TRANSACTION", "DELETE FROM t WHERE k = ?; ".repeat(count))
}

#[test]
fn a_transaction_has_so_many_statements() {
    let text = deletes(STATEMENTS_MAX);
    check_standalone(&transaction(&text), &text);
    for count in [STATEMENTS_MAX + 1, 30_000] {
        let error = parse(&deletes(count)).expect_err("too many");
        assert_eq!(error.message(), "a transaction has at most 100 statements");
        assert!(matches!(error, Refusal::Invalid(_)));
    }
    let lets: String = (0..STATEMENTS_MAX)
        .map(|row| format!("LET r{row} = (SELECT * FROM t WHERE k = ?); "))
        .collect();
    assert!(parse(&format!("BEGIN TRANSACTION {lets} SELECT r0.v; COMMIT TRANSACTION")).is_ok());
    assert!(
        parse(&format!("BEGIN TRANSACTION {lets} DELETE FROM t WHERE k = 1; COMMIT TRANSACTION"))
            .is_err()
    );
}

#[test]
fn and_so_many_bytes() {
    let text = |bytes: usize| {
        let around = "BEGIN TRANSACTION DELETE FROM t WHERE k = ''; COMMIT TRANSACTION";
        around.replace("''", &format!("'{}'", "x".repeat(bytes - around.len())))
    };
    assert!(parse(&text(TEXT_BYTES_MAX)).is_ok());
    let error = parse(&text(TEXT_BYTES_MAX + 1)).expect_err("too long");
    assert_eq!(error.message(), "a transaction has 1048577 bytes; the limit is 1048576");
    assert!(matches!(error, Refusal::Invalid(_)));
    assert!(parse(&deletes(100_000)).is_err());
}

#[test]
fn markers_are_counted_over_all_statements() {
    let insert =
        |markers: usize| format!("INSERT INTO t (a) VALUES ({}?);", "?,".repeat(markers - 1));
    let text = format!("BEGIN TRANSACTION {} {} COMMIT TRANSACTION", insert(65_000), insert(535));
    assert_eq!(transaction(&text).markers.len(), 65_535);
    let text = format!("BEGIN TRANSACTION {} {} COMMIT TRANSACTION", insert(65_000), insert(536));
    assert!(parse(&text).expect_err("too many").message().contains("Too many markers(?)"));
}

/// Texts that repeat an element `count` times, for each repeatable element.
fn many(count: usize) -> Vec<String> {
    let list = |item: &str| vec![item; count].join(", ");
    let all = |item: &str| vec![item; count].join(" AND ");
    let columns = (0..count).map(|column| format!("c{column}")).collect::<Vec<_>>();
    let references = (0..count).map(|column| format!("a.c{column}")).collect::<Vec<_>>();
    let sums = (0..count).map(|column| format!("c{column} += ?")).collect::<Vec<_>>();
    let row = format!("LET a = (SELECT {} FROM t WHERE k = 1);", columns.join(", "));
    vec![
        format!("BEGIN TRANSACTION {row} SELECT {}; COMMIT TRANSACTION", references.join(", ")),
        format!(
            "BEGIN TRANSACTION {row} INSERT INTO t (k) VALUES ({}); COMMIT TRANSACTION",
            references.join(", ")
        ),
        format!("BEGIN TRANSACTION {row} SELECT {}; COMMIT TRANSACTION", list("a.c0[?]")),
        format!(
            "BEGIN TRANSACTION {row} IF {} THEN DELETE FROM t WHERE k = 1; END IF COMMIT TRANSACTION",
            all("a.c0 = ?")
        ),
        format!(
            "BEGIN TRANSACTION UPDATE t SET {} WHERE k = 1; COMMIT TRANSACTION",
            sums.join(", ")
        ),
        format!("BEGIN TRANSACTION SELECT * FROM t WHERE {}; COMMIT TRANSACTION", all("k = (1)")),
        format!(
            "BEGIN TRANSACTION DELETE FROM t WHERE k = 1; COMMIT TRANSACTION {}",
            ";".repeat(count)
        ),
    ]
}

/// A cost that grows with the text takes a second.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn time_grows_with_the_text() {
    // A second at this length would become a quarter of a day if time grew with the square.
    for text in many(20_000) {
        let started = Instant::now();
        let found = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", &text[..200]));
        check_standalone(&found, &text);
        assert!(started.elapsed() < PATIENCE, "{}: {:?}", &text[..100], started.elapsed());
    }
    for text in many(100_000) {
        let started = Instant::now();
        let _ = parse(&text);
        assert!(started.elapsed() < PATIENCE, "{}: {:?}", &text[..100], started.elapsed());
    }
}

#[test]
fn nesting_has_a_limit() {
    let places = [
        ("BEGIN TRANSACTION LET a = (SELECT ", ""),
        ("BEGIN TRANSACTION LET ", ""),
        ("BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); SELECT a.v[", "]"),
        ("BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); IF a.v = ", ""),
        ("BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); IF ", " = a.v"),
        ("BEGIN TRANSACTION UPDATE t SET v = ", ""),
        ("BEGIN TRANSACTION ", ""),
    ];
    for (before, after) in places {
        for opener in [
            "(",
            "[",
            "{",
            "f(",
            "-",
            "a.",
            "a[",
            "(int) ",
            "(SELECT ",
            "IF ",
            "BEGIN TRANSACTION ",
        ] {
            let text = format!("{before}{}{after}", opener.repeat(100_000 / opener.len()));
            assert!(parse(&text).is_err(), "{before}{opener}");
        }
    }
    // The deepest nesting, with the longest chain of operators in each level.
    let chains = (0..40).fold("v".to_owned(), |inner, _| {
        format!("({inner}){}{}", "*v".repeat(40), "+v".repeat(40))
    });
    assert!(
        parse(&format!("BEGIN TRANSACTION SELECT {chains} FROM t WHERE k = 1; COMMIT TRANSACTION"))
            .is_ok()
    );
}
