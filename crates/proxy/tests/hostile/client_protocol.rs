//! Clients that speak well-formed CQL at the wrong moment, or an unknown version.

use std::sync::Arc;

use shunt_proxy::control::CoreMail;
use shunt_proxy::metrics::Routing;
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{PROTOCOL_ERROR, UNPREPARED};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, Event, QueryParams, Values,
};
use shunt_wire::cql::message::{encode, put};

use super::testbed::{ANN, Testbed};

const TEXT: &str = "SELECT v FROM bench.kv WHERE k = 0x00";

#[test]
fn versions_that_are_not_supported() {
    for version in [0, 1, 2, 6, 0x42, 0x7f] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        let says = format!(
            "Invalid or unsupported protocol version ({version}); supported versions are (3/v3, 4/v4, 5/v5)"
        );
        testbed.refused(offender, &bytes::startup(version, None), PROTOCOL_ERROR, &says);
        let answer = testbed.scene.world.host(offender).last().header;
        assert_eq!(
            (answer.version, answer.stream),
            (5, 0),
            "drivers step down to the version of the answer"
        );
    }
}

#[test]
fn a_version_the_ring_does_not_have() {
    let mut testbed = Testbed::with(|options| options.protocol_max = 4);
    let offender = testbed.offender();
    let says = "Invalid or unsupported protocol version (5); supported versions are (3/v3, 4/v4)";
    testbed.refused(offender, &bytes::options(5, 3), PROTOCOL_ERROR, says);
    let answer = testbed.scene.world.host(offender).last().header;
    assert_eq!((answer.version, answer.stream), (4, 3));
}

/// To Cassandra 4 and later only v6 is a beta version, to older ones v5; both get the error that
/// makes drivers step down.
#[test]
fn a_beta_version() {
    let mut testbed = Testbed::new();
    let offender = testbed.offender();
    let startup = bytes::with_header(bytes::startup(6, None), |header| header.flags = 0x10);
    testbed.refused(
        offender,
        &startup,
        PROTOCOL_ERROR,
        "Invalid or unsupported protocol version (6)",
    );
}

#[test]
fn another_protocol_altogether() {
    for (greeting, says) in [
        (&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], "an HTTP request"),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 58400 9042\r\n", "proxy_protocol_from"),
        (b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c\0\0\0\0", "proxy_protocol_from"),
        (b"GETTING / NOTHING", "Invalid or unsupported protocol version (71)"),
    ] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        testbed.refused(offender, greeting, PROTOCOL_ERROR, says);
    }
}

#[test]
fn options_come_first_in_any_version() {
    let mut testbed = Testbed::new();
    let offender = testbed.offender();
    for version in [4, 3, 5] {
        testbed.send(offender, &bytes::options(version, 1));
        testbed.answered(offender, 1);
        let answer = &testbed.take_answers(offender)[0];
        assert_eq!((answer.header.version, answer.header.opcode), (version, opcode::SUPPORTED));
    }
    testbed.send(offender, &bytes::startup(4, None));
    testbed.answered(offender, 1);
    testbed.reset(offender);
    testbed.check_recovered();
}

#[test]
fn a_query_before_startup() {
    for op in [opcode::QUERY, opcode::EXECUTE, opcode::PREPARE, opcode::BATCH, opcode::REGISTER] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        testbed.refused(
            offender,
            &bytes::request(4, 1, op, &[]),
            PROTOCOL_ERROR,
            "begins with OPTIONS or STARTUP",
        );
    }
}

#[test]
fn startup_twice() {
    for version in [3, 4, 5] {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(version);
        let mut again = bytes::startup(version, None);
        if version == 5 {
            again = bytes::segment(&again, true);
        }
        testbed.refused(offender, &again, PROTOCOL_ERROR, "STARTUP");
    }
}

#[test]
fn startup_without_a_cql_version() {
    let mut testbed = Testbed::new();
    let offender = testbed.offender();
    let body = bytes::body(|out| encode::startup(out, [("DRIVER_NAME", "none")]));
    testbed.refused(
        offender,
        &bytes::request(4, 0, opcode::STARTUP, &body),
        PROTOCOL_ERROR,
        "Missing value CQL_VERSION",
    );
}

#[test]
fn startup_with_a_compression_nobody_has() {
    for (version, name) in [(4, "zstd"), (5, "snappy")] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        testbed.refused(
            offender,
            &bytes::startup(version, Some(name)),
            PROTOCOL_ERROR,
            "Unknown compression algorithm",
        );
    }
}

#[test]
fn startup_that_is_no_map() {
    let mut testbed = Testbed::new();
    let offender = testbed.offender();
    testbed.refused(
        offender,
        &bytes::request(4, 0, opcode::STARTUP, &[0, 9, 0]),
        PROTOCOL_ERROR,
        "",
    );
}

#[test]
fn an_auth_response_nobody_asked_for() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.refused(
        offender,
        &bytes::auth_response(4, b"\0ann\0secret"),
        PROTOCOL_ERROR,
        "AUTH_RESPONSE",
    );
}

#[test]
fn a_query_instead_of_an_auth_response() {
    let mut testbed =
        Testbed::with(|options| options.credentials = vec![(ANN.0.into(), ANN.1.into())]);
    let offender = testbed.offender();
    testbed.send(offender, &bytes::startup(4, None));
    testbed.answered(offender, 1);
    assert_eq!(testbed.scene.world.host(offender).last().header.opcode, opcode::AUTHENTICATE);
    testbed.refused(
        offender,
        &bytes::query(4, 1, TEXT),
        PROTOCOL_ERROR,
        "AUTH_RESPONSE must answer AUTHENTICATE",
    );
}

#[test]
fn an_event_kind_that_does_not_exist() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let body = bytes::body(|out| encode::register(out, ["SCHEMA_CHANGE", "WEATHER"]));
    testbed.refused(
        offender,
        &bytes::request(4, 1, opcode::REGISTER, &body),
        PROTOCOL_ERROR,
        "WEATHER",
    );
}

#[test]
fn queries_right_behind_startup() {
    for version in [3, 4, 5] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        let mut bytes = bytes::startup(version, None);
        let queries: Vec<u8> =
            (1..=50).flat_map(|stream| bytes::query(version, stream, TEXT)).collect();
        bytes.extend(bytes::framed(version, queries));
        testbed.send(offender, &bytes);
        testbed.answered(offender, 51);
        assert!((1..=50).all(|stream| testbed.scene.world.host(offender).on(stream).is_some()));
        testbed.reset(offender);
        testbed.check_recovered();
    }
}

/// Requests that went to nodes.
fn sent(testbed: &Testbed) -> u64 {
    let routed =
        |by| testbed.scene.metrics.iter().map(|metrics| metrics.routed.of(by).get()).sum::<u64>();
    routed(Routing::Token) + routed(Routing::Any)
}

/// Version 3 has no events of functions: they become changes of the keyspace.
#[test]
fn an_event_that_a_version_does_not_know() {
    let mut testbed = Testbed::new();
    let clients = [3, 4].map(|version| {
        let offender = testbed.started_offender(version);
        let register = bytes::body(|out| encode::register(out, ["SCHEMA_CHANGE"]));
        testbed.send(offender, &bytes::request(version, 1, opcode::REGISTER, &register));
        testbed.answered(offender, 1);
        testbed.take_answers(offender);
        offender
    });
    let event: Arc<[u8]> = bytes::body(|out| {
        ["SCHEMA_CHANGE", "CREATED", "FUNCTION", "bench", "f"]
            .iter()
            .for_each(|word| put::string(out, word));
        put::string_list(out, ["int"]);
    })
    .into();
    for core in testbed.scene.cores.clone() {
        testbed.scene.world.post(core, CoreMail::SchemaEvent(Arc::clone(&event)));
    }
    let targets = clients.map(|client| {
        testbed.answered(client, 1);
        let answer = testbed.take_answers(client).remove(0);
        assert_eq!((answer.header.opcode, answer.header.stream), (opcode::EVENT, -1));
        match Event::decode(&answer.body) {
            Ok(Event::SchemaChange(found)) => {
                [found.change, found.target, found.keyspace].map(str::to_owned)
            }
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(targets, [["UPDATED", "KEYSPACE", "bench"], ["CREATED", "FUNCTION", "bench"]]);
}

/// A proxy that restarted knows no earlier statements. Nodes may know them; but a statement could
/// be USE.
#[test]
fn statements_nobody_prepared_here() {
    let mut testbed = Testbed::new();
    for version in 3..=5 {
        let offender = testbed.started_offender(version);
        let before = sent(&testbed);
        let execute = bytes::execute(version, 1, &[7; 16], &[b"k"]);
        let prepared = [BatchChild {
            statement: BatchStatement::Prepared(&[8; 16]),
            values: Values::default(),
        }];
        let params = QueryParams::simple(Consistency::ONE);
        let batch =
            bytes::body(|out| encode::batch(out, version, BatchKind::Logged, prepared, &params));
        for (stream, request) in
            [(1, execute), (2, bytes::request(version, 2, opcode::BATCH, &batch))]
        {
            let framed = bytes::framed(version, request);
            testbed.send(offender, &framed);
            testbed.answered(offender, 1);
            let answers = testbed.take_answers(offender);
            assert_eq!((answers[0].header.stream, answers[0].error().0), (stream, UNPREPARED));
        }
        assert_eq!(sent(&testbed), before, "nothing of it reached a node");
    }
    testbed.start_work();
    testbed.check_recovered();
}
