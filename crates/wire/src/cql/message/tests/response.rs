//! Errors, events and the small responses.

use super::super::*;
use super::{body, refuses_every_start};
use crate::cql::message::errors::Failures;

const COUNTS: ReplicaCounts =
    ReplicaCounts { consistency: Consistency::LOCAL_QUORUM, received: 1, block_for: 2 };

fn round_trip(version: u8, code: i32, details: ErrorDetails<'_>) {
    let sent = ErrorMessage { code, message: "text", details };
    let bytes = body(|out| encode::error_with(out, version, &sent));
    refuses_every_start(&bytes, |bytes| ErrorMessage::decode(version, bytes));
    assert_eq!(ErrorMessage::decode(version, &bytes), Ok(sent));
}

#[test]
fn errors_carry_what_their_code_adds() {
    let arguments = body(|out| put::string_list(out, ["int", "text"]));
    let arguments = Reader::new(&arguments).string_list("arguments").unwrap();
    for version in 3..=5 {
        let consistency = Consistency::ALL;
        let unavailable = ErrorDetails::Unavailable { consistency, required: 3, alive: 1 };
        round_trip(version, error_code::UNAVAILABLE, unavailable);
        let timeout =
            ErrorDetails::WriteTimeout { counts: COUNTS, write_type: "BATCH", contentions: None };
        round_trip(version, error_code::WRITE_TIMEOUT, timeout);
        let timeout = ErrorDetails::ReadTimeout { counts: COUNTS, data_present: true };
        round_trip(version, error_code::READ_TIMEOUT, timeout);
        let function = ErrorDetails::FunctionFailure { keyspace: "ks", function: "f", arguments };
        round_trip(version, error_code::FUNCTION_FAILURE, function);
        round_trip(
            version,
            error_code::CAS_WRITE_UNKNOWN,
            ErrorDetails::CasWriteUnknown { counts: COUNTS },
        );
        let exists = ErrorDetails::AlreadyExists { keyspace: "ks", table: "" };
        round_trip(version, error_code::ALREADY_EXISTS, exists);
        round_trip(version, error_code::UNPREPARED, ErrorDetails::Unprepared { id: b"id" });
        round_trip(version, error_code::OVERLOADED, ErrorDetails::None);
        round_trip(version, 0x7777, ErrorDetails::None);
    }
}

#[test]
fn failures_are_a_number_in_v4_and_a_map_in_v5() {
    let failures = Failures::Count(2);
    let failure = ErrorDetails::ReadFailure { counts: COUNTS, failures, data_present: false };
    round_trip(4, error_code::READ_FAILURE, failure);
    let failure = ErrorDetails::WriteFailure { counts: COUNTS, failures, write_type: "SIMPLE" };
    round_trip(4, error_code::WRITE_FAILURE, failure);

    let bytes = body(|out| {
        encode::error(out, error_code::READ_FAILURE, "text");
        out.extend_from_slice(&[0, 6, 0, 0, 0, 1, 0, 0, 0, 2]);
        put::int(out, 1);
        put::inet_address(out, [10, 0, 0, 1].into());
        put::short(out, 3);
        out.push(1);
    });
    refuses_every_start(&bytes, |bytes| ErrorMessage::decode(5, bytes));
    let found = ErrorMessage::decode(5, &bytes).unwrap();
    let ErrorDetails::ReadFailure {
        failures: Failures::Reasons(reasons), data_present: true, ..
    } = found.details
    else {
        panic!("{found:?}")
    };
    assert!(reasons.iter().eq([([10, 0, 0, 1].into(), 3)]));
    assert_eq!(body(|out| found.put(out, 5)), bytes);
    let in_v4 = body(|out| found.put(out, 4));
    let found = ErrorMessage::decode(4, &in_v4).unwrap();
    let failures = Failures::Count(1);
    let expected = ErrorDetails::ReadFailure { counts: COUNTS, failures, data_present: true };
    assert_eq!(found.details, expected);
}

#[test]
fn contentions_are_read_of_conditional_writes_in_v5_if_they_are_there() {
    let counts = COUNTS;
    let sent = |contentions| ErrorMessage {
        code: error_code::WRITE_TIMEOUT,
        message: "",
        details: ErrorDetails::WriteTimeout { counts, write_type: "CAS", contentions },
    };
    let with = body(|out| sent(Some(4)).put(out, 5));
    assert_eq!(ErrorMessage::decode(5, &with), Ok(sent(Some(4))));
    assert_eq!(ErrorMessage::decode(4, &with), Ok(sent(None)));
    assert_eq!(ErrorMessage::decode(5, &with[..with.len() - 2]), Ok(sent(None)));
}

#[test]
fn the_id_of_an_unprepared_error_is_at_hand() {
    let bytes = body(|out| {
        encode::error(out, error_code::UNPREPARED, "");
        put::short_bytes(out, b"id");
    });
    assert_eq!(ErrorMessage::decode(4, &bytes).unwrap().unprepared_id(), Some(&b"id"[..]));
    assert_eq!(ErrorMessage::plain(error_code::INVALID, "").unprepared_id(), None);
}

#[test]
fn events_survive_the_round_trip() {
    let arguments = body(|out| put::string_list(out, ["int"]));
    let arguments = Reader::new(&arguments).string_list("arguments").unwrap();
    let schema = |target, name, arguments| {
        Event::SchemaChange(SchemaChange {
            change: "CREATED",
            target,
            keyspace: "ks",
            name,
            arguments,
        })
    };
    let v6 = "[2001:db8::1]:9042".parse().unwrap();
    for event in [
        Event::TopologyChange { change: "NEW_NODE", address: ([127, 0, 0, 1], 9042).into() },
        Event::StatusChange { change: "DOWN", address: v6 },
        schema("KEYSPACE", None, None),
        schema("TABLE", Some("t"), None),
        schema("FUNCTION", Some("f"), Some(arguments)),
    ] {
        let bytes = body(|out| encode::event(out, &event));
        refuses_every_start(&bytes, Event::decode);
        assert_eq!(Event::decode(&bytes), Ok(event));
    }
    let other = Event::Other { kind: "CLIENT_ROUTES_CHANGE", rest: b"\0\x01x" };
    let bytes = body(|out| encode::event(out, &other));
    assert_eq!(Event::decode(&bytes), Ok(other));
}

#[test]
fn addresses_are_checked() {
    let event = |address: &[u8]| {
        let mut bytes = body(|out| {
            put::string(out, event::STATUS_CHANGE);
            put::string(out, "UP");
        });
        bytes.extend_from_slice(address);
        Event::decode(&bytes).unwrap_err().to_string()
    };
    assert_eq!(
        event(&[5]),
        "node address at byte 19: expected an address of 4 or 16 bytes, found 0x5"
    );
    assert_eq!(
        event(&[4, 1, 2, 3, 4, 0, 1, 0, 0]),
        "node address at byte 24: expected a port from 0 to 65535, found 0x10000"
    );
}

#[test]
fn the_small_responses() {
    let bytes = body(|out| encode::authenticate(out, "org.example.Authenticator"));
    refuses_every_start(&bytes, Authenticate::decode);
    assert_eq!(Authenticate::decode(&bytes).unwrap().class, "org.example.Authenticator");
    for token in [None, Some(&b"token"[..])] {
        let bytes = body(|out| encode::auth_success(out, token));
        assert_eq!(AuthToken::decode(&bytes), Ok(AuthToken { token }));
    }
    let bytes =
        body(|out| encode::supported(out, [("COMPRESSION", vec!["lz4", "snappy"]), ("X", vec![])]));
    refuses_every_start(&bytes, Supported::decode);
    let options = Supported::decode(&bytes).unwrap().options;
    assert!(options.get("COMPRESSION").unwrap().iter().eq(["lz4", "snappy"]));
    assert!(options.get("X").unwrap().is_empty() && options.get("Y").is_none());
    assert_eq!(options.iter().count(), 2);
}
