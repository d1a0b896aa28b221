//! Texts to prepare, locks, reads and writes of a text, without a node.

use shunt_language::terms::Value;
use shunt_wire::cql::message::encode_result::{RowsWriter, native};
use shunt_wire::cql::message::{
    ErrorDetails, ErrorMessage, ResultMessage, Rows, ValueList, Values, error_code,
};

use super::*;
use crate::plan::schema::{self, Retention, Types};
use crate::{Mode, Partition};

mod calls;
mod columns;
mod hostile;
mod conditional;
mod row_reads;
mod times;

fn with_rows<R>(
    columns: &[(&str, &[u8])],
    rows: &[Vec<Option<Vec<u8>>>],
    f: impl FnOnce(&Rows<'_>) -> R,
) -> R {
    let mut body = Vec::new();
    let mut writer = RowsWriter::new(&mut body, "system_schema", "t", columns);
    for value in rows.iter().flatten() {
        writer.value(value.as_deref());
    }
    writer.finish();
    match ResultMessage::decode(4, &body) {
        Ok(ResultMessage::Rows(rows)) => f(&rows),
        other => panic!("{other:?}"),
    }
}

fn text(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

fn texts(texts: &[&str]) -> Option<Vec<u8>> {
    let mut out = (texts.len() as i32).to_be_bytes().to_vec();
    for text in texts {
        out.extend((text.len() as i32).to_be_bytes());
        out.extend(text.as_bytes());
    }
    Some(out)
}

/// A table as nodes tell of it: each column with its kind, its place and its type.
fn table(name: &str, columns: &[(&str, &str, i32, &str)]) -> Arc<Table> {
    let list: &[u8] = native::LIST_OF_TEXT;
    let of_types = [("type_name", native::TEXT), ("field_names", list), ("field_types", list)];
    let types = [vec![text("spot"), texts(&["x", "y"]), texts(&["int", "text"])]];
    let types = with_rows(&of_types, &types, |rows| Types::read("ks", rows));
    let id: Vec<u8> = std::iter::repeat_n(name.as_bytes()[0], 16).collect();
    let read = [vec![Some(id), text("BLOCKING")]];
    let table = with_rows(&[("id", native::UUID), ("read_repair", native::TEXT)], &read, |rows| {
        Table::read(types, name, rows)
    });
    let of_columns = [
        ("column_name", native::TEXT),
        ("kind", native::TEXT),
        ("position", native::INT),
        ("type", native::TEXT),
    ];
    let rows: Vec<_> = columns
        .iter()
        .map(|(name, kind, position, cql_type)| {
            vec![text(name), text(kind), Some(position.to_be_bytes().to_vec()), text(cql_type)]
        })
        .collect();
    Arc::new(
        with_rows(&of_columns, &rows, |rows| table.expect("a table").with_columns(rows))
            .expect("types that are known"),
    )
}

fn tables() -> Vec<Arc<Table>> {
    vec![
        table(
            "accounts",
            &[
                ("id", "partition_key", 0, "int"),
                ("balance", "regular", -1, "int"),
                ("owner", "regular", -1, "text"),
                ("tags", "regular", -1, "set<text>"),
                ("log", "regular", -1, "list<text>"),
                ("at", "regular", -1, "frozen<spot>"),
            ],
        ),
        table(
            "moves",
            &[
                ("a", "partition_key", 1, "text"),
                ("B", "partition_key", 0, "int"),
                ("c", "clustering", 0, "int"),
                ("amount", "regular", -1, "int"),
                ("noted", "static", -1, "timeuuid"),
                ("times", "regular", -1, "map<timeuuid, int>"),
            ],
        ),
        table(
            "events",
            &[
                ("id", "partition_key", 0, "uuid"),
                ("at", "clustering", 0, "timestamp"),
                ("who", "regular", -1, "text"),
                ("seen", "regular", -1, "timeuuid"),
            ],
        ),
    ]
}

fn draft(text: &str) -> Result<Draft, String> {
    let outline = Outline::parse(text, "ks").map_err(|refusal| refusal.to_string())?;
    Draft::new(outline, &tables(), 0, false).map_err(|error| error.message)
}

/// A node's answers about the texts: one int for each marker, and the columns that are named.
fn shown(draft: &Draft, columns: &[&[&str]]) -> Vec<PreparedText> {
    let int = |name: &str| ColumnSpec { name: name.into(), type_option: native::INT.into() };
    draft
        .texts()
        .enumerate()
        .map(|(index, text)| PreparedText {
            markers: (0..text.matches(['?', ':']).count())
                .map(|place| int(&format!("m{place}")))
                .collect(),
            columns: columns
                .get(index)
                .map(|names| names.iter().map(|name| int(name)).collect())
                .unwrap_or_default(),
        })
        .collect()
}

fn ints(values: &[i32]) -> ValueList {
    let mut list = ValueList::positional(4);
    for value in values {
        list.push(shunt_wire::cql::message::Value::Bytes(&value.to_be_bytes()));
    }
    list
}

fn int(value: i32) -> Value {
    Value::Bytes(value.to_be_bytes().to_vec())
}

fn row(values: &[Option<i32>]) -> RowRead {
    Some(
        values.iter().map(|value| value.map(|value| value.to_be_bytes().to_vec().into())).collect(),
    )
}

const TRANSFER: &str = "BEGIN TRANSACTION
  LET from_row = (SELECT balance FROM accounts WHERE id = ?);
  SELECT from_row.balance;
  IF from_row.balance >= ? THEN
    UPDATE accounts SET balance = balance - ? WHERE id = ?;
    UPDATE \"ks\".accounts SET balance += ? WHERE id = ?;
  END IF
COMMIT TRANSACTION";

fn transfer() -> Plan {
    let draft = draft(TRANSFER).expect("a transaction");
    let shown = shown(&draft, &[&["balance"], &["balance"], &["balance"]]);
    Plan::new(draft, &shown).expect("a plan")
}

#[test]
fn texts_say_in_which_keyspace_and_what_is_computed_is_a_marker() {
    let draft = draft(TRANSFER).expect("a transaction");
    let texts: Vec<&str> = draft.texts().map(|text| &**text).collect();
    assert_eq!(
        texts,
        [
            "SELECT balance FROM ks.accounts WHERE id = ?",
            "SELECT balance FROM ks.accounts WHERE id = ?",
            "SELECT balance FROM ks.accounts WHERE id = ?",
            "UPDATE ks.accounts SET balance = ? WHERE id = ?",
            "UPDATE \"ks\".accounts SET balance = ? WHERE id = ?",
        ]
    );
    assert_eq!(
        (draft.outline.domain.as_str(), &draft.outline.tables[..]),
        ("ks", &[("accounts".to_owned(), true)][..])
    );
}

#[test]
fn a_transfer_reads_decides_and_writes() {
    let plan = transfer();
    let names: Vec<&str> = plan.markers.iter().map(|marker| &*marker.name).collect();
    assert_eq!(names, ["m0", "balance", "balance", "m1", "balance", "m1"]);
    assert_eq!(&*plan.columns[0].name, "from_row.balance");
    let list = ints(&[1, 30, 30, 1, 30, 2]);
    let values = plan.bind(&list.values()).expect("values");
    let bound = plan.with(&values);
    let partitions = bound.partitions().expect("keys");
    assert_eq!(
        partitions.iter().map(|(_, mode)| *mode).collect::<Vec<_>>(),
        [Mode::Shared, Mode::Exclusive, Mode::Exclusive]
    );
    assert!(partitions[0].0 == partitions[1].0 && partitions[1].0 != partitions[2].0);
    let reads: Vec<_> = (0..3)
        .map(|read| {
            bound
                .read_values(read)
                .expect("values")
                .values()
                .get(0)
                .and_then(|value| value.bytes().map(<[u8]>::to_vec))
        })
        .collect();
    assert_eq!(reads, [1, 1, 2].map(|id: i32| Some(id.to_be_bytes().to_vec())));
    let rich = [row(&[Some(50)]), row(&[Some(50)]), row(&[Some(7)])];
    assert_eq!(
        bound.decide(&rich),
        Ok(PlanDecision::Write(vec![vec![int(20), int(1)], vec![int(37), int(2)]]))
    );
    assert_eq!(bound.returned(&rich), Ok(Some(vec![Some(50_i32.to_be_bytes().to_vec())])));
    let poor = [row(&[Some(29)]), row(&[Some(29)]), row(&[Some(7)])];
    assert_eq!(bound.decide(&poor), Ok(PlanDecision::Nothing));
    // A comparison with null is false, and null plus something stays as it is.
    assert_eq!(bound.decide(&[None, None, None]), Ok(PlanDecision::Nothing));
    let fresh = [row(&[Some(50)]), row(&[Some(50)]), None];
    assert_eq!(
        bound.decide(&fresh),
        Ok(PlanDecision::Write(vec![vec![int(20), int(1)], vec![Value::Unset, int(2)]]))
    );
}

#[test]
fn a_row_that_was_read_is_written_elsewhere() {
    let text = "BEGIN TRANSACTION LET a = (SELECT * FROM accounts WHERE id = 1); LET m = (SELECT amount FROM moves WHERE a = 'x' AND \"B\" = 2 LIMIT 1);
        IF a IS NOT NULL AND m IS NULL THEN INSERT INTO moves (a, \"B\", c, amount) VALUES ('x', 2, ?, a.balance); DELETE FROM accounts WHERE id = 1; END IF
        COMMIT TRANSACTION";
    let draft = draft(text).expect("a transaction");
    let texts: Vec<&str> = draft.texts().skip(2).map(|text| &**text).collect();
    assert_eq!(
        texts,
        [
            "INSERT INTO ks.moves (a, \"B\", c, amount) VALUES ('x', 2, ?, ?)",
            "DELETE FROM ks.accounts WHERE id = 1"
        ]
    );
    let shown = shown(&draft, &[&["id", "at", "balance"], &["amount"]]);
    let plan = Plan::new(draft, &shown).expect("a plan");
    assert!(plan.columns.is_empty());
    let list = ints(&[9]);
    let values = plan.bind(&list.values()).expect("values");
    let bound = plan.with(&values);
    // What is read and written has one lock of its own, whether its key is a literal or a value.
    let partitions = bound.partitions().expect("keys");
    assert!(
        partitions[0].0 == partitions[3].0
            && partitions[1].0 == partitions[2].0
            && partitions[0].0 != partitions[1].0
    );
    let found = [row(&[Some(1), None, Some(5)]), None];
    assert_eq!(bound.decide(&found), Ok(PlanDecision::Write(vec![vec![int(9), int(5)], vec![]])));
    assert_eq!(
        bound.decide(&[row(&[Some(1), None, None]), None]),
        Ok(PlanDecision::Write(vec![vec![int(9), Value::Null], vec![]]))
    );
    assert_eq!(bound.decide(&[found[0].clone(), row(&[None])]), Ok(PlanDecision::Nothing));
    assert_eq!(bound.decide(&[None, None]), Ok(PlanDecision::Nothing));
}

#[test]
fn a_key_has_one_lock_however_it_is_given() {
    let key = |text: &str, values: &Values<'_>| {
        let draft = draft(text).expect("a transaction");
        let shown = shown(&draft, &[]);
        let plan = Plan::new(draft, &shown).expect("a plan");
        let values = plan.bind(values).expect("values");
        plan.with(&values).partitions().expect("a key")[0]
    };
    let literal = key(
        "BEGIN TRANSACTION DELETE FROM accounts WHERE id = 7; COMMIT TRANSACTION",
        &Values::default(),
    );
    assert_eq!(
        key(
            "BEGIN TRANSACTION DELETE FROM accounts WHERE (id) = (?); COMMIT TRANSACTION",
            &ints(&[7]).values()
        ),
        literal
    );
    assert_eq!(
        key(
            "BEGIN TRANSACTION UPDATE ks.accounts SET balance = 1 WHERE id = :a; COMMIT TRANSACTION",
            &ints(&[7]).values()
        ),
        literal
    );
    assert_eq!(
        key(
            "BEGIN TRANSACTION INSERT INTO accounts (balance, id) VALUES (?, 7); COMMIT TRANSACTION",
            &ints(&[1]).values()
        ),
        literal
    );
    assert_ne!(
        key(
            "BEGIN TRANSACTION DELETE FROM accounts WHERE id = 8; COMMIT TRANSACTION",
            &Values::default()
        ),
        literal
    );
}

#[test]
fn unrepeatable_writes_are_refused_by_name() {
    for (body, expected) in [
        (
            "INSERT INTO accounts (id, log) VALUES (1, ['a']);",
            "INSERT at [1:19]: column log is a list that is not frozen",
        ),
        ("UPDATE accounts SET log = log + ['a'] WHERE id = 1;", "column log is a list"),
        ("UPDATE accounts SET log = ['b'] + log WHERE id = 1;", "column log is a list"),
        ("DELETE log[0] FROM accounts WHERE id = 1;", "column log is a list"),
        (
            "UPDATE moves SET times[now()] = 1 WHERE a = 'x' AND \"B\" = 1 AND c = 1;",
            "now(), uuid() and the like",
        ),
        (
            "DELETE times[now()] FROM moves WHERE a = 'x' AND \"B\" = 1 AND c = 1;",
            "now(), uuid() and the like",
        ),
        (
            "UPDATE moves SET times = times + {now(): 1} WHERE a = 'x' AND \"B\" = 1 AND c = 1;",
            "now(), uuid() and the like",
        ),
        (
            "LET m = (SELECT * FROM moves WHERE a = 'x' AND \"B\" = 1 AND c = 1); IF m.noted < now() THEN \
             DELETE FROM accounts WHERE id = 1; END IF",
            "now(), uuid() and the like",
        ),
        (
            "LET m = (SELECT * FROM moves WHERE a = 'x' AND \"B\" = 1 AND c = 1); SELECT m.times[now()];",
            "now(), uuid() and the like",
        ),
        (
            "INSERT INTO accounts (id, balance) VALUES (1, 2); INSERT INTO other.t (id) VALUES (1);",
            "of one keyspace",
        ),
        ("DELETE FROM nowhere WHERE id = 1;", "DELETE at [1:19]: table nowhere does not exist"),
        ("UPDATE accounts SET balance = 1 WHERE id IN (1, 2);", "partition key"),
        (
            "DELETE FROM moves WHERE (a, \"B\") = ? AND c = 1;",
            "give each column of its key one value with =",
        ),
        (
            "LET a = (SELECT tags FROM accounts WHERE id = 1); UPDATE accounts SET balance = a.tags WHERE id = 2;",
            "Invalid reference type",
        ),
        (
            "LET a = (SELECT tags FROM accounts WHERE id = 1); IF a.owner = 'x' THEN DELETE FROM accounts WHERE id = 1; END IF",
            "Column 'owner' does not exist",
        ),
    ] {
        let refused =
            draft(&format!("BEGIN TRANSACTION {body} COMMIT TRANSACTION")).expect_err(body);
        assert!(refused.contains(expected), "{body}: {refused}");
    }
    let many = format!(
        "BEGIN TRANSACTION INSERT INTO accounts (id) VALUES ({}?); COMMIT TRANSACTION",
        "?, ".repeat(5_000)
    );
    assert!(draft(&many).is_err_and(|error| error.contains("5001 bind markers")));
    assert!(
        Outline::parse(
            "BEGIN TRANSACTION DELETE FROM accounts WHERE id = 1; COMMIT TRANSACTION",
            ""
        )
        .is_err_and(|error| error.to_string().contains("No keyspace"))
    );
}

#[test]
fn values_that_are_none_are_refused_and_named_ones_are_found() {
    let plan = transfer();
    let few = plan.bind(&ints(&[1, 2]).values()).expect_err("too few");
    assert_eq!(few.message, "there were 6 markers(?) in CQL but 2 bound variables");
    let mut list = ValueList::positional(4);
    for _ in 0..6 {
        list.push(shunt_wire::cql::message::Value::Null);
    }
    let values = plan.bind(&list.values()).expect("as many as there are");
    let refused = plan.with(&values).partitions().expect_err("no key");
    assert_eq!(
        refused.message,
        "LET from_row at [2:19]: Invalid null value in condition for column id"
    );
    let draft = draft(
        "BEGIN TRANSACTION UPDATE accounts SET balance = :b WHERE id = :i; COMMIT TRANSACTION",
    )
    .expect("a transaction");
    let shown = shown(&draft, &[]);
    let plan = Plan::new(draft, &shown).expect("a plan");
    let mut list = ValueList::named(4);
    list.push_named("i", shunt_wire::cql::message::Value::Bytes(&7_i32.to_be_bytes()));
    list.push_named("b", shunt_wire::cql::message::Value::Null);
    let values = plan.bind(&list.values()).expect("both names");
    assert_eq!(
        plan.with(&values).decide(&[]),
        Ok(PlanDecision::Write(vec![vec![Value::Null, int(7)]]))
    );
    // A node that says less of a text than it has is no help.
    let (text, none) = (
        "BEGIN TRANSACTION UPDATE accounts SET balance = ? WHERE id = 1; COMMIT TRANSACTION",
        PreparedText::default(),
    );
    let draft = super::tests::draft(text).expect("a transaction");
    assert!(Plan::new(draft, &[none]).is_err());
}

#[test]
fn tables_that_transactions_could_lose_something_in_are_unfit() {
    let replication = |entries: &[&str]| {
        let mut map = texts(entries).expect("entries");
        map[..4].copy_from_slice(&((entries.len() / 2) as i32).to_be_bytes());
        Some(map)
    };
    let of = |durable: u8, entries: &[&str]| {
        let columns = [("durable_writes", native::BOOLEAN), ("replication", native::MAP_OF_TEXT)];
        with_rows(
            &columns,
            &[vec![Some(vec![durable]), replication(entries)]],
            schema::keyspace_unfit,
        )
    };
    assert_eq!(of(1, &["class", "NetworkTopologyStrategy", "dc1", "3"]), Some(None));
    assert!(
        of(0, &["class", "SimpleStrategy"])
            .flatten()
            .is_some_and(|why| why.contains("durable_writes"))
    );
    assert!(
        of(1, &["class", "NetworkTopologyStrategy", "dc1", "3/1"])
            .flatten()
            .is_some_and(|why| why.contains("transient"))
    );
    assert_eq!(
        with_rows(&[("durable_writes", native::BOOLEAN)], &[], schema::keyspace_unfit),
        None
    );
}

/// Nodes expire rows by their own clocks, and forget deletions after a time.
#[test]
fn tables_that_forget_too_soon_are_read_and_not_written_to() {
    let of = |default_life: i32, gc_grace: i32| {
        let mut table = Table::clone(&table(
            "soon",
            &[("id", "partition_key", 0, "int"), ("v", "regular", -1, "int")],
        ));
        table.retention =
            Retention::read(Some(&default_life.to_be_bytes()), Some(&gc_grace.to_be_bytes()));
        Arc::new(table)
    };
    let drafted = |table: Arc<Table>, is_conditional: bool, text: &str| {
        let outline = Outline::parse(text, "ks").map_err(|refusal| refusal.to_string())?;
        Draft::new(outline, &[table], 0, is_conditional).map(drop).map_err(|error| error.message)
    };
    let write = "BEGIN TRANSACTION UPDATE soon SET v = 1 WHERE id = 1; COMMIT TRANSACTION";
    let read = "BEGIN TRANSACTION SELECT v FROM soon WHERE id = 1; COMMIT TRANSACTION";
    let conditional = "UPDATE soon SET v = 1 WHERE id = 1 IF EXISTS";
    for (default_life, gc_grace, shown) in [
        (60, 864_000, "default_time_to_live = 60"),
        (0, 10_799, "gc_grace_seconds = 10799"),
        (0, 0, "ALTER TABLE .. WITH gc_grace_seconds = 10800 or more"),
    ] {
        for (is_conditional, text) in [(false, write), (true, conditional)] {
            let refused = drafted(of(default_life, gc_grace), is_conditional, text);
            assert!(refused.as_ref().is_err_and(|why| why.contains(shown)), "{text}: {refused:?}");
        }
        assert_eq!(drafted(of(default_life, gc_grace), false, read), Ok(()));
    }
    assert_eq!(drafted(of(0, 10_800), false, write), Ok(()));
    assert_eq!(drafted(of(0, 10_800), true, conditional), Ok(()));
    assert_eq!(Retention::read(None, None).refusal(), None);
}

#[test]
fn columns_are_asked_for_where_a_write_may_name_one_that_is_not_read() {
    let asks = |text: &str, columns: &[&[&str]]| {
        let draft = draft(text).expect("a transaction");
        let shown = shown(&draft, columns);
        Plan::new(draft, &shown).expect("a plan").asks_columns().to_vec()
    };
    let update = "UPDATE accounts SET balance = 1 WHERE id = 1;";
    let read = |columns: &str| {
        format!(
            "BEGIN TRANSACTION LET a = (SELECT {columns} FROM accounts WHERE id = 1); {update} COMMIT TRANSACTION"
        )
    };
    assert_eq!(asks(&read("balance"), &[&["balance"]]), [false]);
    assert_eq!(asks(&read("balance, owner"), &[&["balance", "owner"]]), [false]);
    assert_eq!(asks(&read("owner"), &[&["owner"]]), [true]);
    assert_eq!(asks(&format!("BEGIN TRANSACTION {update} COMMIT TRANSACTION"), &[]), [true]);
    let deletion = "BEGIN TRANSACTION LET a = (SELECT balance FROM accounts WHERE id = 1); DELETE owner FROM accounts WHERE id = 1; COMMIT TRANSACTION";
    assert_eq!(asks(deletion, &[&["balance"]]), [true]);
    let other = "BEGIN TRANSACTION LET a = (SELECT balance FROM accounts WHERE id = 1); UPDATE accounts SET balance = 2 WHERE id = 2; \
                 INSERT INTO events (id, at, who) VALUES (00000000-0000-0000-0000-000000000001, 5, 'x'); COMMIT TRANSACTION";
    assert_eq!(asks(other, &[&["balance"]]), [false, true]);
    let select = "BEGIN TRANSACTION SELECT balance FROM accounts WHERE id = 1; COMMIT TRANSACTION";
    assert_eq!(asks(select, &[&["balance"]]), [false]);
    // A column of the key may get another name as well, which no read says if there is none.
    let row = "BEGIN TRANSACTION DELETE FROM accounts WHERE id = 1; COMMIT TRANSACTION";
    assert_eq!(asks(row, &[]), [true]);
    let both = "BEGIN TRANSACTION LET a = (SELECT balance FROM accounts WHERE id = 1); DELETE FROM accounts WHERE id = 2; COMMIT TRANSACTION";
    assert_eq!(asks(both, &[&["balance"]]), [false]);
    // A read of a partition names nothing of the rest of the key, and names may be in another case.
    let change = "UPDATE moves SET amount = 2 WHERE a = 'x' AND \"B\" = 1 AND c = 7;";
    let part = format!(
        "BEGIN TRANSACTION LET m = (SELECT amount FROM moves WHERE a = 'x' AND \"B\" = 1 LIMIT 1); {change} COMMIT TRANSACTION"
    );
    assert_eq!(asks(&part, &[&["amount"]]), [true]);
    let row = format!(
        "BEGIN TRANSACTION LET m = (SELECT amount FROM moves WHERE a = 'x' AND \"B\" = 1 AND c = 1); {change} COMMIT TRANSACTION"
    );
    assert_eq!(asks(&row, &[&["amount"]]), [false]);
    assert_eq!(asks(&read("owner").replace("SET balance", "SET Balance"), &[&["owner"]]), [true]);
    // What a client is shown may have other names than the columns.
    let alias = format!(
        "BEGIN TRANSACTION SELECT owner AS balance FROM accounts WHERE id = 1; {update} COMMIT TRANSACTION"
    );
    assert_eq!(asks(&alias, &[&["balance"]]), [true]);
}

#[test]
fn a_node_that_refuses_a_column_of_which_the_client_knows_nothing_asks_for_another_plan() {
    let text = "BEGIN TRANSACTION UPDATE accounts SET balance = 1 WHERE id = 1; COMMIT TRANSACTION";
    let draft = draft(text).expect("a transaction");
    let refused = |code: i32, message: &str| {
        draft.is_refused_for_another(&ErrorMessage { code, message, details: ErrorDetails::None })
    };
    assert!(refused(
        error_code::INVALID,
        "INSERT at [1:1]: Undefined column name owner in table bank.accounts"
    ));
    assert!(refused(error_code::INVALID, "Undefined column name \"owner\" in table bank.accounts"));
    for (code, message) in [
        (error_code::INVALID, "Undefined column name balance in table bank.accounts"),
        (error_code::INVALID, "Undefined column name other in table bank.owner"),
        (error_code::INVALID, "owner is too long for its index"),
        (error_code::UNAUTHORIZED, "Undefined column name owner in table bank.accounts"),
        (error_code::INVALID, "Undefined column name ownership in table bank.accounts"),
        (error_code::INVALID, "Undefined column name \"owner in table bank.accounts"),
        (error_code::INVALID, "Undefined column name "),
    ] {
        assert!(!refused(code, message), "{message}");
    }
}

/// A long error would be searched for each column of a table that has very many.
#[test]
fn an_error_of_a_node_is_searched_once_for_all_columns() {
    let long = "Undefined column name \u{e9} in table t, ".repeat(2_000);
    let named: Vec<&str> = super::columns_named_by(&long).collect();
    assert_eq!(named.len(), super::COLUMNS_NAMED_MAX);
    assert!(named.iter().all(|part| super::begins_with_name(part, "\u{e9}")));
}
