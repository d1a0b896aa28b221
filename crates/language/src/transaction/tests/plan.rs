//! Texts of separate statements, and the places of marker values.

use super::{check_standalone, transaction};
use crate::ast::Statement;
use crate::transaction::{ComputedMarker, Inner, MarkerPlace, MarkerSource, Test, Transaction};

const TEXT: &str = "BEGIN TRANSACTION
  LET a = (SELECT v, m FROM t WHERE k = ? LIMIT :one);
  LET b = (SELECT * FROM u WHERE k = :k);
  SELECT a.m[?];
  IF a.v >= ? AND ? = a.m[:key] THEN
    UPDATE t SET n = n - ?, v = a.m[?], w += b.w, x = x + 1 WHERE k = ? AND c = :k;
    INSERT INTO u (k, v, w) VALUES (?, b.\"V\", {'?': ':x'});
  END IF
COMMIT TRANSACTION";

fn texts<'t>(transaction: &Transaction, text: &'t str) -> Vec<std::borrow::Cow<'t, str>> {
    transaction.statements.iter().map(|inner| inner.standalone(text)).collect()
}

fn sources(inner: &Inner) -> Vec<String> {
    let shown = |marker: &crate::transaction::Marker| match &marker.source {
        MarkerSource::Client(index) => index.to_string(),
        MarkerSource::Reference(reference) => {
            format!("{}.{}", reference.row, reference.column.as_deref().unwrap_or_default())
        }
    };
    inner.markers.iter().map(shown).collect()
}

#[test]
fn statements_by_themselves() {
    let found = transaction(TEXT);
    assert_eq!(
        texts(&found, TEXT),
        [
            "SELECT v, m FROM t WHERE k = ? LIMIT :one",
            "SELECT * FROM u WHERE k = :k",
            "UPDATE t SET n = n - ?, v = ?, w += ?, x = x + 1 WHERE k = ? AND c = :k",
            "INSERT INTO u (k, v, w) VALUES (?, ?, {'?': ':x'})",
        ]
    );
    let of: Vec<_> = found.statements.iter().map(sources).collect();
    assert_eq!(of, [&["0", "1"][..], &["2"], &["7", "a.m", "b.w", "9", "10"], &["11", "b.V"]]);
    check_standalone(&found, TEXT);
    assert!(matches!(found.statements[1].statement, Statement::Select(_)));
    assert_eq!(found.name_of(0, TEXT), "LET a at [2:12]");
    let tables: Vec<_> = found
        .references()
        .map(|reference| found.table(reference).expect("a table").name.as_str())
        .collect();
    assert_eq!(tables, ["t", "t", "t", "t", "u", "u"]);
    assert_eq!(found.name_of(3, TEXT), "INSERT at [7:5]");
}

#[test]
fn every_marker_of_the_client_has_its_place() {
    use MarkerPlace::{Condition, Element, Returned, Statement};
    let found = transaction(TEXT);
    let names: Vec<_> =
        found.markers.iter().map(|marker| marker.name.as_deref().unwrap_or("?")).collect();
    assert_eq!(names, ["?", "one", "k", "?", "?", "?", "key", "?", "?", "?", "k", "?"]);
    let places: Vec<_> = found.markers.iter().map(|marker| marker.place).collect();
    let of = |statement, marker| Statement { statement, marker };
    assert_eq!(
        places,
        [
            of(0, 0),
            of(0, 1),
            of(1, 0),
            Returned(0),
            Condition(0),
            Condition(1),
            Condition(1),
            of(2, 0),
            Element { statement: 2, marker: 1 },
            of(2, 3),
            of(2, 4),
            of(3, 0),
        ]
    );
}

#[test]
fn assignments_to_be_computed_become_markers() {
    use ComputedMarker::{Same, SelfAssignment};
    let found = transaction(TEXT);
    let update = &found.statements[2];
    let columns: Vec<_> =
        update.self_assignments.iter().map(|assignment| assignment.column.as_str()).collect();
    assert_eq!(columns, ["n", "w", "x"]);
    let all = update.computed(TEXT, |_| true).expect("each once");
    assert_eq!(all.text, "UPDATE t SET n = ?, v = ?, w = ?, x = ? WHERE k = ? AND c = :k");
    let expected =
        [SelfAssignment(0), Same(1), SelfAssignment(1), SelfAssignment(2), Same(3), Same(4)];
    assert_eq!(all.markers, expected);
    let some = update.computed(TEXT, |assignment| assignment.column == "x").expect("once");
    assert_eq!(some.text, "UPDATE t SET n = n - ?, v = ?, w += ?, x = ? WHERE k = ? AND c = :k");
    assert_eq!(some.markers, [Same(0), Same(1), Same(2), SelfAssignment(2), Same(3), Same(4)]);
    let text = "BEGIN TRANSACTION UPDATE t SET v = v -3, w=w+?,l = [1] + l WHERE k = 1; COMMIT TRANSACTION";
    let found = transaction(text);
    let all = found.statements[0].computed(text, |_| true).expect("each once");
    assert_eq!(all.text, "UPDATE t SET v = ?, w= ?,l = [1] + l WHERE k = 1");
    assert_eq!(all.markers, [SelfAssignment(0), SelfAssignment(1)]);
    let text = "BEGIN TRANSACTION UPDATE t SET l += [1], l = [2] + l, n += 1 WHERE k = 1; COMMIT TRANSACTION";
    let found = transaction(text);
    assert!(found.statements[0].computed(text, |assignment| assignment.column == "n").is_ok());
    let error = found.statements[0].computed(text, |_| true).expect_err("twice");
    assert_eq!(error.message, "Multiple incompatible setting of column l");
}

#[test]
fn a_term_that_comes_first_turns_its_comparison_round() {
    let shown = |condition: &str| {
        let text = format!(
            "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); IF {condition} THEN DELETE FROM t WHERE k = 1; \
             END IF COMMIT TRANSACTION"
        );
        let found = transaction(&text);
        assert_eq!(&text[found.conditions[0].range.clone()], condition);
        match &found.conditions[0].test {
            Test::Compare(comparison, term) => format!("{comparison:?} {term}"),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(shown("a.v < 3"), "Less 3");
    assert_eq!(shown("3 < a.v"), "Greater 3");
    assert_eq!(shown("3 >= a.v"), "LessOrEqual 3");
    assert_eq!(shown("? != a.v"), "NotEqual ?");
    assert_eq!(shown("f(1, 2) <= a.v"), "GreaterOrEqual f(1, 2)");
    assert_eq!(shown("cast(1 AS text) > a.v"), "Less cast(1 as text)");
    assert_eq!(shown("a IS NOT NULL"), "IsNotNull");
    assert_eq!(shown("a.v IS NULL"), "IsNull");
}

#[test]
fn values_that_would_be_others_each_time_become_markers() {
    use ComputedMarker::{Call, Same, SelfAssignment};
    let text = "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); \
                INSERT INTO t (k, at, v, w) VALUES (?, toTimestamp(now()), a.v, f(?)); \
                UPDATE t SET at = ? + now(), l = [uuid(), ?] + l, n += system.now(), m['x'] = current_date(), \
                i = i + (int) ks.now() WHERE k = minTimeuuid(?); COMMIT TRANSACTION";
    let found = transaction(text);
    let shown = |index: usize| {
        found.statements[index]
            .computed(text, |assignment| assignment.column == "n")
            .expect("each once")
    };
    let insert = shown(1);
    assert_eq!(insert.text, "INSERT INTO t (k, at, v, w) VALUES (?, ?, ?, f(?))");
    assert_eq!(insert.markers, [Same(0), Call(0), Same(1), Same(2)]);
    let update = shown(2);
    let expected = "UPDATE t SET at = ?, l = ? + l, n = ?, m['x'] = ?, i = i + (int) ks.now() WHERE k = minTimeuuid(?)";
    assert_eq!(update.text, expected);
    assert_eq!(update.markers, [Call(0), Call(1), SelfAssignment(0), Call(3), Same(2)]);
    check_standalone(&found, text);
}
