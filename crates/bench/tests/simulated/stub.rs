//! The stub against the decoders of the wire crate, as drivers and the proxy see it.

use crate::talk::Talk;
use shunt_bench::stub::Memory;
use shunt_bench::stub::serve::AGGREGATE_LIMITS;
use shunt_bench::stub::{Action, StubMail, hook};
use shunt_wire::aggregate::{AggregateReader, AggregateWriter, Offer, SUPPORTED_KEY};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{
    Consistency, ErrorMessage, Event, QueryParams, ResultMessage, Supported, Value, ValueList,
    encode, error_code, query_flag, split_response_prefix,
};

const INSERT: &str = "INSERT INTO bench.kv (v, k) VALUES (?, ?)";
const SELECT: &str = "SELECT v FROM bench.kv WHERE k = ?";

fn texts(body: &[u8], version: u8, column: &str) -> Vec<String> {
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, body) else {
        panic!("no rows: {body:?}")
    };
    let index = rows.metadata.column_index(column).expect(column);
    let text =
        |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    rows.rows().map(|row| text(row.expect("valid").get(index))).collect()
}

fn prepare(talk: &mut Talk, text: &str) -> (Vec<u8>, Option<Vec<u8>>, Vec<u16>) {
    let mut body = Vec::new();
    encode::prepare(&mut body, talk.version, text, None);
    let (_, body) = talk.ask(1, opcode::PREPARE, &body);
    let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(talk.version, &body) else {
        panic!("not prepared: {body:?}")
    };
    let keys = prepared.bind.partition_key().collect();
    (prepared.id.to_vec(), prepared.result_metadata_id.map(<[u8]>::to_vec), keys)
}

fn execute(version: u8, id: &[u8], metadata_id: Option<&[u8]>, values: &[&[u8]]) -> Vec<u8> {
    let mut list = ValueList::positional(version);
    for value in values {
        list.push(Value::Bytes(value));
    }
    let params = QueryParams {
        values: list.values(),
        flags: query_flag::SKIP_METADATA,
        ..QueryParams::simple(Consistency(1))
    };
    let mut body = Vec::new();
    encode::execute(&mut body, version, id, metadata_id, &params);
    body
}

fn error_of(version: u8, answer: &(Header, Vec<u8>)) -> i32 {
    assert_eq!(answer.0.opcode, opcode::ERROR);
    ErrorMessage::decode(version, &answer.1).expect("an error").code
}

#[test]
fn system_tables_in_every_version_and_compression() {
    for (version, compression) in [
        (3, None),
        (3, Some(Algorithm::Snappy)),
        (4, None),
        (4, Some(Algorithm::Lz4)),
        (5, None),
        (5, Some(Algorithm::Lz4)),
    ] {
        let mut talk = Talk::open(version, compression, |_| {});
        let local = talk.query("SELECT * FROM system.local WHERE key='local'");
        assert_eq!(texts(&local, version, "cluster_name"), ["Shunt stub"]);
        let nobody = talk.query("SELECT cluster_name FROM system.local WHERE key='remote'");
        assert!(texts(&nobody, version, "cluster_name").is_empty());
        let peers = talk.query("SELECT data_center, native_port FROM system.peers_v2");
        assert_eq!(texts(&peers, version, "data_center"), ["datacenter1", "datacenter1"]);
        let tables = talk.query("select table_name, keyspace_name from system_schema.tables");
        assert_eq!(texts(&tables, version, "table_name"), ["kv"]);
        let columns =
            talk.query("SELECT * FROM system_schema.columns WHERE keyspace_name = 'bench'");
        assert_eq!(texts(&columns, version, "column_name"), ["k", "v"]);
        assert!(
            texts(&talk.query("SELECT * FROM system_schema.types"), version, "type_name")
                .is_empty()
        );
    }
}

#[test]
fn an_unknown_version_is_answered_in_the_highest_known_and_closed() {
    let mut talk = Talk::new(6, |options| options.protocol_max = 4);
    let answer = talk.ask(0, opcode::OPTIONS, &[]);
    assert_eq!((answer.0.version, error_of(4, &answer)), (4, error_code::PROTOCOL_ERROR));
    assert!(talk.world.host(talk.client).is_closed());
}

#[test]
fn aggregated_frames_are_offered_only_when_wanted() {
    for wanted in [false, true] {
        let mut talk =
            Talk::new(4, |options| options.aggregate = wanted.then_some(AGGREGATE_LIMITS));
        let (_, body) = talk.ask(0, opcode::OPTIONS, &[]);
        let supported = Supported::decode(&body).expect("SUPPORTED");
        assert!(supported.options.get("COMPRESSION").is_some());
        let offer =
            supported.options.get(SUPPORTED_KEY).and_then(|values| Offer::parse(values.iter()));
        assert_eq!(
            offer.map(|offer| offer.count_max),
            wanted.then_some(AGGREGATE_LIMITS.count_max)
        );
    }
}

#[test]
fn an_inserted_row_is_found() {
    for version in [3, 4, 5] {
        let mut talk =
            Talk::open(version, None, |options| options.memory = Some(Memory::default()));
        let (insert, insert_metadata, keys) = prepare(&mut talk, INSERT);
        assert_eq!(keys, if version == 3 { vec![] } else { vec![1] });
        let (select, select_metadata, _) = prepare(&mut talk, SELECT);
        let body = execute(version, &insert, insert_metadata.as_deref(), &[b"value", b"key"]);
        let (_, answer) = talk.ask(9, opcode::EXECUTE, &body);
        assert_eq!(ResultMessage::decode(version, &answer), Ok(ResultMessage::Void));
        for (key, count) in [(&b"key"[..], 1), (b"other", 0)] {
            let body = execute(version, &select, select_metadata.as_deref(), &[key]);
            let (_, answer) = talk.ask(9, opcode::EXECUTE, &body);
            let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, &answer) else {
                panic!("{answer:?}")
            };
            assert_eq!((rows.row_count, rows.metadata.columns().count()), (count, 0));
            let found =
                rows.rows().next().map(|row| row.expect("valid").get(0).map(<[u8]>::to_vec));
            assert_eq!(found, (count == 1).then(|| Some(b"value".to_vec())));
        }
        let whole = talk.query("SELECT k, v FROM bench.kv WHERE k = 0x6b6579");
        assert_eq!(texts(&whole, version, "v"), ["value"]);
        assert_eq!(talk.world.host(talk.stub).counts().queries, 4);
    }
}

#[test]
fn a_statement_forgotten_is_unprepared() {
    let mut talk = Talk::open(4, None, |_| {});
    let (id, ..) = prepare(&mut talk, INSERT);
    let body = execute(4, &id, None, &[b"value", b"key"]);
    assert_eq!(talk.ask(1, opcode::EXECUTE, &body).0.opcode, opcode::RESULT);
    talk.world.post(talk.stub, StubMail::ForgetStatements(0));
    let answer = talk.ask(1, opcode::EXECUTE, &body);
    let error = ErrorMessage::decode(4, &answer.1).expect("an error");
    assert_eq!(error.unprepared_id(), Some(&id[..]));
}

#[test]
fn keys_of_other_nodes_are_counted_as_misrouted() {
    let mut talk = Talk::open(4, None, |_| {});
    let (id, ..) = prepare(&mut talk, INSERT);
    for key in 0..60u8 {
        talk.send(
            Header::request(4, i16::from(key), opcode::EXECUTE),
            &execute(4, &id, None, &[b"v", &[key]]),
        );
    }
    assert_eq!(talk.answers().len(), 60);
    let misrouted = talk.world.host(talk.stub).counts().misrouted;
    assert!((25..55).contains(&misrouted), "about two thirds of 60, not {misrouted}");
}

#[test]
fn tracing_and_custom_payload_come_back() {
    let mut talk = Talk::open(4, None, |_| {});
    let mut body = Vec::new();
    shunt_wire::cql::message::put::bytes_map(&mut body, [("a", Some(&b"b"[..]))]);
    encode::query_simple(&mut body, 4, "SELECT key FROM system.local", Consistency(1));
    let mut header = Header::request(4, 7, opcode::QUERY);
    header.flags = flag::TRACING | flag::CUSTOM_PAYLOAD;
    let (header, body) = talk.ask_with(header, &body);
    let (prefix, rest) = split_response_prefix(header.flags, &body).expect("a prefix");
    assert!(prefix.tracing_id.is_some());
    let payload: Vec<_> = prefix.custom_payload.expect("a payload").iter().collect();
    assert_eq!(payload, [("a", Some(&b"b"[..]))]);
    assert_eq!(texts(rest, 4, "key"), ["local"]);
}

#[test]
fn a_login_is_asked_for_and_checked() {
    for (version, password, expected) in [
        (4, "right", opcode::AUTH_SUCCESS),
        (5, "right", opcode::AUTH_SUCCESS),
        (4, "wrong", opcode::ERROR),
    ] {
        let mut talk = Talk::new(version, |options| {
            options.credentials = vec![("user".into(), "right".into())]
        });
        assert_eq!(talk.startup(None).0.opcode, opcode::AUTHENTICATE);
        let mut body = Vec::new();
        encode::auth_response(&mut body, Some(format!("\0user\0{password}").as_bytes()));
        assert_eq!(talk.ask(1, opcode::AUTH_RESPONSE, &body).0.opcode, expected);
    }
}

#[test]
fn events_go_to_those_who_registered() {
    let mut talk = Talk::open(5, Some(Algorithm::Lz4), |_| {});
    let address = ([10, 9, 9, 2], 9042).into();
    talk.world.post(talk.stub, StubMail::Status("DOWN", address));
    assert!(talk.answers().is_empty());
    let mut body = Vec::new();
    encode::register(&mut body, ["STATUS_CHANGE"]);
    assert_eq!(talk.ask(2, opcode::REGISTER, &body).0.opcode, opcode::READY);
    talk.world.post(talk.stub, StubMail::Status("UP", address));
    talk.world.post(talk.stub, StubMail::Topology("NEW_NODE", address));
    let answers = talk.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].0.stream, answers[0].0.opcode), (-1, opcode::EVENT));
    assert_eq!(Event::decode(&answers[0].1), Ok(Event::StatusChange { change: "UP", address }));
}

#[test]
fn an_aggregated_frame_is_answered_in_one_frame_and_in_order() {
    let mut talk = Talk::open(4, None, |options| options.aggregate = Some(AGGREGATE_LIMITS));
    let (id, ..) = prepare(&mut talk, SELECT);
    let mut frame = Vec::new();
    let mut writer = AggregateWriter::new(AGGREGATE_LIMITS);
    for (stream, version) in [(5, 4), (300, 5), (7, 3)] {
        let metadata_id = (version == 5).then_some(&id[..]);
        let body = execute(version, &id, metadata_id, &[b"key"]);
        writer.push(&mut frame, stream, 1, version, 0, opcode::EXECUTE, &body);
    }
    writer.push_client_gone(&mut frame, 1);
    writer.push(
        &mut frame,
        9,
        2,
        4,
        0,
        opcode::EXECUTE,
        &execute(4, b"unknown statement", None, &[]),
    );
    writer.finish(&mut frame);
    let header = Header::decode(&frame).expect("a header");
    let (header, body) = talk.ask_with(header, &frame[9..]);
    assert_eq!(header.opcode, opcode::AGGREGATE);
    let entries: Vec<_> =
        AggregateReader::new(&body).expect("a count").map(|entry| entry.expect("valid")).collect();
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| (entry.stream, entry.client_id, entry.version, entry.opcode))
        .collect();
    let result = opcode::RESULT;
    assert_eq!(
        seen,
        [(5, 1, 4, result), (300, 1, 5, result), (7, 1, 3, result), (9, 2, 4, opcode::ERROR)]
    );
    let counts = talk.world.host(talk.stub).counts();
    assert_eq!(
        (counts.aggregated_frames, counts.aggregated_queries, counts.clients_gone),
        (1, 4, 1)
    );
}

#[test]
fn hooks_do_what_they_are_told_once() {
    let execute_only = |request: &hook::Request<'_>| request.opcode == opcode::EXECUTE;
    let cases = [
        (Action::Error(error_code::OVERLOADED), Some(error_code::OVERLOADED)),
        (Action::Unprepared, Some(error_code::UNPREPARED)),
        (Action::Delay(3_000_000_000), None),
    ];
    for (action, expected) in cases {
        let mut talk =
            Talk::open(4, None, |options| options.hook = Some(hook::once(action, execute_only)));
        let (id, ..) = prepare(&mut talk, SELECT);
        let body = execute(4, &id, None, &[b"key"]);
        let answer = talk.ask(4, opcode::EXECUTE, &body);
        match expected {
            Some(code) => assert_eq!(error_of(4, &answer), code),
            None => assert_eq!(answer.0.opcode, opcode::RESULT),
        }
        assert_eq!(talk.ask(5, opcode::EXECUTE, &body).0.opcode, opcode::RESULT);
    }
}

#[test]
fn hooks_can_break_streams_and_connections() {
    let any_query = |request: &hook::Request<'_>| request.opcode == opcode::QUERY;
    let mut body = Vec::new();
    encode::query_simple(&mut body, 4, "SELECT key FROM system.local", Consistency(1));
    let mut talk = Talk::open(4, None, |options| {
        options.hook = Some(hook::once(Action::UnknownStream(99), any_query))
    });
    talk.send(Header::request(4, 1, opcode::QUERY), &body);
    assert_eq!(talk.answers()[0].0.stream, 99);
    let mut talk =
        Talk::open(4, None, |options| options.hook = Some(hook::once(Action::Silence, any_query)));
    talk.send(Header::request(4, 1, opcode::QUERY), &body);
    assert!(talk.answers().is_empty() && !talk.world.host(talk.client).is_closed());
    let mut talk =
        Talk::open(4, None, |options| options.hook = Some(hook::once(Action::Close, any_query)));
    talk.send(Header::request(4, 1, opcode::QUERY), &body);
    assert!(talk.answers().is_empty() && talk.world.host(talk.client).is_closed());
}

#[test]
fn nonsense_gets_an_error_and_is_closed() {
    let mut talk = Talk::new(4, |_| {});
    let mut header = Header::request(4, 0, opcode::QUERY);
    header.flags = flag::COMPRESSION;
    talk.send(header, b"xyz");
    let answers = talk.answers();
    assert_eq!(error_of(4, &answers[0]), error_code::PROTOCOL_ERROR);
    assert!(talk.world.host(talk.client).is_closed());
    assert_eq!(talk.world.host(talk.stub).counts().protocol_errors, 1);
}

fn rows_of(version: u8, body: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, body) else {
        panic!("no rows: {body:?}")
    };
    let row = |row: shunt_wire::cql::message::Row<'_>| {
        row.values().map(|value| value.expect("set").to_vec()).collect()
    };
    rows.rows().map(|found| row(found.expect("valid"))).collect()
}

fn list(keys: &[&[u8]]) -> Vec<u8> {
    let mut list = Vec::new();
    shunt_wire::cql::message::put::int(&mut list, keys.len() as i32);
    keys.iter().for_each(|key| shunt_wire::cql::message::put::bytes(&mut list, Some(key)));
    list
}

#[test]
fn several_keys_are_found_at_once() {
    for version in [3, 4, 5] {
        let mut talk =
            Talk::open(version, None, |options| options.memory = Some(Memory::default()));
        let (insert, metadata, _) = prepare(&mut talk, INSERT);
        for (key, value) in [(b"a", b"one"), (b"b", b"two")] {
            talk.ask(
                1,
                opcode::EXECUTE,
                &execute(version, &insert, metadata.as_deref(), &[value, key]),
            );
        }
        let (each, each_metadata, keys) =
            prepare(&mut talk, "SELECT k, v FROM bench.kv WHERE k IN (?, ?, ?)");
        assert_eq!(
            keys,
            if version == 3 { vec![] } else { vec![2] },
            "the last marker, as with Cassandra"
        );
        let (all, all_metadata, keys) =
            prepare(&mut talk, "SELECT k, v FROM bench.kv WHERE k IN ?");
        assert!(keys.is_empty());
        for body in [
            execute(version, &each, each_metadata.as_deref(), &[b"b", b"x", b"a"]),
            execute(version, &all, all_metadata.as_deref(), &[&list(&[b"b", b"x", b"a"])]),
        ] {
            let (_, answer) = talk.ask(1, opcode::EXECUTE, &body);
            assert_eq!(
                rows_of(version, &answer),
                [[b"b".to_vec(), b"two".to_vec()], [b"a".to_vec(), b"one".to_vec()]]
            );
        }
        let counts = talk.world.host(talk.stub).counts();
        assert_eq!((counts.multigets, counts.multiget_keys), (2, 6));
    }
}

#[test]
fn keys_of_a_multiget_on_other_nodes_are_counted() {
    let mut talk = Talk::open(4, None, |_| {});
    let (id, ..) = prepare(&mut talk, "SELECT v FROM bench.kv WHERE k IN ?");
    let keys: Vec<[u8; 1]> = (0..60).map(|key| [key]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let (_, answer) = talk.ask(1, opcode::EXECUTE, &execute(4, &id, None, &[&list(&keys)]));
    assert_eq!(rows_of(4, &answer).len(), 60);
    let counts = talk.world.host(talk.stub).counts();
    assert_eq!((counts.misrouted, counts.multiget_keys), (0, 60));
    let elsewhere = counts.multiget_keys_elsewhere;
    assert!((25..55).contains(&elsewhere), "about two thirds of 60, not {elsewhere}");
}

#[test]
fn a_scan_finds_its_key_and_as_many_rows_as_it_may() {
    for remembers in [true, false] {
        let mut talk =
            Talk::open(4, None, |options| options.memory = remembers.then(Memory::default));
        let (insert, ..) = prepare(&mut talk, INSERT);
        for key in 0..20 {
            talk.ask(1, opcode::EXECUTE, &execute(4, &insert, None, &[b"value", &[key]]));
        }
        let (scan, ..) =
            prepare(&mut talk, "SELECT k, v FROM bench.kv WHERE token(k) >= token(?) LIMIT ?");
        let (_, answer) =
            talk.ask(1, opcode::EXECUTE, &execute(4, &scan, None, &[&[7], &5i32.to_be_bytes()]));
        let rows = rows_of(4, &answer);
        assert_eq!((rows.len(), &rows[0][0]), (5, &vec![7]));
        let literal = talk.query("SELECT k FROM bench.kv WHERE token(k) >= token(0x03) LIMIT 2");
        assert_eq!((rows_of(4, &literal).len(), &rows_of(4, &literal)[0][0]), (2, &vec![3]));
        let wrong =
            talk.ask(1, opcode::EXECUTE, &execute(4, &scan, None, &[&[7], &0i32.to_be_bytes()]));
        assert_eq!(error_of(4, &wrong), error_code::INVALID);
    }
}
