//! Values of functions that differ with each call.

use super::*;

/// A plan of a text with one marker of the client's, of type text.
fn plan_of(text: &str, markers: &[&[&[u8]]]) -> Plan {
    let draft = draft(text).expect("a transaction");
    let of = |types: &&[&[u8]]| {
        let markers =
            types.iter().map(|&one| ColumnSpec { name: "m".into(), type_option: one.into() });
        PreparedText { markers: markers.collect(), columns: Vec::new() }
    };
    let shown: Vec<_> = markers.iter().map(of).collect();
    Plan::new(draft, &shown).expect("a plan")
}

fn written(plan: &Plan, moment: &Moment) -> (Vec<(Partition, Mode)>, Vec<Vec<Value>>) {
    let mut list = ValueList::positional(4);
    list.push(shunt_wire::cql::message::Value::Bytes(b"ann"));
    let mut values = plan.bind(&list.values()).expect("values");
    plan.call(&mut values, moment).expect("what functions give");
    let bound = plan.with(&values);
    match bound.decide(&[]).expect("a decision") {
        PlanDecision::Write(writes) => (bound.partitions().expect("keys"), writes),
        PlanDecision::Nothing => panic!("it has no conditions"),
    }
}

const WALL_US: i64 = 1_795_742_881_292_362;

#[test]
fn calls_are_computed_once_for_keys_and_values() {
    let text = "BEGIN TRANSACTION
      INSERT INTO events (seen, id, at, who) VALUES (now(), uuid(), to_timestamp(now()), ?);
      UPDATE moves SET noted = current_timeuuid() WHERE a = 'x' AND \"B\" = 1;
    COMMIT TRANSACTION";
    let (timeuuid, uuid, timestamp, varchar) =
        (native::TIMEUUID, native::UUID, native::TIMESTAMP, native::TEXT);
    let plan = plan_of(text, &[&[timeuuid, uuid, timestamp, varchar], &[timeuuid]]);
    let texts: Vec<_> = plan.draft.texts().map(|text| text.to_string()).collect();
    assert!(texts[0].ends_with("(seen, id, at, who) VALUES (?, ?, ?, ?)"), "{texts:?}");
    assert!(texts[1].contains("SET noted = ? WHERE"), "{texts:?}");
    assert_eq!(plan.markers.len(), 1, "the client's alone");
    let (partitions, writes) = written(&plan, &Moment::new(WALL_US, 7));
    let bytes = |write: usize, value: usize| match &writes[write][value] {
        Value::Bytes(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(writes[0].len() + writes[1].len(), 5);
    assert_eq!(bytes(0, 2), (WALL_US / 1_000).to_be_bytes());
    assert_eq!(bytes(0, 3), b"ann");
    let versions = [bytes(0, 0)[6] >> 4, bytes(0, 1)[6] >> 4, bytes(1, 0)[6] >> 4];
    assert_eq!(versions, [1, 4, 1]);
    assert_ne!(bytes(0, 0), bytes(1, 0), "two calls give two values");
    // What is locked is what is written.
    let id = super::super::partition("ks", "events", &[bytes(0, 1)]);
    assert_eq!(partitions[0], (id, Mode::Exclusive));
    assert_eq!(written(&plan, &Moment::new(WALL_US, 7)), (partitions.clone(), writes.clone()));
    assert_ne!(
        written(&plan, &Moment::new(WALL_US, 8)).0[0],
        partitions[0],
        "another number, another key"
    );
}

#[test]
fn two_of_a_key_are_two_rows() {
    let insert = "INSERT INTO events (id, at) VALUES (uuid(), current_timestamp());";
    let text = format!(
        "BEGIN TRANSACTION {insert} {insert} INSERT INTO events (id, at, who) VALUES (uuid(), 5, ?); COMMIT TRANSACTION"
    );
    let key: &[&[u8]] = &[native::UUID, native::TIMESTAMP];
    let (partitions, _) = written(
        &plan_of(&text, &[key, key, &[native::UUID, native::TEXT]]),
        &Moment::new(WALL_US, 7),
    );
    assert!(
        partitions[0] != partitions[1]
            && partitions[1] != partitions[2]
            && partitions[0] != partitions[2]
    );
}
