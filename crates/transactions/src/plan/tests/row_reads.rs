//! Rows that computed values and references need, beside those of the text.

use super::*;

/// A table with a static column, and two clustering columns.
fn sums() -> Arc<Table> {
    table(
        "sums",
        &[
            ("k", "partition_key", 0, "int"),
            ("c1", "clustering", 0, "int"),
            ("c2", "clustering", 1, "int"),
            ("amount", "regular", -1, "int"),
            ("total", "static", -1, "int"),
            ("Last", "static", -1, "int"),
        ],
    )
}

fn draft_of(body: &str) -> Result<Draft, String> {
    let text = format!("BEGIN TRANSACTION {body} COMMIT TRANSACTION");
    let outline = Outline::parse(&text, "ks").map_err(|refusal| refusal.to_string())?;
    Draft::new(outline, &[sums()], 0, false).map_err(|error| error.message)
}

fn plan_of(body: &str, columns: &[&[&str]]) -> Plan {
    let draft = draft_of(body).expect(body);
    let shown = shown(&draft, columns);
    Plan::new(draft, &shown).expect(body)
}

fn reads(plan: &Plan) -> Vec<&str> {
    plan.draft.reads.iter().map(|read| &*read.text).collect()
}

/// A node returns a static column beside a clustering column only if the row exists.
#[test]
fn a_static_column_is_computed_from_its_partition_whether_the_row_exists_or_not() {
    let plan = plan_of(
        "UPDATE sums SET amount += ?, total += ?, \"Last\" += 1 WHERE k = ? AND c1 = 2 AND c2 = 3;",
        &[&["amount"], &["total", "Last"]],
    );
    assert_eq!(
        reads(&plan),
        [
            "SELECT amount FROM ks.sums WHERE k = ? AND c1 = ? AND c2 = ?",
            "SELECT total, \"Last\" FROM ks.sums WHERE k = ? LIMIT 1",
        ]
    );
    let list = ints(&[5, 10, 1]);
    let values = plan.bind(&list.values()).expect("values");
    let bound = plan.with(&values);
    assert_eq!([0, 1].map(|read| bound.read_values(read).expect("a key").values().len()), [3, 1]);
    let rows = [None, row(&[Some(100), Some(7)])];
    assert_eq!(
        bound.decide(&rows),
        Ok(PlanDecision::Write(vec![vec![Value::Unset, int(110), int(8), int(1)]]))
    );
    let rows = [row(&[Some(1)]), None];
    assert_eq!(
        bound.decide(&rows),
        Ok(PlanDecision::Write(vec![vec![int(6), Value::Unset, Value::Unset, int(1)]]))
    );
    let alone = plan_of("UPDATE sums SET total += 10 WHERE k = 1;", &[&["total"]]);
    assert_eq!(reads(&alone), ["SELECT total FROM ks.sums WHERE k = ? LIMIT 1"]);
    let set = plan_of(
        "UPDATE sums SET amount = 10, total += 10 WHERE k = 1 AND c1 = 2 AND c2 = 3;",
        &[&["total"]],
    );
    assert_eq!(reads(&set), ["SELECT total FROM ks.sums WHERE k = ? LIMIT 1"]);
    assert_eq!(
        set.with(&[]).decide(&[row(&[Some(100)])]),
        Ok(PlanDecision::Write(vec![vec![int(110)]]))
    );
}

#[test]
fn a_reference_to_a_static_column_needs_no_row() {
    let read = "LET m = (SELECT * FROM sums WHERE k = ? AND c1 = 2 AND c2 = 3);";
    let body = format!(
        "{read} SELECT m.total; IF m IS NULL AND m.total >= 100 THEN \
         UPDATE sums SET total = m.\"Last\" WHERE k = 9; END IF"
    );
    let plan = plan_of(&body, &[&["k", "c1", "c2", "Last", "total", "amount"], &["Last", "total"]]);
    assert_eq!(reads(&plan)[1], "SELECT \"Last\", total FROM ks.sums WHERE k = ? LIMIT 1");
    let list = ints(&[1]);
    let values = plan.bind(&list.values()).expect("values");
    let bound = plan.with(&values);
    let rows = [None, row(&[Some(7), Some(100)])];
    assert_eq!(bound.returned(&rows), Ok(Some(vec![Some(100_i32.to_be_bytes().to_vec())])));
    assert_eq!(bound.decide(&rows), Ok(PlanDecision::Write(vec![vec![int(7)]])));
    assert_eq!(bound.decide(&[None, None]), Ok(PlanDecision::Nothing));
    // The read of a LET that names no row finds it, and so does one that filters rows.
    for relations in ["k = 1 LIMIT 1", "k = 1 AND c1 = 2 AND amount = 5 LIMIT 1"] {
        let body = format!(
            "LET m = (SELECT total FROM sums WHERE {relations}); \
             IF m.total > 1 THEN DELETE FROM sums WHERE k = 1 AND c1 = 1 AND c2 = 1; END IF"
        );
        assert_eq!(reads(&plan_of(&body, &[&["total"]])).len(), 1, "{relations}");
    }
    let part = "LET m = (SELECT total, amount FROM sums WHERE k = 1 AND c1 > 2 LIMIT 1); \
                SELECT m.amount, m.total;";
    let plan = plan_of(part, &[&["total", "amount"], &["total"]]);
    assert_eq!(reads(&plan)[1], "SELECT total FROM ks.sums WHERE k = ? LIMIT 1");
}

/// The row that such a statement writes cannot be read column by column.
#[test]
fn a_key_that_comes_as_one_tuple_in_a_marker_is_refused_for_writes() {
    for body in [
        "UPDATE sums SET amount += ? WHERE k = ? AND (c1, c2) = ?;",
        "UPDATE sums SET amount += ? WHERE k = ? AND c1 = 1 AND (c2) = ?;",
        "DELETE FROM sums WHERE k = ? AND (c1, c2) = ?;",
        "DELETE amount FROM sums WHERE k = ? AND (c1, c2) = ?;",
    ] {
        let refused = draft_of(body).expect_err(body);
        assert!(
            refused.contains("give each column of its key one value with ="),
            "{body}: {refused}"
        );
    }
    for relations in ["(c1, c2) = (?, ?)", "(c1, c2) = (1, 2)", "c1 = ? AND (c2) = (?)"] {
        let body = format!("UPDATE sums SET amount += 1 WHERE k = 1 AND {relations};");
        let plan = plan_of(&body, &[&["amount"]]);
        let read = "SELECT amount FROM ks.sums WHERE k = ? AND c1 = ? AND c2 = ?";
        assert_eq!(reads(&plan), [read], "{relations}");
    }
    let read = "LET m = (SELECT amount FROM sums WHERE k = 1 AND (c1, c2) = ?); SELECT m.amount;";
    assert_eq!(reads(&plan_of(read, &[&["amount"]])).len(), 1);
}
