//! Conditions and assignments over current rows.

use super::transaction;
use crate::CqlType;
use crate::functions::Environment;
use crate::terms::{Bindings, Scope, Value};
use crate::transaction::Returned;
use crate::types::tests::Types;
use crate::values::{from_string, literal};
use crate::work::Work;

struct Fixed(Vec<Value>);

impl Environment for Fixed {
    fn now_ms(&self) -> i64 {
        0
    }

    fn timeuuid(&self) -> [u8; 16] {
        [0x11; 16]
    }

    fn random(&self) -> u128 {
        0
    }

    fn token(&self, _: &[u8]) -> i64 {
        0
    }
}

impl Bindings for Fixed {
    fn value(&self, index: u16) -> Value {
        self.0.get(usize::from(index)).cloned().unwrap_or(Value::Unset)
    }
}

/// The value of a term for a type.
fn value(term: &str, name: &str) -> Option<Vec<u8>> {
    let cql_type = CqlType::parse(name, &Types).expect(name);
    let parsed = crate::parse(&format!("INSERT INTO t (a) VALUES ({term})")).expect(term);
    let crate::ast::Statement::Mutation(crate::ast::Mutation::Insert(insert)) = parsed.statement
    else {
        panic!("{term}")
    };
    let mut scope = Scope::new(&Types, None, 0, 0);
    let prepared =
        crate::terms::prepare(&insert.values[0], "c", &cql_type, &mut scope).expect(term);
    prepared.evaluate(&Fixed(Vec::new())).expect(term).into_bytes()
}

/// Returns whether a condition on `v.c` holds for a value of a type; `none` means an absent row.
fn holds_with(condition: &str, name: &str, row: &str, binds: Vec<Value>) -> Result<bool, String> {
    let text = format!(
        "BEGIN TRANSACTION LET v = (SELECT c FROM t WHERE k = 1); IF {condition} THEN DELETE FROM t WHERE k = 1; END IF \
         COMMIT TRANSACTION"
    );
    let found = transaction(&text);
    let condition = &found.conditions[0];
    let cql_type = CqlType::parse(name, &Types).expect(name);
    let column = condition.reference.column.as_ref().map(|_| &cql_type);
    let mut scope = Scope::new(&Types, None, 0, found.markers.len());
    let prepared = condition.prepare(column, &mut scope).map_err(|error| error.message)?;
    let exists = row != "none";
    let current = if exists { value(row, name) } else { None };
    prepared
        .holds(exists, current.as_deref(), &Fixed(binds), &Work::default())
        .map_err(|error| error.message)
}

fn holds(condition: &str, name: &str, row: &str) -> bool {
    holds_with(condition, name, row, Vec::new()).expect(condition)
}

#[test]
fn values_compare_as_their_types_do() {
    for (condition, name, row, expected) in [
        ("v.c = 3", "int", "3", true),
        ("v.c != 3", "int", "3", false),
        ("v.c < 3", "int", "-1", true),
        ("v.c > -1", "int", "3", true),
        ("v.c >= 3", "int", "3", true),
        ("v.c <= 2", "int", "3", false),
        ("3 > v.c", "int", "2", true),
        ("3 > v.c", "int", "3", false),
        ("v.c < 'b'", "text", "'a'", true),
        ("v.c > 9", "varint", "10", true),
        ("v.c = 1.50", "decimal", "1.5", true),
        ("v.c = false", "boolean", "false", true),
        ("v.c < '2020-01-01'", "timestamp", "'2019-12-31'", true),
        ("v.c = [1, 2]", "list<int>", "[1, 2]", true),
        ("v.c = {2, 1}", "set<int>", "{1, 2}", true),
        ("v.c = (1, 'a')", "tuple<int, text>", "(1, 'a')", true),
        ("v.c = 1h", "duration", "60m", true),
        ("v.c['a'] = 1", "map<text, int>", "{'a': 1, 'b': 2}", true),
        ("v.c['x'] = 1", "map<text, int>", "{'a': 1}", false),
        ("v.c['x'] != 1", "map<text, int>", "{'a': 1}", false),
        ("v.c[1] = 5", "list<int>", "[4, 5]", true),
        ("v.c[2] != 5", "list<int>", "[4, 5]", false),
    ] {
        assert_eq!(holds(condition, name, row), expected, "{condition} of {name} {row}");
    }
}

#[test]
fn null_compares_false_and_can_be_asked_for() {
    for comparison in ["=", "!=", "<", "<=", ">", ">="] {
        for row in ["null", "none"] {
            assert!(!holds(&format!("v.c {comparison} 3"), "int", row), "{comparison}");
            assert!(!holds(&format!("v.c {comparison} null"), "int", row), "{comparison}");
        }
        assert!(!holds(&format!("v.c {comparison} null"), "int", "3"), "{comparison}");
        let null = holds_with(&format!("v.c {comparison} ?"), "int", "3", vec![Value::Null]);
        assert_eq!(null, Ok(false), "{comparison}");
    }
    for (row, row_is_null, value_is_null) in
        [("none", true, true), ("null", false, true), ("3", false, false)]
    {
        assert_eq!(holds("v IS NULL", "int", row), row_is_null, "{row}");
        assert_eq!(holds("v IS NOT NULL", "int", row), !row_is_null, "{row}");
        assert_eq!(holds("v.c IS NULL", "int", row), value_is_null, "{row}");
        assert_eq!(holds("v.c IS NOT NULL", "int", row), !value_is_null, "{row}");
    }
    assert!(holds("v.c['x'] IS NULL", "map<text, int>", "{'a': 1}"));
    assert!(holds("v.c[0] IS NOT NULL", "list<int>", "[1]"));
    assert!(holds("v.c['a'] IS NOT NULL", "set<text>", "{'a'}"));
    assert!(holds("v.c['b'] IS NULL", "set<text>", "{'a'}"));
}

#[test]
fn markers_get_the_type_of_the_column_or_its_part() {
    let text = "BEGIN TRANSACTION LET v = (SELECT m, i FROM t WHERE k = 1); IF v.m[?] = ? AND v.i < :most THEN \
                DELETE FROM t WHERE k = 1; END IF COMMIT TRANSACTION";
    let found = transaction(text);
    let mut scope = Scope::new(&Types, None, 0, found.markers.len());
    for (condition, name) in found.conditions.iter().zip(["map<text, bigint>", "int"]) {
        condition
            .prepare(Some(&CqlType::parse(name, &Types).expect(name)), &mut scope)
            .expect(name);
    }
    let shown: Vec<_> = scope
        .markers
        .iter()
        .flatten()
        .map(|(name, cql_type)| format!("{name} {cql_type}"))
        .collect();
    assert_eq!(shown, ["key(m) text", "value(m) bigint", "i int"]);
    let bind = |value: &str, native| Value::Bytes(from_string(native, value, 0).expect(value));
    use crate::ast::NativeType::{Bigint, Text};
    let binds = vec![bind("a", Text), bind("7", Bigint)];
    assert_eq!(holds_with("v.c[?] = ?", "map<text, bigint>", "{'a': 7}", binds), Ok(true));
}

#[test]
fn impossible_comparisons_are_refused() {
    for (condition, name, message) in [
        ("v.c = 'a'", "int", "Invalid STRING constant (a) for \"c\" of type int"),
        ("v.c.f = 1", "int", "c is of type int, whose values have not a field to refer to"),
        ("v.c['a'] = 1", "int", "c is of type int, whose values have not an element to refer to"),
        ("v.c.f IS NULL", "map<text, int>", "whose values have not a field to refer to"),
        (
            "v.c['a'] = 'a'",
            "set<text>",
            "Element selection not supported for column c of type set<text>",
        ),
        ("v.c < 1h", "duration", "Slice conditions are not supported on durations"),
        ("v.c[-1] = 1", "list<int>", "Invalid negative list index"),
        ("v.c[null] = 1", "list<int>", "Invalid null value for idx(c)"),
        ("v.c['a'] = ?", "map<text, int>", "Invalid 'unset' value in condition"),
        ("v.c[?] = 1", "map<text, int>", "Invalid unset value for key(c)"),
        ("v.c = ?", "int", "Invalid 'unset' value in condition"),
    ] {
        let row = if name.starts_with("map") {
            "{'a': 1}"
        } else if name == "list<int>" {
            "[1]"
        } else {
            "none"
        };
        let error = holds_with(condition, name, row, Vec::new()).expect_err(condition);
        assert!(error.contains(message), "{condition}: {error}");
    }
}

#[test]
fn values_that_are_returned_may_be_parts_too() {
    let text = "BEGIN TRANSACTION LET v = (SELECT * FROM t WHERE k = 1); SELECT v.m['b'], v.l[1], v.s['x'], v.i; COMMIT TRANSACTION";
    let found = transaction(text);
    let Returned::References(references) = &found.returned else { panic!("{text}") };
    let rows = [
        ("map<text, int>", "{'a': 1, 'b': 2}"),
        ("list<int>", "[4, 5]"),
        ("set<text>", "{'y'}"),
        ("int", "9"),
    ];
    let mut shown = Vec::new();
    for (reference, (name, row)) in references.iter().zip(rows) {
        let mut scope = Scope::new(&Types, None, 0, 0);
        let prepared =
            reference.prepare(&CqlType::parse(name, &Types).expect(name), &mut scope).expect(name);
        assert_eq!(prepared.check_for("c", prepared.value_type()), Ok(()));
        let row = value(row, name);
        let found =
            prepared.evaluate(row.as_deref(), &Fixed(Vec::new()), &Work::default()).expect(name);
        shown.push(found.map_or("null".to_owned(), |found| literal(prepared.value_type(), found)));
    }
    assert_eq!(shown, ["2", "5", "null", "9"]);
    let cql_type = |name: &str| CqlType::parse(name, &Types).expect(name);
    let of_map = references[0]
        .prepare(&cql_type("map<text, int>"), &mut Scope::new(&Types, None, 0, 0))
        .expect("a map");
    let error = of_map.check_for("w", &cql_type("text")).expect_err("an int");
    assert_eq!(error.message, "Invalid reference type int (m) for \"w\" of type text");
    assert_eq!(of_map.check_for("w", &cql_type("varint")), Ok(()));
}

#[test]
fn assignments_are_computed_from_the_row() {
    let computed = |assignment: &str, name: &str, row: &str, binds: Vec<Value>| {
        let text =
            format!("BEGIN TRANSACTION UPDATE t SET {assignment} WHERE k = 1; COMMIT TRANSACTION");
        let found = transaction(&text);
        let assignment = &found.statements[0].self_assignments[0];
        let cql_type = CqlType::parse(name, &Types).expect(name);
        let mut scope = Scope::new(&Types, None, 0, found.statements[0].markers.len());
        let prepared = assignment.prepare(&cql_type, &mut scope).map_err(|error| error.message)?;
        let result = prepared
            .evaluate(value(row, name).as_deref(), &Fixed(binds))
            .map_err(|error| error.message)?;
        Ok::<_, String>(result.map_or("as it was".to_owned(), |result| literal(&cql_type, &result)))
    };
    let plain =
        |assignment: &str, name: &str, row: &str| computed(assignment, name, row, Vec::new());
    assert_eq!(plain("c = c - 50", "int", "80").as_deref(), Ok("30"));
    assert_eq!(plain("c += 1", "bigint", "4").as_deref(), Ok("5"));
    assert_eq!(plain("c = c -1", "varint", "4").as_deref(), Ok("3"));
    assert_eq!(plain("c -= 0.5", "decimal", "1.25").as_deref(), Ok("0.75"));
    assert_eq!(plain("c += 'b'", "text", "'a'").as_deref(), Ok("'ab'"));
    assert_eq!(plain("c += 1", "int", "null").as_deref(), Ok("as it was"));
    assert_eq!(computed("c += ?", "int", "1", vec![Value::Unset]).as_deref(), Ok("as it was"));
    assert_eq!(
        computed("c += ?", "int", "1", vec![Value::Bytes(vec![0, 0, 0, 4])]).as_deref(),
        Ok("5")
    );
    assert!(computed("c += ?", "int", "1", vec![Value::Null]).is_err());
    for (assignment, name, row) in [
        ("c -= 'b'", "text", "'a'"),
        ("c += [1]", "list<int>", "[1]"),
        ("c += true", "boolean", "true"),
    ] {
        let error = plain(assignment, name, row).expect_err(assignment);
        assert!(error.starts_with("Invalid operation (c = c"), "{error}");
    }
}
