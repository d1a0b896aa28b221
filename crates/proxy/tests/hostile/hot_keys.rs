//! Hot keys: a partition that is read or written more than others is found among many, and clients
//! cannot make the sketches grow.

use shunt_proxy::control::CoreMail;
use shunt_proxy::hot_keys::CoreHotKeys;
use shunt_reactor::sim::{HostId, MILLISECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, QueryParams, ResultMessage, Value,
    ValueList, encode,
};
use tokio::sync::mpsc;

use super::testbed::Testbed;

/// The hot keys of the only core.
fn hot_keys(testbed: &mut Testbed) -> CoreHotKeys {
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(testbed.scene.cores[0], CoreMail::HotKeys(sender));
    testbed.run_for(10 * MILLISECOND);
    answers.try_recv().expect("an answer")
}

fn prepare(testbed: &mut Testbed, client: HostId<simulated::Client>) -> Vec<u8> {
    testbed.send(client, &bytes::prepare(4, 1, "INSERT INTO bench.kv (k, v) VALUES (?, ?)"));
    testbed.answered(client, 1);
    let answers = testbed.take_answers(client);
    let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(4, &answers[0].body) else {
        panic!("{answers:?}")
    };
    prepared.id.to_vec()
}

#[test]
fn a_hot_key_is_found_among_a_flood_of_others() {
    let mut testbed = Testbed::bare(|options| options.config.hot_keys_sample = 1);
    let client = testbed.started_offender(4);
    let id = prepare(&mut testbed, client);
    for round in 0..20 {
        for number in 0..100 {
            let cold = format!("{round} {number}");
            let key = if number % 4 == 0 { "hot" } else { &cold };
            testbed.send(client, &bytes::execute(4, number, &id, &[key.as_bytes(), b"v"]));
            let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
            let text = format!("SELECT v FROM bench.kv WHERE k = 0x{hex}");
            testbed.send(client, &bytes::query(4, 200 + number, &text));
        }
        testbed.answered(client, 200);
        testbed.take_answers(client);
    }
    let found = hot_keys(&mut testbed);
    let table = found.tables.iter().find(|table| &*table.table == "kv").expect("the table");
    for sketches in [&table.reads, &table.writes] {
        let samples: u32 = sketches.iter().map(|sketch| sketch.samples()).sum();
        assert_eq!(samples, 2_000);
        let entries = sketches.iter().flat_map(|sketch| sketch.entries());
        let hot: Vec<_> = entries.filter(|entry| entry.key() == b"hot").collect();
        let (count, error) = hot
            .iter()
            .fold((0, 0), |(count, error), entry| (count + entry.count, error + entry.error));
        assert!(count >= 500 && count - error <= 500, "{hot:?}");
    }
}

#[test]
fn nothing_is_looked_at_if_it_is_off() {
    let mut testbed = Testbed::bare(|options| options.config.hot_keys_sample = 0);
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 0x61"));
    testbed.answered(client, 1);
    assert!(hot_keys(&mut testbed).tables.is_empty());
}

#[test]
fn batches_are_not_looked_at() {
    let mut testbed = Testbed::bare(|options| options.config.hot_keys_sample = 1);
    let client = testbed.started_offender(4);
    let prepared = prepare(&mut testbed, client);
    let none = ValueList::positional(4);
    let mut key = ValueList::positional(4);
    key.push(Value::Bytes(b"a"));
    key.push(Value::Bytes(b"b"));
    let text = BatchStatement::Text("INSERT INTO bench.kv (k, v) VALUES ('a', 'b')");
    let children = [(text, &none), (BatchStatement::Prepared(&prepared), &key)];
    for (stream, (statement, values)) in (2..).zip(children) {
        let child = BatchChild { statement, values: values.values() };
        let params = QueryParams::simple(Consistency::ONE);
        let body = bytes::body(|out| encode::batch(out, 4, BatchKind::Unlogged, [child], &params));
        testbed.send(client, &bytes::request(4, stream, opcode::BATCH, &body));
        testbed.answered(client, 1);
        testbed.take_answers(client);
    }
    assert!(hot_keys(&mut testbed).tables.is_empty());
}
