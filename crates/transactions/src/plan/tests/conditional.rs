//! Single statements on tables with the mode `conditional`.

use shunt_wire::cql::message::Value as Wire;

use super::super::conditional::Verdict;
use super::*;
use crate::conditional::row::{Cells, Change, ReadRow};

fn leases(more: &[(&str, &str, i32, &str)]) -> Arc<Table> {
    let columns = [
        ("k", "partition_key", 0, "int"),
        ("c", "clustering", 0, "int"),
        ("v", "regular", -1, "int"),
        ("Owner", "regular", -1, "int"),
    ];
    table("leases", &[&columns[..], more].concat())
}

fn draft_on(table: Arc<Table>, text: &str) -> Result<Draft, String> {
    let outline = Outline::parse(text, "ks").map_err(|refusal| refusal.to_string())?;
    Draft::new(outline, &[table], 0, true).map_err(|error| error.message)
}

fn plan(text: &str) -> Plan {
    let draft = draft_on(leases(&[]), text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let shown = shown(&draft, &[]);
    Plan::new(draft, &shown).expect("a plan")
}

fn cells(values: &[Option<i32>]) -> Cells {
    values.iter().map(|value| value.map(|value| value.to_be_bytes().into())).collect()
}

/// A statement's answer on a row; none if it is carried out.
fn answer(
    text: &str,
    values: &[i32],
    row: Option<Cells>,
) -> Option<(Vec<String>, Vec<Option<i32>>)> {
    let plan = plan(text);
    let (bound, list) =
        (plan.draft.conditional.as_ref().expect("a single statement"), ints(values));
    let values = plan.bind(&list.values()).expect("values");
    match plan.with(&values).verdict(bound, row.as_ref(), 4).expect(text) {
        Verdict::Write => None,
        Verdict::Refuse(columns, values) => {
            let number = |value: Option<Vec<u8>>| {
                value.map(|value| value.iter().fold(0, |sum, byte| sum << 8 | i32::from(*byte)))
            };
            Some((
                columns.into_iter().map(|column| column.name.into()).collect(),
                values.into_iter().map(number).collect(),
            ))
        }
    }
}

#[test]
fn a_condition_that_does_not_hold_shows_the_nodes_columns() {
    // In the order of names: "Owner", then v.
    let row = || Some(cells(&[Some(7), None]));
    let insert = "INSERT INTO leases (k, c, v) VALUES (?, 2, 3) IF NOT EXISTS";
    assert_eq!(answer(insert, &[1], None), None);
    let all = (
        vec!["[applied]".into(), "k".into(), "c".into(), "Owner".into(), "v".into()],
        vec![Some(0), Some(1), Some(2), Some(7), None],
    );
    assert_eq!(answer(insert, &[1], row()), Some(all));
    let exists = "UPDATE leases SET v = 1 WHERE k = 1 AND c = ? IF EXISTS";
    assert_eq!(answer(exists, &[2], None), Some((vec!["[applied]".into()], vec![Some(0)])));
    assert_eq!(answer(exists, &[2], row()), None);
    let of =
        "DELETE FROM leases WHERE k = 1 AND c = 2 IF v = ? AND \"Owner\" IN (?, 9) AND v = null";
    let columns = vec!["[applied]".into(), "v".into(), "Owner".into()];
    assert_eq!(answer(of, &[5, 7], row()), Some((columns, vec![Some(0), None, Some(7)])));
    assert_eq!(answer(of, &[5, 7], None), Some((vec!["[applied]".into()], vec![Some(0)])));
    assert_eq!(
        answer(
            "UPDATE leases SET v = 1 WHERE k = 1 AND c = 2 IF v = null AND \"Owner\" != 7",
            &[],
            None
        ),
        None
    );
    assert_eq!(answer("UPDATE leases SET v = 1 WHERE k = 1 AND c = 2", &[], row()), None);
}

#[test]
fn a_conditional_statement_reads_every_column_that_rebuilds_its_row() {
    let plan = plan("UPDATE leases USING TTL ? SET v = ? WHERE k = ? AND c = 4 IF v = ?");
    let texts: Vec<&str> = plan.draft.texts().map(|text| &**text).collect();
    assert_eq!(
        texts,
        [
            "SELECT \"Owner\", TTL(\"Owner\"), WRITETIME(\"Owner\"), v, TTL(v), WRITETIME(v) FROM ks.leases WHERE k = ? AND c = ?",
            "UPDATE ks.leases USING TTL ? SET v = ? WHERE k = ? AND c = 4 ",
        ]
    );
    let names: Vec<&str> = plan.markers.iter().map(|marker| &*marker.name).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    let list = ints(&[60, 5, 3, 1]);
    let values = plan.bind(&list.values()).expect("values");
    let (bound, conditional) =
        (plan.with(&values), plan.draft.conditional.as_ref().expect("a single statement"));
    assert_eq!(bound.lives(conditional), Ok(Some(60)));
    assert_eq!(bound.change(conditional), Ok(Change::Update(vec![(1, int(5))])));
    let key = bound.read_values(0).expect("a key");
    assert_eq!(
        key.values().iter().map(|(_, value)| value).collect::<Vec<_>>(),
        [3_i32, 4].map(|part| Wire::Bytes(&*Box::leak(Box::new(part.to_be_bytes()))))
    );
    let partitions = bound.partitions().expect("partitions");
    let modes = partitions.iter().map(|(_, mode)| *mode).collect::<Vec<_>>();
    assert_eq!(modes, [Mode::Exclusive, Mode::Shared, Mode::Shared]);
    let truncate = self::plan("TRUNCATE leases");
    let whole = truncate.with(&[]).partitions().expect("one");
    assert_eq!(whole, [(partitions[1].0, Mode::Exclusive)], "it keeps all others out of the table");
    assert_eq!(&*truncate.draft.writes[0].text, "TRUNCATE ks.leases");
}

/// The text and the numbers that a write is sent with; -1 is null, -2 is unset.
fn write(read: Option<&RowRead>, is_refused: bool) -> (String, Vec<i64>) {
    let plan = plan("UPDATE leases SET v = 5 WHERE k = 3 AND c = 4 IF v = null");
    let conditional = plan.draft.conditional.as_ref().expect("a single statement");
    let row = read.map(|read| ReadRow::from_values(2, read).expect("a row"));
    let (text, list) = plan
        .with(&[])
        .conditional_write(conditional, row.as_ref(), 1_000, is_refused)
        .expect("a write");
    let number = |value: Wire<'_>| match value {
        Wire::Bytes(bytes) => bytes.iter().fold(0, |sum, byte| sum << 8 | i64::from(*byte)),
        Wire::Null => -1,
        Wire::Unset => -2,
    };
    let text = text.replace(" ks.leases", "").replace(" WHERE k = ? AND c = ?", " ..");
    (text, list.values().iter().map(|(_, value)| number(value)).collect())
}

#[test]
fn a_row_is_made_anew_behind_what_may_come_late_and_before_it_is_written_to() {
    let statement = "UPDATE SET v = 5 WHERE k = 3 AND c = 4 ";
    assert_eq!(write(None, false), (statement.to_owned(), vec![]));
    let batch = |part: &str| format!("BEGIN UNLOGGED BATCH\n{part}{statement};\nAPPLY BATCH");
    let delete = "DELETE FROM USING TIMESTAMP ? ..;\n";
    assert_eq!(write(Some(&None), false), (batch(delete), vec![1_000, 3, 4]));
    let updates = ["\"Owner\"", "v"]
        .map(|column| format!("UPDATE USING TIMESTAMP ? AND TTL ? SET {column} = ? ..;\n"))
        .concat();
    let number = |value: i64| -> Option<Box<[u8]>> { Some(value.to_be_bytes().into()) };
    let small = |value: i32| -> Option<Box<[u8]>> { Some(value.to_be_bytes().into()) };
    // The one lives for 9 s more, the other for ever.
    let both = Some(vec![small(7), small(9), number(50), small(8), None, number(60)]);
    let (text, values) = write(Some(&both), false);
    assert_eq!(text, batch(&updates));
    assert_eq!(values, [[1_000, 9, 7, 3, 4], [1_000, 0, 8, 3, 4]].concat());
    // What may come late to a column that has nothing is hidden too.
    let one = Some(vec![small(7), small(9), number(50), None, None, None]);
    assert_eq!(write(Some(&one), false).1, [[1_000, 9, 7, 3, 4], [1_000, 0, -1, 3, 4]].concat());
    let bare = Some(vec![None; 6]);
    assert_eq!(write(Some(&bare), false), (batch(&updates), [[1_000, 0, -1, 3, 4]; 2].concat()));
    // Where the statement is not carried out.
    let only = |part: &str| format!("BEGIN UNLOGGED BATCH\n{part}APPLY BATCH");
    assert_eq!(write(Some(&None), true), (only(delete), vec![1_000, 3, 4]));
    assert_eq!(write(Some(&both), true).0, only(&updates));
    let read = ReadRow::from_values(2, &both).expect("a row");
    assert_eq!((read.latest_us, read.cells.clone()), (60, Some(cells(&[Some(7), Some(8)]))));
    for broken in [
        vec![],
        vec![small(7), number(9), number(50), small(8), None, number(60)],
        vec![small(7), small(9), small(50)],
    ] {
        assert!(ReadRow::from_values(2, &Some(broken)).is_none());
    }
}

/// Nodes would keep another value than the one known here.
#[test]
fn a_literal_that_nodes_take_as_it_happens_is_refused() {
    let maps = || leases(&[("m", "regular", -1, "frozen<map<text, int>>")]);
    for text in [
        "UPDATE leases SET m = {'a': 1, 'a': 2} WHERE k = 1 AND c = 1 IF EXISTS",
        "INSERT INTO leases (k, c, m) VALUES (1, 1, {'a': 1, 'b': 1, 'a': 2})",
    ] {
        let error = draft_on(maps(), text).expect_err(text);
        assert!(error.contains("the value of m") && error.contains("twice"), "{error}");
        let outline =
            Outline::parse(text.trim_end_matches(" IF EXISTS"), "ks").expect("a statement");
        let error = Draft::new(outline, &[maps()], 0, false).expect_err("a transaction").message;
        assert!(error.contains("twice"), "{error}");
    }
    assert!(
        draft_on(maps(), "UPDATE leases SET m = {'a': 1, 'b': 2} WHERE k = 1 AND c = 1").is_ok()
    );
}

#[test]
fn a_row_that_no_message_has_room_for_is_refused_by_name() {
    let plan = plan("UPDATE leases SET v = 5 WHERE k = 3 AND c = 4 IF v = null");
    let read = |bytes: usize| ReadRow {
        cells: Some(vec![Some(vec![0; bytes].into()); 2]),
        ..row_of_nothing()
    };
    assert_eq!(plan.with(&[]).check_anew(&read(6_000_000)), Ok(()));
    assert_eq!(plan.with(&[]).check_anew(&row_of_nothing()), Ok(()));
    let error = plan.with(&[]).check_anew(&read(7_000_000)).expect_err("too long");
    assert!(error.message.contains("the row has 14000016 bytes"), "{}", error.message);
}

fn row_of_nothing() -> ReadRow {
    ReadRow::from_values(2, &None).expect("a row")
}

#[test]
fn unsuitable_statements_are_refused_by_name() {
    for (text, shown) in [
        ("UPDATE leases SET v = v + 1 WHERE k = 1 AND c = 1", "compute a value from the row"),
        ("UPDATE leases SET v = 1 WHERE k = 1", "Some clustering keys are missing"),
        ("DELETE FROM leases WHERE k = 1 IF EXISTS", "Some clustering keys are missing"),
        ("UPDATE leases SET x = 1 WHERE k = 1 AND c = 1", "Undefined column name x"),
        ("UPDATE leases SET v = 1 WHERE k = 1 AND c = 1 IF x = 1", "Undefined column name x"),
        (
            "UPDATE leases SET v = 1 WHERE k = 1 AND c = 1 IF c = 1",
            "PRIMARY KEY column 'c' cannot have IF conditions",
        ),
        ("SELECT v FROM leases WHERE k = 1", "no batch and no transaction"),
        (
            "BEGIN BATCH UPDATE leases SET v = 1 WHERE k = 1 AND c = 1 APPLY BATCH",
            "no batch and no transaction",
        ),
        (
            "BEGIN TRANSACTION SELECT v FROM leases WHERE k = 1 AND c = 1; COMMIT TRANSACTION",
            "no batch and no transaction",
        ),
        ("UPDATE leases SET v = 10 / ? WHERE k = 1 AND c = 1", "bind what comes of it"),
    ] {
        let error = draft_on(leases(&[]), text).expect_err(text);
        assert!(error.contains(shown), "{text}: {error}");
    }
    for (column, shown) in [
        (("s", "static", -1, "int"), "static"),
        (("n", "regular", -1, "counter"), "counter"),
        (("l", "regular", -1, "list<int>"), "not frozen"),
        (("u", "regular", -1, "spot"), "not frozen"),
    ] {
        let error = draft_on(leases(&[column]), "DELETE FROM leases WHERE k = 1 AND c = 1")
            .expect_err(shown);
        assert!(error.to_lowercase().contains(shown), "{error}");
    }
    let bare = table("leases", &[("k", "partition_key", 0, "int")]);
    let error = draft_on(bare, "DELETE FROM leases WHERE k = 1").expect_err("no column");
    assert!(error.contains("no column beside its key"), "{error}");
    let text = "INSERT INTO leases (k, c) VALUES (1, 2) USING TTL ?";
    let plan = plan(text);
    for (seconds, shown) in [(-1, "greater or equal to 0"), (i32::MAX, "too large")] {
        let list = ints(&[seconds]);
        let values = plan.bind(&list.values()).expect("values");
        let error = plan
            .with(&values)
            .lives(plan.draft.conditional.as_ref().expect("one"))
            .expect_err(shown);
        assert!(error.message.contains(shown), "{}", error.message);
    }
}

/// Rows whose keys a node takes for one have one lock, and are known as one.
#[test]
fn a_row_is_one_whatever_the_bytes_of_its_clustering_key() {
    let numbers = table(
        "numbers",
        &[
            ("k", "partition_key", 0, "varint"),
            ("c", "clustering", 0, "varint"),
            ("d", "clustering", 1, "decimal"),
            ("b", "clustering", 2, "boolean"),
            ("t", "clustering", 3, "frozen<tuple<int, text>>"),
            ("v", "regular", -1, "int"),
        ],
    );
    let text =
        "UPDATE numbers SET v = 1 WHERE k = ? AND c = ? AND d = ? AND b = ? AND t = ? IF v = 2";
    let draft = draft_on(numbers, text).expect("a statement");
    let shown = shown(&draft, &[]);
    let plan = Plan::new(draft, &shown).expect("a plan");
    let row = |key: [&[u8]; 5]| {
        let mut list = ValueList::positional(4);
        key.iter().for_each(|part| _ = list.push(Wire::Bytes(part)));
        let values = plan.bind(&list.values()).expect("values");
        plan.with(&values).partitions().expect("a key")[0].0
    };
    let one: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 1];
    let (whole, other) = ([one, &[0xFF; 4]].concat(), [one, &[0, 0, 0, 0]].concat());
    let key: [&[u8]; 5] = [&[5], &[5], &[0, 0, 0, 1, 10], &[1], &whole];
    let with = |place: usize, part| {
        let mut key = key;
        key[place] = part;
        row(key)
    };
    // 5 with a zero in front, 1.0 and 1.00, true and true, and a tuple whose last value is not
    // there.
    for (place, part) in [(1, &[0, 5][..]), (2, &[0, 0, 0, 2, 100]), (3, &[2]), (4, one)] {
        assert_eq!(with(place, part), row(key), "{place}");
    }
    for (place, part) in [
        (0, &[0, 5][..]),
        (0, &[6]),
        (1, &[6]),
        (1, &[]),
        (2, &[0, 0, 0, 1, 11]),
        (3, &[0]),
        (4, &other),
    ] {
        assert_ne!(with(place, part), row(key), "{place}");
    }
}

/// Writes that a transaction has committed may not be there yet when its table is given the mode.
#[test]
fn a_conditional_statement_waits_for_transactions_on_its_partition() {
    let of_transaction = |text: &str| {
        let outline = Outline::parse(text, "ks").expect("a transaction");
        let draft = Draft::new(outline, &[leases(&[])], 0, false).expect("a transaction");
        let shown = shown(&draft, &[]);
        Plan::new(draft, &shown).expect("a plan").with(&[]).partitions().expect("a key")
    };
    let of_statement = plan("UPDATE leases SET v = 1 WHERE k = 3 AND c = 4")
        .with(&[])
        .partitions()
        .expect("a key");
    for other in
        ["UPDATE leases SET v = 2 WHERE k = 3 AND c = 4", "INSERT INTO leases (k, c) VALUES (3, 5)"]
    {
        let written = of_transaction(&format!("BEGIN TRANSACTION {other}; COMMIT TRANSACTION"));
        assert_eq!(written.len(), 1);
        assert!(
            of_statement.contains(&(written[0].0, Mode::Shared)),
            "{other}: {written:?} {of_statement:?}"
        );
    }
}

/// A table whose columns these are cannot have the mode, as `ALTER` sees it, and as statements do.
fn unfit(columns: &[(&str, &str, &str)]) -> (Option<String>, Option<String>) {
    let of_columns = [
        ("column_name", native::TEXT),
        ("kind", native::TEXT),
        ("position", native::INT),
        ("type", native::TEXT),
    ];
    let position = |place: usize| Some((place as i32).to_be_bytes().to_vec());
    let rows: Vec<_> = (0..)
        .zip(columns)
        .map(|(place, (name, kind, cql_type))| {
            vec![text(name), text(kind), position(place), text(cql_type)]
        })
        .collect();
    let by_text = with_rows(&of_columns, &rows, schema::unfit_by_text);
    let columns: Vec<_> =
        (0..).zip(columns).map(|(place, (name, kind, of))| (*name, *kind, place, *of)).collect();
    (by_text, table("leases", &columns).unfit_for_conditional())
}

#[test]
fn alter_refuses_what_statements_would_be_refused_on() {
    let names: Vec<String> = (0..65).map(|number| format!("v{number}")).collect();
    let columns = |count: usize| {
        let regular = names.iter().take(count).map(|name| (name.as_str(), "regular", "int"));
        [("k", "partition_key", "int")].into_iter().chain(regular).collect::<Vec<_>>()
    };
    assert_eq!(unfit(&columns(64)), (None, None));
    let key = ("k", "partition_key", "int");
    let frozen =
        [key, ("v", "regular", "frozen<spot>"), ("w", "regular", "tuple<int, frozen<list<spot>>>")];
    assert_eq!(unfit(&frozen), (None, None));
    for (columns, shown) in [
        (columns(65), "65 columns"),
        (vec![key, ("v", "regular", "spot")], "not frozen"),
        (vec![key, ("v", "regular", "set<frozen<spot>>")], "not frozen"),
        (vec![key, ("v", "regular", "int"), ("s", "static", "int")], "static"),
        (vec![key], "no column beside its key"),
    ] {
        let (by_text, by_types) = unfit(&columns);
        assert!(by_types.is_some_and(|why| why.contains(shown)), "{shown}");
        assert!(by_text.as_ref().is_some_and(|why| why.contains(shown)), "{shown}: {by_text:?}");
    }
}

/// Each column is a statement of the batch that makes a row anew, with the whole key in it.
#[test]
fn a_table_whose_rows_take_too_long_a_text_cannot_have_the_mode() {
    let long = "n".repeat(1_000);
    let keys: Vec<String> = (0..200).map(|number| format!("{long}{number}")).collect();
    let names: Vec<String> = (0..64).map(|number| format!("v{number}")).collect();
    let of = |keys: &[String]| {
        let keys = keys.iter().map(|name| (name.as_str(), "clustering", "int"));
        let regular = names.iter().map(|name| (name.as_str(), "regular", "int"));
        let columns: Vec<_> =
            [("k", "partition_key", "int")].into_iter().chain(keys).chain(regular).collect();
        unfit(&columns)
    };
    // Of 1,100 there would be more values than a message can have.
    let short: Vec<String> = (0..1_100).map(|number| format!("c{number}")).collect();
    assert_eq!(of(&short[..10]), (None, None));
    for keys in [&keys, &short] {
        let (by_text, by_types) = of(keys);
        let is_told = |why: Option<String>| why.is_some_and(|why| why.contains("too long"));
        assert!(is_told(by_types) && is_told(by_text), "{}", keys.len());
    }
}

#[test]
fn a_table_with_another_column_has_another_layout() {
    let layout = |table: &Table| table.layout();
    assert_eq!(layout(&leases(&[])), layout(&leases(&[])));
    assert_ne!(layout(&leases(&[])), layout(&leases(&[("w", "regular", -1, "int")])));
    assert_ne!(
        layout(&leases(&[("w", "regular", -1, "text")])),
        layout(&leases(&[("w", "regular", -1, "int")]))
    );
    let frozen = leases(&[("w", "regular", -1, "frozen<list<int>>")]);
    assert_eq!((frozen.unfit_for_conditional(), leases(&[]).unfit_for_conditional()), (None, None));
}
