//! Guarded statements.

use super::super::guard::{Given, Guard, guarded, may_be_guarded};
use super::super::parse_alone;

fn marker<T>(index: u16, name: &str) -> Given<T> {
    Given::Marker { index, name: name.to_owned() }
}

#[test]
fn a_lock_is_taken_out_and_the_rest_is_the_statement() {
    for (text, rest, guards, markers, names) in [
        (
            "UPDATE t SET a = ? WHERE k = ? IF \"shunt:lock\" = ? AND \"shunt:fence\" = ?",
            "UPDATE t SET a = ? WHERE k = ? ",
            vec![Guard {
                is_fast: false,
                lock: marker(2, "shunt:lock"),
                fence: marker(3, "shunt:fence"),
            }],
            4,
            vec!["shunt:lock", "shunt:fence"],
        ),
        (
            "delete from t where k = :k if \"shunt:fence\" = :f and \"shunt:fast_lock\" = :k;",
            "delete from t where k = :k ;",
            vec![Guard { is_fast: true, lock: marker(2, "k"), fence: marker(1, "f") }],
            3,
            vec!["f"],
        ),
        (
            "UPDATE t SET a = 'IF \"shunt:lock\"' WHERE k = 1 IF \"shunt:lock\" = 'order ''5''' AND \"shunt:fence\" = -17",
            "UPDATE t SET a = 'IF \"shunt:lock\"' WHERE k = 1 ",
            vec![Guard {
                is_fast: false,
                lock: Given::Literal("order '5'".to_owned()),
                fence: Given::Literal(-17),
            }],
            0,
            vec![],
        ),
        (
            "BEGIN BATCH UPDATE t SET a = ? WHERE k = 1 IF \"shunt:lock\" = ? AND \"shunt:fence\" = 2 INSERT INTO t (k) VALUES (?); \
             DELETE FROM t WHERE k = 2 IF \"shunt:lock\" = 'l' AND \"shunt:fence\" = ?; APPLY BATCH",
            "BEGIN BATCH UPDATE t SET a = ? WHERE k = 1  INSERT INTO t (k) VALUES (?); DELETE FROM t WHERE k = 2 ; APPLY BATCH",
            vec![
                Guard { is_fast: false, lock: marker(1, "shunt:lock"), fence: Given::Literal(2) },
                Guard {
                    is_fast: false,
                    lock: Given::Literal("l".to_owned()),
                    fence: marker(3, "shunt:fence"),
                },
            ],
            4,
            vec!["shunt:lock", "shunt:fence"],
        ),
    ] {
        let (found, of) = guarded(text).expect("a guard").expect("there is one");
        assert_eq!((found.as_str(), &of.all, of.markers), (rest, &guards, markers), "{text}");
        assert_eq!(of.names, names, "{text}");
        let alone = parse_alone(rest).unwrap_or_else(|error| panic!("{rest}: {error}"));
        assert_eq!(alone.markers.len() + of.gone().count(), markers, "{text}");
        assert_eq!(guarded(rest), Ok(None));
    }
}

#[test]
fn other_conditions_are_a_nodes() {
    for text in [
        "UPDATE t SET a = '\"shunt:lock\"' WHERE k = 1 IF a = 2",
        "UPDATE t SET a = 1 WHERE k = 1 IF EXISTS /* \"shunt:lock\" */",
        "INSERT INTO t (k, \"shunt:lock\") VALUES (1, 2) IF NOT EXISTS",
        "INSERT INTO t (k) VALUES (1) IF \"shunt:lock\" = 'a' AND \"shunt:fence\" = 1",
        "SELECT \"shunt:lock\" FROM t WHERE k = 1",
        "BEGIN TRANSACTION UPDATE t SET a = 1 WHERE k = 1 IF \"shunt:lock\" = 'a'; COMMIT TRANSACTION",
        "\"shunt:",
    ] {
        assert!(may_be_guarded(text), "{text}");
        assert_eq!(guarded(text), Ok(None), "{text}");
    }
    assert!(
        !may_be_guarded("UPDATE t SET a = 1 WHERE k = 'shunt:lock' IF a = 1")
            && !may_be_guarded("")
    );
}

#[test]
fn unknown_guards_are_refused_by_name() {
    for (condition, shown) in [
        ("\"shunt:locks\" = 'a'", "there is no \"shunt:locks\""),
        ("\"Shunt:Lock\" = 'a' AND \"shunt:fence\" = 1", "there is no \"Shunt:Lock\""),
        ("\"shunt:\" = 1", "there is no \"shunt:\""),
        (
            "a = 1 AND \"shunt:lock\" = 'a' AND \"shunt:fence\" = 1",
            "may not specify their own conditions: there is one on a",
        ),
        ("\"shunt:lock\" = 'a'", "a guard is IF"),
        ("\"shunt:fence\" = 1", "a guard is IF"),
        ("\"shunt:lock\" = 'a' AND \"shunt:fast_lock\" = 'a' AND \"shunt:fence\" = 1", "each once"),
        ("\"shunt:lock\" = 'a' AND \"shunt:fence\" = 1 AND \"shunt:fence\" = 1", "each once"),
        ("\"shunt:lock\" = 1 AND \"shunt:fence\" = 1", "as text"),
        ("\"shunt:lock\" = 'a' AND \"shunt:fence\" = '1'", "as text"),
        ("\"shunt:lock\" = 'a' AND \"shunt:fence\" = 99999999999999999999", "as text"),
        ("\"shunt:lock\" = 'a' AND \"shunt:fence\" >= 1", "as text"),
        ("\"shunt:lock\" IN ('a') AND \"shunt:fence\" = 1", "as text"),
        ("\"shunt:lock\" IN ? AND \"shunt:fence\" = 1", "as text"),
        ("\"shunt:lock\"['a'] = 'a' AND \"shunt:fence\" = 1", "as text"),
        ("\"shunt:lock\" = null AND \"shunt:fence\" = 1", "as text"),
        ("\"shunt:lock\" = 'a' AND \"shunt:fence\" = 1 + 1", "as text"),
    ] {
        let text = format!("UPDATE t SET a = 1 WHERE k = 1 IF {condition}");
        let error = guarded(&text).expect_err(condition);
        assert!(
            error.message.starts_with("UPDATE at [1:1]: ") && error.message.contains(shown),
            "{condition}: {error}"
        );
        let batch = format!("BEGIN BATCH {text} APPLY BATCH");
        assert!(guarded(&batch).is_err(), "{batch}");
    }
}

/// A batch with this many guarded statements, and this many further markers in the first.
fn batch(guards: usize, markers: usize) -> String {
    let guard = "IF \"shunt:lock\" = ? AND \"shunt:fence\" = ?";
    let list = vec!["?"; markers - 1].join(",");
    let first = format!("UPDATE t SET l = [{list}] WHERE k = ? {guard}\n");
    let others = format!("UPDATE t SET l = 1 WHERE k = 1 {guard}\n").repeat(guards - 1);
    format!("BEGIN BATCH {first}{others}APPLY BATCH")
}

/// Comparing each marker with each guard's, once per guard, would take 2.6 billion steps, before
/// the sender is authorised.
#[test]
fn a_batch_has_as_many_guards_and_markers_as_it_may_and_no_more() {
    let (_, guards) = guarded(&batch(100, 4_096)).expect("as many as may be").expect("guards");
    assert_eq!((guards.all.len(), guards.markers, guards.gone().count()), (100, 4_296, 200));
    assert_eq!(guards.names.len(), 200);
    for markers in [4_097, 65_000, 65_335] {
        let error = guarded(&batch(100, markers)).expect_err("too many");
        assert!(
            error.message.contains(&format!("{markers} bind markers; the limit is 4096")),
            "{}",
            error.message
        );
    }
}

#[test]
fn a_name_that_something_else_has_too_is_given_a_value_still() {
    let text = "BEGIN BATCH UPDATE t SET a = :l WHERE k = 1 IF \"shunt:lock\" = :l AND \"shunt:fence\" = :f \
                UPDATE t SET a = 1 WHERE k = 2 IF \"shunt:lock\" = :m AND \"shunt:fence\" = :f; APPLY BATCH";
    let (_, guards) = guarded(text).expect("guards").expect("there are some");
    assert_eq!(guards.names, ["f", "m", "f"]);
}
