//! Initial inputs of the corpus: output of our own encoders, and texts.

use shunt_wire::aggregate::{AggregateWriter, Limits};
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::{self, Header, flag, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::encode_result::{PreparedSpec, RowsWriter, native, prepared};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, ErrorDetails, ErrorMessage, Event,
    Failures, QueryParams, ReplicaCounts, SchemaChange, Value, ValueList, encode, error_code, put,
    query_flag,
};
use shunt_wire::trace_context::TRACEPARENT;

use crate::written;

mod lock_tables;
mod handover;
mod fleet;
mod http1;
mod redo;
mod language;
mod locks;
mod netmc;
mod records;
mod tls;
mod transaction;

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The target.
    pub target: &'static str,
    /// Name of the file.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// The seeds of every target.
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add =
        |target, name: &str, bytes| seeds.push(Seed { target, name: name.to_owned(), bytes });
    for version in 3..=5 {
        requests(version, &mut add);
        responses(version, &mut add);
    }
    segments(&mut add);
    envelopes(&mut add);
    compression(&mut add);
    aggregate(&mut add);
    statements(&mut add);
    types(&mut add);
    language::language(&mut add);
    language::values(&mut add);
    records::records(&mut add);
    lock_tables::lock_tables(&mut add);
    handover::control(&mut add);
    handover::moving(&mut add);
    transaction::transaction(&mut add);
    fleet::fleet(&mut add);
    redo::redo(&mut add);
    locks::locks(&mut add);
    http1::http1(&mut add);
    netmc::netmc(&mut add);
    netmc::resp(&mut add);
    netmc::shim(&mut add);
    netmc::merging(&mut add);
    netmc::sidecar(&mut add);
    proxy_protocol(&mut add);
    first_bytes(&mut add);
    tls::tls(&mut add);
    traces(&mut add);
    seeds
}

type Add<'a> = &'a mut dyn FnMut(&'static str, &str, Vec<u8>);

fn traces(add: Add<'_>) {
    let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    add("traces", "value", value.into());
    add("traces", "later_version", format!("01{}-more", &value[2..]).into_bytes());
    let mut body = vec![flag::CUSTOM_PAYLOAD];
    let entries = [("other", None), (TRACEPARENT, Some(value.as_bytes()))];
    put::bytes_map(&mut body, entries);
    add("traces", "payload", body);
}

fn proxy_protocol(add: Add<'_>) {
    let binary = |command, family, rest: &[u8]| {
        let fixed = [command, family, 0, rest.len() as u8];
        [&b"\r\n\r\n\0\r\nQUIT\n"[..], &fixed, rest, b"\x04\0\0\0\x05"].concat()
    };
    let four = b"\xc0\0\x02\x07\x0a\0\0\x01\xe4\x20\x23\x52";
    add("proxy_protocol", "tcp4", binary(0x21, 0x11, four));
    add(
        "proxy_protocol",
        "tcp4_more",
        binary(0x21, 0x11, &[&four[..], b"\x04\0\x01\xff"].concat()),
    );
    add("proxy_protocol", "tcp6", binary(0x21, 0x21, &[7; 36]));
    add("proxy_protocol", "local", binary(0x20, 0x00, b""));
    for (name, line) in [
        ("text4", "PROXY TCP4 192.0.2.7 10.0.0.1 58400 9042\r\n\x04"),
        ("text6", "PROXY TCP6 2001:db8::5 ::1 1 65535\r\n\x16\x03"),
        ("text_unknown", "PROXY UNKNOWN\r\n"),
    ] {
        add("proxy_protocol", name, line.into());
    }
}

fn first_bytes(add: Add<'_>) {
    let startup = b"\x04\0\0\x05\x01\0\0\0\x16";
    let line = b"PROXY TCP4 192.0.2.7 10.0.0.1 58400 9042\r\n";
    let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\xe4\x20\x23\x52";
    let headers = [("direct", 0, &b""[..]), ("text", 4, line), ("binary", 4, binary)];
    for (tls, option) in [(0, "off"), (1, "optional"), (2, "required")] {
        for (header, balancer, bytes) in headers {
            for (name, rest) in [("cql", &startup[..]), ("tls", b"\x16\x03\x01\0\x60\x01")] {
                let input = [&[tls | balancer | 0x10], bytes, rest].concat();
                add("first_bytes", &format!("{option}_{header}_{name}"), input);
            }
        }
    }
    add("first_bytes", "no_header", [&[0x17][..], startup].concat());
    add("first_bytes", "foreign_header", [&[0x11][..], line].concat());
}

fn requests(version: u8, add: Add<'_>) {
    let mut request = |name: &str, opcode, flags, body: &dyn Fn(&mut Vec<u8>)| {
        let header = Header { flags, ..Header::request(version, 7, opcode) };
        add(
            "requests",
            &format!("{name}_v{version}"),
            written(|out| envelope::append(out, header, body)),
        );
    };
    let mut values = ValueList::positional(version);
    values.push(Value::Bytes(&[0, 0, 0, 1])).push(Value::Null).push(Value::Unset);
    let mut named = ValueList::named(version);
    named.push_named("k", Value::Bytes(b"v"));
    let full = QueryParams {
        flags: query_flag::SKIP_METADATA,
        values: values.values(),
        page_size: Some(100),
        paging_state: Some(b"state"),
        serial_consistency: Some(Consistency::SERIAL),
        timestamp: Some(1),
        keyspace: Some("ks"),
        now_in_seconds: Some(1),
        ..QueryParams::simple(Consistency::QUORUM)
    };
    let small = QueryParams { values: named.values(), ..QueryParams::simple(Consistency::ONE) };
    let options = [("CQL_VERSION", "3.0.0"), ("COMPRESSION", "lz4")];
    request("startup", opcode::STARTUP, 0, &|out| encode::startup(out, options));
    request("options", opcode::OPTIONS, 0, &|_| ());
    request("query", opcode::QUERY, flag::TRACING, &|out| {
        encode::query(out, version, "SELECT a FROM t", &full)
    });
    request("query_named", opcode::QUERY, flag::CUSTOM_PAYLOAD, &|out| {
        put::bytes_map(out, [("key", Some(&b"value"[..])), ("null", None)]);
        encode::query(out, version, "SELECT a FROM t WHERE k = :k", &small);
    });
    request("prepare", opcode::PREPARE, 0, &|out| {
        encode::prepare(out, version, "SELECT a FROM t", Some("ks"))
    });
    request("execute", opcode::EXECUTE, 0, &|out| {
        encode::execute(out, version, &[7; 16], Some(&[8; 16]), &full)
    });
    request("batch", opcode::BATCH, 0, &|out| {
        let statements = [BatchStatement::Text("INSERT"), BatchStatement::Prepared(&[7; 16])];
        let children =
            statements.map(|statement| BatchChild { statement, values: values.values() });
        let params = QueryParams { timestamp: Some(1), ..QueryParams::simple(Consistency::ONE) };
        encode::batch(out, version, BatchKind::Unlogged, children, &params);
    });
    request("register", opcode::REGISTER, 0, &|out| {
        encode::register(out, ["STATUS_CHANGE", "SCHEMA_CHANGE"])
    });
    request("auth_response", opcode::AUTH_RESPONSE, 0, &|out| {
        encode::auth_response(out, Some(b"\0user\0pass"))
    });
}

fn errors() -> [(&'static str, i32, ErrorDetails<'static>); 5] {
    let counts = ReplicaCounts { consistency: Consistency::QUORUM, received: 1, block_for: 2 };
    let failures = Failures::Count(1);
    [
        (
            "unavailable",
            error_code::UNAVAILABLE,
            ErrorDetails::Unavailable { consistency: Consistency::ALL, required: 3, alive: 2 },
        ),
        (
            "write_timeout",
            error_code::WRITE_TIMEOUT,
            ErrorDetails::WriteTimeout { counts, write_type: "CAS", contentions: Some(1) },
        ),
        (
            "read_failure",
            error_code::READ_FAILURE,
            ErrorDetails::ReadFailure { counts, failures, data_present: true },
        ),
        (
            "already_exists",
            error_code::ALREADY_EXISTS,
            ErrorDetails::AlreadyExists { keyspace: "ks", table: "t" },
        ),
        ("unprepared", error_code::UNPREPARED, ErrorDetails::Unprepared { id: &[7; 16] }),
    ]
}

fn responses(version: u8, add: Add<'_>) {
    let mut response = |name: &str, opcode, flags, body: &dyn Fn(&mut Vec<u8>)| {
        let header = Header { flags, ..Header::response(version, 7, opcode) };
        add(
            "responses",
            &format!("{name}_v{version}"),
            written(|out| envelope::append(out, header, body)),
        );
    };
    for (name, code, details) in errors() {
        let message = ErrorMessage { code, message: "text", details };
        response(name, opcode::ERROR, 0, &|out| message.put(out, version));
    }
    response("supported", opcode::SUPPORTED, 0, &|out| {
        encode::supported(out, [("COMPRESSION", ["lz4", "snappy"])])
    });
    response("authenticate", opcode::AUTHENTICATE, 0, &|out| {
        encode::authenticate(out, "Authenticator")
    });
    response("auth_success", opcode::AUTH_SUCCESS, 0, &|out| encode::auth_success(out, None));
    response("void", opcode::RESULT, flag::TRACING | flag::WARNING, &|out| {
        out.extend_from_slice(&[9; 16]);
        put::string_list(out, ["slow"]);
        encode::void(out);
    });
    response("set_keyspace", opcode::RESULT, 0, &|out| encode::set_keyspace(out, "ks"));
    let columns =
        [("k", native::UUID), ("tokens", native::SET_OF_TEXT), ("m", native::MAP_OF_TEXT_TO_BLOB)];
    response("rows", opcode::RESULT, 0, &|out| {
        let mut rows = RowsWriter::new(out, "ks", "t", &columns);
        rows.value(Some(&[7; 16])).value(None).value(Some(b"")).value(Some(b"x"));
        rows.finish();
    });
    let spec = PreparedSpec {
        id: &[7; 16],
        result_metadata_id: &[8; 16],
        keyspace: "ks",
        table: "t",
        bind: &columns,
        partition_key: &[1, 0],
        result: &columns,
    };
    response("prepared", opcode::RESULT, 0, &|out| prepared(out, version, &spec));
    let change = SchemaChange {
        change: "CREATED",
        target: "TABLE",
        keyspace: "ks",
        name: Some("t"),
        arguments: None,
    };
    response("schema_change", opcode::RESULT, 0, &|out| encode::schema_change(out, &change));
    let status = Event::StatusChange { change: "UP", address: ([127, 0, 0, 1], 9042).into() };
    for (name, event) in [("event_status", status), ("event_schema", Event::SchemaChange(change))] {
        response(name, opcode::EVENT, 0, &|out| encode::event(out, &event));
    }
}

fn segments(add: Add<'_>) {
    for (lz4, name) in [(false, "stream"), (true, "stream_lz4")] {
        let mut bytes = vec![u8::from(lz4)];
        let mut writer = SegmentWriter::new(lz4);
        for body in [&b"first"[..], b"", &[7; 300]] {
            let header =
                Header { length: body.len() as u32, ..Header::request(5, 1, opcode::QUERY) };
            writer.push(&mut bytes, &header.to_bytes(), body);
        }
        writer.finish(&mut bytes);
        add("segments", name, bytes);
    }
    let part = [&[5, 0, 0, 1, 7, 0, 0, 0, 20][..], b"0123456789"].concat();
    add("segments", "forged", [&[2, 0, 0, 0, 0, 0][..], &part].concat());
    let block = [0x1F, b'b', 1, 0, 25, 0x50, b'b', b'b', b'b', b'b', b'b'];
    add("segments", "forged_lz4", [&[3, 0, 0, 100, 0, 4][..], &block].concat());
    add("segments", "round_trip", b"\x04one|two||four|five|six|seven|large".to_vec());
    add("segments", "round_trip_lz4", b"\x05one|two||four|five|six|seven|large".to_vec());
    add("segments", "damaged", b"\x06\x01\x02body".to_vec());
    add("segments", "damaged_lz4", b"\x07\x01\x02body".to_vec());
}

fn envelopes(add: Add<'_>) {
    let bodies = [&b"first"[..], b"", &[7; 300], b"fourth", b"fifth"];
    let headers =
        (0..).zip(bodies).map(|(stream, body)| (Header::request(5, stream, opcode::QUERY), body));
    let bare = written(|out| {
        headers
            .clone()
            .for_each(|(header, body)| envelope::append(out, header, |out| out.extend(body)))
    });
    for (mode, name) in
        [(0, "bare"), (4, "parts"), (5, "parts_lz4"), (6, "switch"), (7, "switch_lz4")]
    {
        add("envelopes", name, [&[mode, mode + 1][..], &bare].concat());
    }
    for (lz4, name) in [(false, "segments"), (true, "segments_lz4")] {
        let mut bytes = vec![2 | u8::from(lz4), 3];
        let mut writer = SegmentWriter::new(lz4);
        for (header, body) in headers.clone() {
            writer.push(
                &mut bytes,
                &Header { length: body.len() as u32, ..header }.to_bytes(),
                body,
            );
        }
        writer.finish(&mut bytes);
        add("envelopes", name, bytes);
    }
}

fn compression(add: Add<'_>) {
    let body = b"a body that says the same, that says the same, that says the same".repeat(3);
    for (mode, algorithm) in [(0, Algorithm::Lz4), (1, Algorithm::Snappy)] {
        let mut bytes = vec![mode];
        Compressor::new().compress(algorithm, &body, &mut bytes);
        add("compression", algorithm.name(), bytes);
    }
    add("compression", "lz4_claim", vec![0, 0x7F, 0xFF, 0xFF, 0xFF, 0x10, b'a']);
    add("compression", "snappy_claim", vec![1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0]);
}

fn aggregate(add: Add<'_>) {
    let mut bytes = Vec::new();
    let mut writer = AggregateWriter::new(Limits { count_max: 100, bytes_max: 10_000 });
    writer.push(&mut bytes, 1, 9, 4, 0, opcode::EXECUTE, &[7; 30]);
    writer.push(&mut bytes, 2, 10, 5, flag::TRACING, opcode::QUERY, b"SELECT");
    writer.push_client_gone(&mut bytes, 9);
    writer.push(&mut bytes, 3, 10, 3, 0, opcode::BATCH, &[7; 100]);
    writer.finish(&mut bytes);
    add("aggregate", "frame", bytes.split_off(envelope::HEADER_BYTES));
    add("aggregate", "empty", vec![0; 4]);
    add("aggregate", "offer", b"v1,count_max=64,bytes_max=65536".to_vec());
}

fn statements(add: Add<'_>) {
    let texts = [
        (
            "select",
            "SELECT a, b AS c, count(*) FROM ks.t WHERE k = ? AND \"K\"\"2\" = 'it''s' LIMIT 3",
        ),
        ("select_named", "select * from t where k = :k and c in (1, 2) allow filtering;"),
        (
            "insert",
            "INSERT INTO ks.t (k, c, v) VALUES (12, 0xCAFE, $$text$$) IF NOT EXISTS USING TTL 3",
        ),
        ("insert_json", "INSERT INTO t JSON '{\"k\": 1}'"),
        (
            "update",
            "UPDATE t USING TIMESTAMP 1 SET v = v + ?, l[0] = 1 WHERE k = -1.5e3 /* c */ IF v = 2",
        ),
        ("delete", "DELETE a, m['x'] FROM t WHERE k = 123e4567-e89b-12d3-a456-426614174000 -- end"),
        (
            "batch",
            "BEGIN UNLOGGED BATCH INSERT INTO t (k) VALUES (?); UPDATE t SET v = now() WHERE k = ? APPLY BATCH",
        ),
        ("use", "USE \"Ks\""),
        (
            "create",
            "CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY, v frozen<map<text, int>>) WITH comment = 'x'",
        ),
        ("truncate", "TRUNCATE TABLE ks.t"),
    ];
    for (name, text) in texts {
        add("statement", name, text.as_bytes().to_vec());
    }
}

fn types(add: Add<'_>) {
    let user_type = written(|out| {
        put::short(out, 0x30);
        put::string(out, "ks");
        put::string(out, "u");
        put::short(out, 1);
        put::string(out, "f");
        out.extend_from_slice(&[0, 0x31, 0, 2, 0, 9, 0, 0]);
        put::string(out, "org.example.Type");
    });
    add("types", "specification_udt", [&[0], &user_type[..]].concat());
    let custom = written(|out| {
        put::short(out, 0);
        put::string(out, "INT");
    });
    add("types", "specification_custom_as_native", [&[0], &custom[..]].concat());
    add("types", "specification_map", [&[0], native::MAP_OF_TEXT_TO_BLOB].concat());
    let literals = [
        ("text", "'it''s'"),
        ("integer", "-123456789012345678901234567890"),
        ("float", "1.5e-300"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ("blob", "0xCAFE00"),
        ("timestamp", "'2026-11-21 09:30:00.123+0100'"),
        ("date", "'2026-11-21'"),
        ("time", "'23:59:59.999999999'"),
        ("inet", "'2001:db8::1'"),
        ("boolean", "TRUE"),
    ];
    for (name, text) in literals {
        add("types", &format!("literal_{name}"), [&[1], text.as_bytes()].concat());
    }
    add("types", "key", b"\x02one|two||four".to_vec());
}
