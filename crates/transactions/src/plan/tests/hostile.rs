//! Tables that somebody has made to harm the proxies: who may make tables needs no right on any
//! other for that.

use super::super::conditional::Verdict;
use super::*;
use crate::conditional::row::Cells;
use crate::plan::cache::Plans;

/// A table with one column of this type, in a keyspace with these types.
fn table_of(types: &[(String, Vec<String>)], cql_type: &str) -> Result<Table, String> {
    let list: &[u8] = native::LIST_OF_TEXT;
    let of_types = [("type_name", native::TEXT), ("field_names", list), ("field_types", list)];
    let names: Vec<String> = (0..64).map(|number| format!("f{number}")).collect();
    let rows: Vec<_> = types
        .iter()
        .map(|(name, fields)| {
            let names: Vec<&str> = names.iter().take(fields.len()).map(String::as_str).collect();
            vec![
                text(name),
                texts(&names),
                texts(&fields.iter().map(String::as_str).collect::<Vec<_>>()),
            ]
        })
        .collect();
    let types = with_rows(&of_types, &rows, |rows| Types::read("ks", rows));
    let read = [vec![Some(vec![1; 16]), text("BLOCKING")]];
    let table = with_rows(&[("id", native::UUID), ("read_repair", native::TEXT)], &read, |rows| {
        Table::read(types, "t", rows)
    });
    let of_columns = [
        ("column_name", native::TEXT),
        ("kind", native::TEXT),
        ("position", native::INT),
        ("type", native::TEXT),
    ];
    let position = || Some((-1_i32).to_be_bytes().to_vec());
    let rows = [
        vec![text("k"), text("partition_key"), Some(vec![0; 4]), text("int")],
        vec![text("v"), text("regular"), position(), text(cql_type)],
    ];
    with_rows(&of_columns, &rows, |rows| table.expect("a table").with_columns(rows))
}

/// Plans have the columns of their tables each, of which Cassandra takes ten thousand.
#[test]
fn plans_on_wide_tables_take_no_more_memory_than_others() {
    let names: Vec<String> = (0..10_000).map(|number| format!("column{number}")).collect();
    let regular = names.iter().map(|name| (name.as_str(), "regular", -1, "int"));
    let columns: Vec<_> = [("k", "partition_key", 0, "int")].into_iter().chain(regular).collect();
    let wide = table("wide", &columns);
    assert!(wide.bytes() > 2_000_000, "{}", wide.bytes());
    let mut plans = Plans::default();
    for number in 0..400 {
        let text = format!("UPDATE wide SET column1 = {number} WHERE k = 1");
        let outline = Outline::parse(&text, "ks").expect("a statement");
        let table = Arc::new(Table::clone(&wide));
        let draft = Draft::new(outline, &[table], 0, false).expect("a transaction");
        let shown = shown(&draft, &[]);
        let plan = Arc::new(Plan::new(draft, &shown).expect("a plan"));
        plans.keep(("ks".into(), text.as_str().into()), &plan, &"ann".into(), (5, 0));
        assert!(
            plans.usable(&("ks".into(), text.as_str().into()), 0).is_some(),
            "the last one is kept"
        );
        assert!(plans.by_text.len() < 40, "{number}");
    }
}

/// A plan that is kept for a role; used again, so that a plan that comes once does not push it out.
fn keep(plans: &mut Plans, plan: &Arc<Plan>, who: &str, number: usize, now_ns: u64) {
    let key = ("ks".into(), format!("{who} {number}").as_str().into());
    plans.make_room(0, now_ns);
    plans.keep(key, plan, &who.into(), (u64::MAX / 2, now_ns));
    is_kept(plans, who, number, now_ns);
}

fn is_kept(plans: &mut Plans, who: &str, number: usize, now_ns: u64) -> bool {
    let key = ("ks".into(), format!("{who} {number}").as_str().into());
    plans.usable(&key, now_ns).is_some()
}

#[test]
fn a_role_that_uses_many_plans_pushes_out_its_own() {
    let table = table("t", &[("k", "partition_key", 0, "int"), ("v", "regular", -1, "int")]);
    let text = "UPDATE t SET v = 1 WHERE k = 1";
    let outline = Outline::parse(text, "ks").expect("a statement");
    let draft = Draft::new(outline, &[table], 0, false).expect("a transaction");
    let shown = shown(&draft, &[]);
    let plan = Arc::new(Plan::new(draft, &shown).expect("a plan"));
    let mut plans = Plans::default();
    (0..10).for_each(|number| keep(&mut plans, &plan, "ann", number, 0));
    for number in 0..2_500 {
        keep(&mut plans, &plan, "bob", number, 1 + number as u64);
        assert!(plans.by_text.len() <= 1_024, "{number}");
    }
    assert!((0..10).all(|number| is_kept(&mut plans, "ann", number, 9_999)));
    // The plans that the role has not used for longest went first.
    assert!((2_000..2_500).all(|number| is_kept(&mut plans, "bob", number, 9_999)));
    assert!(!is_kept(&mut plans, "bob", 0, 9_999));
}

/// Types that have the next one in each of so many fields; nodes keep each once.
fn in_each_other(depth: usize, fields: usize) -> Vec<(String, Vec<String>)> {
    let field = |level: usize| {
        if level + 1 == depth { "int".to_owned() } else { format!("frozen<t{}>", level + 1) }
    };
    (0..depth).map(|level| (format!("t{level}"), vec![field(level); fields])).collect()
}

#[test]
fn types_in_each_other_are_not_read_for_ever() {
    assert!(table_of(&in_each_other(4, 5), "frozen<t0>").is_ok());
    for cql_type in ["frozen<t0>", "map<text, frozen<list<frozen<t0>>>>"] {
        // They would have two million fields.
        let error = table_of(&in_each_other(9, 5), cql_type).err().unwrap_or_default();
        assert!(error.contains(cql_type), "{error}");
    }
}

#[test]
fn a_type_that_is_deep_in_itself_is_refused() {
    let deep = format!("{}int{}", "frozen<list<".repeat(20_000), ">>".repeat(20_000));
    assert!(table_of(&[], &deep).is_err());
}

/// A name stands in a text more often than its value does in a message, and each of its places is
/// bound.
#[test]
fn a_value_that_is_named_more_often_than_it_is_sent_is_counted_as_often() {
    let text = |places: usize| {
        let names = vec![":a"; places].join(", ");
        format!(
            "BEGIN TRANSACTION UPDATE accounts SET tags = {{{names}}} WHERE id = 1; COMMIT TRANSACTION"
        )
    };
    let bind = |places: usize, bytes: usize| {
        let draft = draft(&text(places)).expect("a transaction");
        let shown = shown(&draft, &[]);
        let plan = Plan::new(draft, &shown).expect("a plan");
        let mut list = ValueList::named(4);
        list.push_named("a", shunt_wire::cql::message::Value::Bytes(&vec![b'a'; bytes]));
        plan.bind(&list.values()).map(|values| {
            assert_eq!(
                bytes_of(&values),
                places * (bytes + size_of::<Value>()),
                "what its client's share is counted"
            );
            values.len()
        })
    };
    let refused = bind(4_096, 1 << 20).expect_err("4 GiB");
    assert!(
        refused.message.contains("binds values of more than 3145728 bytes"),
        "{}",
        refused.message
    );
    assert_eq!(bind(1, 3 << 20), Ok(1), "as much as a request may have");
    assert_eq!(bind(4_096, 768), Ok(4_096));
    assert!(bind(4_096, 769).is_err());
}

/// The plan of a text on a table of these columns; `read`: those of its read, none for a single
/// statement.
fn plan_on(columns: &[(&str, &str)], read: &[&str], text: &str) -> Plan {
    let regular = columns.iter().map(|(name, cql_type)| (*name, "regular", -1, *cql_type));
    let columns: Vec<_> = [("k", "partition_key", 0, "int")].into_iter().chain(regular).collect();
    let outline = Outline::parse(text, "ks").expect("a transaction");
    let draft = Draft::new(outline, &[table("t", &columns)], 0, read.is_empty()).expect("a plan");
    let shown = shown(&draft, &[read]);
    Plan::new(draft, &shown).expect("a plan")
}

fn of_bytes(value: Vec<u8>) -> RowRead {
    Some(vec![Some(value.into())])
}

/// A map of so many ints, each by itself.
fn map_of(entries: i32) -> Vec<u8> {
    let mut map = entries.to_be_bytes().to_vec();
    for number in 0..entries {
        for part in [number, number] {
            map.extend(4_i32.to_be_bytes());
            map.extend(part.to_be_bytes());
        }
    }
    map
}

fn all_of(condition: &str, count: usize) -> String {
    vec![condition; count].join(" AND ")
}

fn transaction_if(column: &str, conditions: &str) -> String {
    format!(
        "BEGIN TRANSACTION LET r = (SELECT {column} FROM t WHERE k = 1); IF {conditions} THEN UPDATE t SET v = 1 WHERE k = 1; END IF COMMIT TRANSACTION"
    )
}

#[test]
fn many_conditions_on_a_large_value_copy_none_and_read_a_bounded_number_of_bytes() {
    let columns = [("b", "blob"), ("m", "frozen<map<int, int>>"), ("v", "int")];
    // Values that differ in their first byte are compared as often as a text may.
    let text = transaction_if("b", &all_of("r.b != 0x01", 999));
    let large = of_bytes(vec![0; 12 << 20]);
    let plan = plan_on(&columns, &["b"], &text);
    assert_eq!(plan.with(&[]).decide(&[large]), Ok(PlanDecision::Write(vec![vec![]])));
    // A small collection can be searched often, and a large one a few times.
    let decide = |map: Vec<u8>, times| {
        let plan = plan_on(&columns, &["m"], &transaction_if("m", &all_of("r.m[1] = 1", times)));
        plan.with(&[]).decide(&[of_bytes(map)])
    };
    assert_eq!(decide(map_of(1_000), 999), Ok(PlanDecision::Write(vec![vec![]])));
    assert_eq!(decide(map_of(780_000), 2), Ok(PlanDecision::Write(vec![vec![]])));
    let error = decide(map_of(780_000), 999).expect_err("too much");
    assert!(error.message.contains("nothing was written"), "{error}");
}

#[test]
fn many_conditions_of_one_statement_read_a_bounded_number_of_bytes() {
    let columns = [("m", "frozen<map<int, int>>"), ("v", "int")];
    let verdict = |map: &[u8], conditions: &str| {
        let text = format!("UPDATE t SET v = 1 WHERE k = 1 IF {conditions}");
        let plan = plan_on(&columns, &[], &text);
        let cells: Cells = vec![Some(map.into()), None];
        let conditional = plan.draft.conditional.as_ref().expect("a single statement");
        plan.with(&[]).verdict(conditional, Some(&cells), 4)
    };
    let large = map_of(780_000);
    // The first that does not hold decides.
    assert!(matches!(verdict(&large, &all_of("m[1] = 0", 65_000)), Ok(Verdict::Refuse(..))));
    let error = verdict(&large, &all_of("m[1] = 1", 65_000)).expect_err("too much");
    assert!(error.message.contains("nothing was written"), "{error}");
    assert!(matches!(verdict(&map_of(3), &all_of("m[1] = 1", 65_000)), Ok(Verdict::Write)));
}

#[test]
fn a_decimal_of_many_digits_is_not_compared_or_added_to() {
    let columns = [("d", "decimal"), ("v", "int")];
    let large = [&[0; 4][..], &vec![0x5A; 12 << 20]].concat();
    let text = transaction_if("d", &all_of("r.d > 1", 999));
    let error = plan_on(&columns, &["d"], &text).with(&[]).decide(&[of_bytes(large)]);
    error.expect_err("too large");
}
