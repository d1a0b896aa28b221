//! Single statements on tables with the mode `conditional`.

use shunt_wire::cql::message::Value as Wire;

use super::super::lone::Verdict;
use super::*;
use crate::transactions::row::{Cells, Change, ReadRow};

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
    let outline = Outline::read(text, "ks").map_err(|refusal| refusal.to_string())?;
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

/// What a statement answers on a row: none if it is carried out.
fn answer(text: &str, values: &[i32], row: Option<Cells>) -> Option<(Vec<String>, Vec<Option<i32>>)> {
    let plan = plan(text);
    let (bound, list) = (plan.draft.lone.as_ref().expect("a single statement"), ints(values));
    let values = plan.bind(&list.values()).expect("values");
    match plan.with(&values).verdict(bound, row.as_ref()).expect(text) {
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
fn what_is_refused_shows_what_nodes_show() {
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
    let of = "DELETE FROM leases WHERE k = 1 AND c = 2 IF v = ? AND \"Owner\" IN (?, 9) AND v = null";
    let columns = vec!["[applied]".into(), "v".into(), "Owner".into()];
    assert_eq!(answer(of, &[5, 7], row()), Some((columns, vec![Some(0), None, Some(7)])));
    assert_eq!(answer(of, &[5, 7], None), Some((vec!["[applied]".into()], vec![Some(0)])));
    assert_eq!(answer("UPDATE leases SET v = 1 WHERE k = 1 AND c = 2 IF v = null AND \"Owner\" != 7", &[], None), None);
    assert_eq!(answer("UPDATE leases SET v = 1 WHERE k = 1 AND c = 2", &[], row()), None);
}

#[test]
fn it_is_read_with_all_that_its_row_is_made_anew_by() {
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
    let (bound, lone) = (plan.with(&values), plan.draft.lone.as_ref().expect("a single statement"));
    assert_eq!(bound.lives(lone), Ok(Some(60)));
    assert_eq!(bound.change(lone), Ok(Change::Update(vec![(1, int(5))])));
    let key = bound.read_values(0).expect("a key");
    assert_eq!(
        key.values().iter().map(|(_, value)| value).collect::<Vec<_>>(),
        [3_i32, 4].map(|part| Wire::Bytes(&*Box::leak(Box::new(part.to_be_bytes()))))
    );
    let partitions = bound.partitions().expect("partitions");
    assert_eq!(partitions.iter().map(|(_, mode)| *mode).collect::<Vec<_>>(), [Mode::Exclusive, Mode::Shared]);
    let truncate = self::plan("TRUNCATE leases");
    let whole = truncate.with(&[]).partitions().expect("one");
    assert_eq!(whole, [(partitions[1].0, Mode::Exclusive)], "it keeps all others out of the table");
    assert_eq!(&*truncate.draft.writes[0].text, "TRUNCATE ks.leases");
}

/// The text and the numbers that a write is sent with; -1 is null, -2 is unset.
fn write(read: Option<&RowRead>, is_refused: bool) -> (String, Vec<i64>) {
    let plan = plan("UPDATE leases SET v = 5 WHERE k = 3 AND c = 4 IF v = null");
    let lone = plan.draft.lone.as_ref().expect("a single statement");
    let row = read.map(|read| ReadRow::of(2, read).expect("a row"));
    let (text, list) = plan.with(&[]).lone_write(lone, row.as_ref(), 1_000, is_refused).expect("a write");
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
    let updates =
        ["\"Owner\"", "v"].map(|column| format!("UPDATE USING TIMESTAMP ? AND TTL ? SET {column} = ? ..;\n")).concat();
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
    let read = ReadRow::of(2, &both).expect("a row");
    assert_eq!((read.latest_us, read.cells.clone()), (60, Some(cells(&[Some(7), Some(8)]))));
    for broken in
        [vec![], vec![small(7), number(9), number(50), small(8), None, number(60)], vec![small(7), small(9), small(50)]]
    {
        assert!(ReadRow::of(2, &Some(broken)).is_none());
    }
}

#[test]
fn what_it_may_not_be_is_refused_by_name() {
    for (text, shown) in [
        ("UPDATE leases SET v = v + 1 WHERE k = 1 AND c = 1", "computed from the row"),
        ("UPDATE leases SET v = 1 WHERE k = 1", "Some clustering keys are missing"),
        ("DELETE FROM leases WHERE k = 1 IF EXISTS", "Some clustering keys are missing"),
        ("UPDATE leases SET x = 1 WHERE k = 1 AND c = 1", "Undefined column name x"),
        ("UPDATE leases SET v = 1 WHERE k = 1 AND c = 1 IF x = 1", "Undefined column name x"),
        ("UPDATE leases SET v = 1 WHERE k = 1 AND c = 1 IF c = 1", "PRIMARY KEY column 'c' cannot have IF conditions"),
        ("SELECT v FROM leases WHERE k = 1", "no batch and no transaction"),
        ("BEGIN BATCH UPDATE leases SET v = 1 WHERE k = 1 AND c = 1 APPLY BATCH", "no batch and no transaction"),
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
        let error = draft_on(leases(&[column]), "DELETE FROM leases WHERE k = 1 AND c = 1").expect_err(shown);
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
        let error = plan.with(&values).lives(plan.draft.lone.as_ref().expect("one")).expect_err(shown);
        assert!(error.message.contains(shown), "{}", error.message);
    }
}

#[test]
fn a_table_with_another_column_has_another_layout() {
    let layout = |table: &Table| table.layout();
    assert_eq!(layout(&leases(&[])), layout(&leases(&[])));
    assert_ne!(layout(&leases(&[])), layout(&leases(&[("w", "regular", -1, "int")])));
    assert_ne!(layout(&leases(&[("w", "regular", -1, "text")])), layout(&leases(&[("w", "regular", -1, "int")])));
    let frozen = leases(&[("w", "regular", -1, "frozen<list<int>>")]);
    assert_eq!((frozen.unfit_alone(), leases(&[]).unfit_alone()), (None, None));
}
