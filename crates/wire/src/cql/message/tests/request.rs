//! Requests.

use super::super::*;
use super::{body, refuses_every_start};
use crate::error::Problem;

fn params_with_everything<'a>(values: &'a ValueList) -> QueryParams<'a> {
    QueryParams {
        flags: query_flag::SKIP_METADATA,
        values: values.values(),
        page_size: Some(5000),
        paging_state: Some(b"state"),
        serial_consistency: Some(Consistency::LOCAL_SERIAL),
        timestamp: Some(-1),
        keyspace: Some("ks"),
        now_in_seconds: Some(7),
        ..QueryParams::simple(Consistency::QUORUM)
    }
}

#[test]
fn a_query_has_the_specified_layout() {
    let mut values = ValueList::positional(4);
    values.push(Value::Bytes(b"v")).push(Value::Unset);
    let params = QueryParams {
        values: values.values(),
        page_size: Some(2),
        ..QueryParams::simple(Consistency::ONE)
    };
    let tail = [
        0, 2, // value count
        0, 0, 0, 1, b'v', 0xFF, 0xFF, 0xFF, 0xFE, // values
        0, 0, 0, 2, // page size
    ];
    let v4 = body(|out| encode::query(out, 4, "Q", &params));
    assert_eq!(v4, [&[0, 0, 0, 1, b'Q', 0, 1, 0x05][..], &tail].concat());
    let v5 = body(|out| encode::query(out, 5, "Q", &params));
    assert_eq!(v5, [&[0, 0, 0, 1, b'Q', 0, 1, 0, 0, 0, 0x05][..], &tail].concat());
}

#[test]
fn every_parameter_survives_the_round_trip() {
    for version in 3..=5 {
        let mut values = ValueList::named(version);
        values.push_named("a", Value::Bytes(b"x")).push_named("b", Value::Null);
        let sent = params_with_everything(&values);
        let bytes = body(|out| encode::execute(out, version, b"id", Some(b"meta"), &sent));
        refuses_every_start(&bytes, |bytes| Execute::decode(version, bytes));
        refuses_every_start(&bytes, |bytes| ExecuteRouting::decode(version, bytes));
        let found = Execute::decode(version, &bytes).unwrap();
        assert_eq!(found.id, b"id");
        assert_eq!(found.result_metadata_id, (version == 5).then_some(&b"meta"[..]));
        assert!(found.params.skips_metadata());
        let expected = QueryParams {
            flags: found.params.flags,
            now_in_seconds: sent.now_in_seconds.filter(|_| version == 5),
            ..sent
        };
        assert_eq!(found.params, expected);
        let routing = ExecuteRouting::decode(version, &bytes).unwrap();
        assert_eq!(
            (routing.id, routing.consistency, routing.values),
            (found.id, sent.consistency, found.params.values)
        );
        assert_eq!(routing.doubtful, found.params.is_doubtful());
        assert_eq!(found.params.values.named("a"), Some(Value::Bytes(b"x")));
    }
}

#[test]
fn doubtful_parameters_are_reported() {
    let plain = QueryParams::simple(Consistency::ONE);
    let doubtful = [
        QueryParams { paging_state: Some(b"\xff"), ..plain },
        QueryParams { consistency: Consistency(12), ..plain },
        QueryParams { serial_consistency: Some(Consistency(12)), ..plain },
        QueryParams { timestamp: Some(i64::MIN), ..plain },
    ];
    let sound =
        QueryParams { serial_consistency: Some(Consistency::SERIAL), timestamp: Some(0), ..plain };
    for (params, expected) in
        doubtful.map(|params| (params, true)).into_iter().chain([(plain, false), (sound, false)])
    {
        assert_eq!(params.is_doubtful(), expected, "{params:?}");
        let bytes = body(|out| encode::execute(out, 5, b"id", Some(b"meta"), &params));
        assert_eq!(ExecuteRouting::decode(5, &bytes).unwrap().doubtful, expected, "{params:?}");
    }
}

/// Cassandra 5 executes `INSERT INTO t` in the keyspace that a v3 or v4 message names in this way.
#[test]
fn a_keyspace_is_read_in_all_versions_as_nodes_do() {
    for version in [3, 4] {
        let flags = (query_flag::KEYSPACE | query_flag::PAGE_SIZE) as u8;
        let bytes = [&[0, 0, 0, 1, b'Q', 0, 1, flags, 0, 0, 0, 7, 0, 2][..], b"ks"].concat();
        refuses_every_start(&bytes, |bytes| Query::decode(version, bytes));
        let params = Query::decode(version, &bytes).unwrap().params;
        assert_eq!((params.keyspace, params.page_size), (Some("ks"), Some(7)));
        let execute = [&[0, 1, b'i', 0, 1, query_flag::KEYSPACE as u8, 0, 2][..], b"ks"].concat();
        refuses_every_start(&execute, |bytes| ExecuteRouting::decode(version, bytes));
    }
}

#[test]
fn bytes_after_the_message_are_ignored() {
    let mut bytes = body(|out| encode::query_simple(out, 4, "Q", Consistency::ALL));
    bytes.extend_from_slice(b"more");
    assert_eq!(Query::decode(4, &bytes).unwrap().text, "Q");
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let error = Query::decode(4, &[0, 0, 0, 1, 0xFF, 0, 1, 0]).unwrap_err();
    assert_eq!((error.problem, error.offset), (Problem::NotUtf8, 0));
}

#[test]
fn prepare_has_flags_in_v5_only() {
    for (version, keyspace, expected) in
        [(4, Some("ks"), None), (5, Some("ks"), Some("ks")), (5, None, None)]
    {
        let bytes = body(|out| encode::prepare(out, version, "Q", keyspace));
        refuses_every_start(&bytes, |bytes| Prepare::decode(version, bytes));
        let found = Prepare::decode(version, &bytes).unwrap();
        assert_eq!(found, Prepare { text: "Q", keyspace: expected });
    }
    assert_eq!(body(|out| encode::prepare(out, 4, "Q", None)), [0, 0, 0, 1, b'Q']);
}

#[test]
fn a_batch_survives_the_round_trip() {
    for version in 3..=5 {
        let mut values = ValueList::positional(version);
        values.push(Value::Bytes(b"x")).push(Value::Null);
        let children = [
            BatchChild { statement: BatchStatement::Text("Q"), values: Values::default() },
            BatchChild { statement: BatchStatement::Prepared(b"id"), values: values.values() },
        ];
        let params = QueryParams { timestamp: Some(3), ..QueryParams::simple(Consistency::ONE) };
        let bytes = body(|out| encode::batch(out, version, BatchKind::Unlogged, children, &params));
        refuses_every_start(&bytes, |bytes| Batch::decode(version, bytes));
        let batch = Batch::decode(version, &bytes).unwrap();
        assert_eq!((batch.kind, batch.len()), (BatchKind::Unlogged, 2));
        assert_eq!(batch.params.timestamp, Some(3));
        let found: Vec<_> = batch.children().collect();
        assert_eq!(found[0].statement, children[0].statement);
        assert!(found[0].values.is_empty());
        assert_eq!(found[1], children[1]);
    }
}

#[test]
fn an_unknown_kind_in_a_batch_is_refused_where_it_stands() {
    let error = Batch::decode(4, &[3, 0, 0, 0, 1, 0]).unwrap_err();
    assert_eq!(error.to_string(), "batch kind at byte 0: expected kind 0, 1 or 2, found 0x3");
    let error = Batch::decode(4, &[0, 0, 1, 2]).unwrap_err();
    assert_eq!(error.to_string(), "batch child kind at byte 3: expected kind 0 or 1, found 0x2");
}

#[test]
fn startup_and_register_and_auth_response() {
    let options = [("CQL_VERSION", "3.0.0"), ("COMPRESSION", "lz4")];
    let bytes = body(|out| encode::startup(out, options));
    refuses_every_start(&bytes, Startup::decode);
    let startup = Startup::decode(&bytes).unwrap();
    assert_eq!(startup.options.get("COMPRESSION"), Some("lz4"));
    assert_eq!(startup.options.get("compression"), None);
    assert!(startup.options.iter().eq(options));

    let bytes = body(|out| encode::register(out, ["STATUS_CHANGE", "SCHEMA_CHANGE"]));
    refuses_every_start(&bytes, Register::decode);
    let events = Register::decode(&bytes).unwrap().events;
    assert!(events.iter().eq(["STATUS_CHANGE", "SCHEMA_CHANGE"]) && events.len() == 2);

    for token in [None, Some(&b""[..]), Some(b"\0user\0pass")] {
        let bytes = body(|out| encode::auth_response(out, token));
        assert_eq!(AuthResponse::decode(&bytes), Ok(AuthResponse { token }));
    }
}
