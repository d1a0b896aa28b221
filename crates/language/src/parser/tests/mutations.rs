//! `INSERT`, `UPDATE`, `DELETE` and `BATCH`.

use super::{mutation, statement};
use crate::ast::{
    BatchKind, Comparison, Conditions, Deletion, Mutation, Operation, Statement, Term,
};

#[test]
fn assignments() {
    let cases = [
        ("c = 1", "set 1"),
        ("c = c + 1", "add 1"),
        ("c = c - 1", "subtract 1"),
        ("c = c -1", "add -1"),
        ("c = c+ [1]", "add [1]"),
        ("c = [1] + c", "prepend [1]"),
        ("c = ? + c", "prepend ?"),
        ("c += {1}", "add {1}"),
        ("c -= 1", "subtract 1"),
        ("c[2] = 1", "element 2 1"),
        ("c.f = 1", "field f 1"),
        ("c = f(1) + 2", "set f(1) + 2"),
        ("c = 1 + 2 + c", "prepend 1 + 2"),
        ("c = c + 1 + 2", "add 1 + 2"),
    ];
    for (text, expected) in cases {
        let Mutation::Update(update) = mutation(&format!("UPDATE t SET {text} WHERE k = 0")) else {
            panic!("{text}: no UPDATE");
        };
        let found = match &update.assignments[0].operation {
            Operation::Set(term) => format!("set {term}"),
            Operation::Add(term) => format!("add {term}"),
            Operation::Subtract(term) => format!("subtract {term}"),
            Operation::Prepend(term) => format!("prepend {term}"),
            Operation::SetElement(key, term) => format!("element {key} {term}"),
            Operation::SetField(field, term) => format!("field {field} {term}"),
        };
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn update_with_everything() {
    let text = "UPDATE k.t USING TIMESTAMP ? AND TTL 5 SET a = 1, b[0] = 2, b[1] = 3 WHERE k = 0 \
                IF a != 1 AND m['x'] IN (1, 2) AND u.f >= ? AND l IN ? AND s CONTAINS 4";
    let Mutation::Update(update) = mutation(text) else { panic!("no UPDATE") };
    assert_eq!(update.attributes.timestamp, Some(Term::Marker(0)));
    assert_eq!(update.assignments.len(), 3);
    let Conditions::All(conditions) = update.conditions else { panic!("no conditions") };
    assert_eq!(conditions[0].comparison, Some(Comparison::NotEqual));
    assert!(
        conditions[1].element.is_some()
            && conditions[1].comparison.is_none()
            && conditions[1].values.len() == 2
    );
    assert_eq!(conditions[2].field.as_deref(), Some("f"));
    assert!(conditions[3].in_marker);
    assert_eq!(conditions[4].comparison, Some(Comparison::Contains));
}

#[test]
fn conditions_on_existence() {
    let conditions = |text: &str| match mutation(text) {
        Mutation::Update(update) => update.conditions,
        Mutation::Delete(delete) => delete.conditions,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(conditions("UPDATE t SET a = 1 WHERE k = 0"), Conditions::None);
    assert_eq!(conditions("UPDATE t SET a = 1 WHERE k = 0 IF EXISTS"), Conditions::Exists);
    assert_eq!(conditions("DELETE FROM t WHERE k = 0 IF EXISTS;"), Conditions::Exists);
    assert!(matches!(conditions("DELETE FROM t WHERE k = 0 IF exists = 1"), Conditions::All(_)));
}

#[test]
fn insert_and_delete() {
    let Mutation::Insert(insert) =
        mutation("INSERT INTO t (a, \"B\") VALUES (?, :b) IF NOT EXISTS USING TTL 3")
    else {
        panic!("no INSERT");
    };
    assert_eq!(insert.columns, ["a", "B"]);
    assert_eq!(insert.values, [Term::Marker(0), Term::Marker(1)]);
    assert!(insert.if_not_exists && insert.attributes.time_to_live.is_some());

    let Mutation::InsertJson(insert) = mutation("INSERT INTO t JSON ? DEFAULT UNSET") else {
        panic!("no INSERT")
    };
    assert!(insert.default_unset && !insert.if_not_exists);

    let Mutation::Delete(delete) =
        mutation("DELETE a, b[1], c.d FROM t USING TIMESTAMP 1 WHERE k = 0")
    else {
        panic!("no DELETE");
    };
    assert_eq!(delete.deletions[0], Deletion::Column("a".to_owned()));
    assert_eq!(delete.deletions[2], Deletion::Field("c".to_owned(), "d".to_owned()));
    assert!(delete.attributes.timestamp.is_some());
}

#[test]
fn batches() {
    let text = "BEGIN UNLOGGED BATCH USING TIMESTAMP 1 INSERT INTO t (a) VALUES (?); UPDATE t SET a = ? WHERE k = 0 \
                DELETE FROM t WHERE k = ?; APPLY BATCH;";
    let Statement::Batch(batch) = statement(text) else { panic!("no BATCH") };
    assert_eq!(batch.kind, BatchKind::Unlogged);
    assert_eq!(batch.mutations.len(), 3);
    assert!(batch.attributes.timestamp.is_some());
    assert_eq!(batch.mutations[2].table().name, "t");
    assert!(!batch.mutations[0].is_conditional());
}
