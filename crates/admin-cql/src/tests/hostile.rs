//! Clients that may not ask, and clients that do harm.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use shunt_testing::bytes;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::message::error_code::{BAD_CREDENTIALS, INVALID, PROTOCOL_ERROR};
use shunt_wire::cql::message::{
    Consistency, ErrorMessage, QueryParams, Reader, Values, encode, put,
};

use super::*;
use crate::limits::{
    BOUND_BYTES_MAX, CONNECTIONS_MAX, EARLY_REQUEST_BYTES_MAX, MARKERS_MAX, REQUEST_BYTES_MAX,
};

/// A connection for raw bytes.
fn raw(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(180))).expect("a socket");
    stream
}

/// Bytes that the server sends until it closes.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    // A close with unread bytes comes as a reset.
    let _ = stream.read_to_end(&mut received);
    received
}

/// The code of the last ERROR among bare envelopes.
fn last_error(mut received: &[u8]) -> Option<i32> {
    let mut code = None;
    while let Some(header) = Header::decode(received) {
        let end = HEADER_BYTES + header.length as usize;
        let body = received.get(HEADER_BYTES..end)?;
        if header.opcode == opcode::ERROR {
            code = ErrorMessage::decode(4, body).ok().map(|error| error.code);
        }
        received = &received[end..];
    }
    code
}

fn answered(server: &Server, sent: &[u8]) -> Option<i32> {
    let mut stream = raw(server);
    stream.write_all(sent).expect("sent");
    last_error(&rest(&mut stream))
}

#[test]
fn nothing_is_answered_without_a_login() {
    let server = Server::start(true);
    let query = "DELETE FROM shunt_admin.client_groups WHERE role = 'shop'";
    for version in 3..=4 {
        let mut sent = bytes::startup(version, None);
        sent.extend(bytes::query(version, 1, query));
        assert_eq!(answered(&server, &sent), Some(PROTOCOL_ERROR));
        assert_eq!(answered(&server, &bytes::query(version, 1, query)), Some(PROTOCOL_ERROR));
    }
    assert_eq!(server.changes(), []);
    let mut client = Client::open(server.address, server.login(TOKEN));
    client.run(query);
    assert_eq!(server.changes().len(), 1);
}

#[test]
fn a_wrong_password_ends_the_connection() {
    let server = Server::start(true);
    for message in [&b"\0operator\0wrong-token-of-test"[..], b"\0operator\0", b"", b"\0\0\0", b"x"]
    {
        let mut sent = bytes::startup(4, None);
        sent.extend(bytes::auth_response(4, message));
        sent.extend(bytes::auth_response(4, format!("\0operator\0{TOKEN}").as_bytes()));
        assert_eq!(answered(&server, &sent), Some(BAD_CREDENTIALS), "{message:?}");
    }
}

#[test]
fn a_token_that_is_removed_ends_its_connections() {
    let server = Server::start(true);
    let mut clients: Vec<Client> =
        (0..CONNECTIONS_MAX).map(|_| Client::open(server.address, server.login(TOKEN))).collect();
    let replacement = "a-token-of-its-successor";
    server.replace_token(replacement);
    // One that stays silent makes room.
    let mut successor = Client::open(server.address, server.login(replacement));
    for client in &mut clients[1..] {
        let change = "DELETE FROM shunt_admin.client_groups WHERE role = 'shop'";
        assert_eq!(client.error(change), BAD_CREDENTIALS);
        assert_eq!(rest(client.socket()), b"");
    }
    assert_eq!(rest(clients[0].socket()), b"");
    assert_eq!(server.changes(), []);
    successor.run("DELETE FROM shunt_admin.client_groups WHERE role = 'shop'");
    assert_eq!(server.changes().len(), 1);
}

#[test]
fn what_is_no_cql_is_answered_and_closed() {
    let server = Server::start(false);
    let long = |version, op, length| {
        Header { length, ..Header::request(version, 1, op) }.to_bytes().to_vec()
    };
    for garbage in [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        vec![0xFF; 64],
        vec![0; 64],
        long(4, opcode::STARTUP, EARLY_REQUEST_BYTES_MAX + 1),
        long(4, opcode::STARTUP, u32::MAX),
        bytes::startup(2, None),
        bytes::startup(6, None),
        bytes::startup(4, Some("lz4")),
        bytes::startup(5, Some("snappy")),
        bytes::request(4, 1, opcode::STARTUP, b"\xFF\xFF"),
        bytes::request(4, 1, opcode::REGISTER, b""),
        [bytes::startup(4, None), long(4, opcode::QUERY, REQUEST_BYTES_MAX + 1)].concat(),
        [bytes::startup(4, None), long(3, opcode::QUERY, 0)].concat(),
        [bytes::startup(4, None), bytes::request(4, 1, opcode::QUERY, b"\xFF")].concat(),
        [bytes::startup(4, None), bytes::request(4, 1, 0x64, b"")].concat(),
        [bytes::startup(4, None), bytes::startup(4, None)].concat(),
        (0..20).flat_map(|stream| bytes::options(4, stream)).collect(),
    ] {
        assert_eq!(answered(&server, &garbage), Some(PROTOCOL_ERROR), "{garbage:?}");
    }
    // In segments, an error of the framing ends the connection.
    let mut stream = raw(&server);
    stream.write_all(&[bytes::startup(5, None), vec![0xAB; 100]].concat()).expect("sent");
    assert!(!rest(&mut stream).is_empty());
    assert_eq!(server.client(5).rows("SELECT name FROM shunt_admin.settings").len(), 2);
}

#[test]
fn silent_connections_make_room_and_those_with_a_login_stay() {
    let server = Server::start(true);
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| raw(&server)).collect();
    let mut clients: Vec<Client> =
        (0..CONNECTIONS_MAX).map(|_| Client::open(server.address, server.login(TOKEN))).collect();
    silent.iter_mut().for_each(|stream| assert_eq!(rest(stream), b""));
    // One more is closed at once, and the others are served.
    assert_eq!(rest(&mut raw(&server)), b"");
    for client in &mut clients {
        assert_eq!(client.rows("SELECT name FROM shunt_admin.settings").len(), 2);
    }
    drop(clients.pop());
    // The listener hears of the close when it next accepts.
    let again = std::iter::repeat_with(|| Client::try_open(server.address, server.login(TOKEN)));
    assert!(again.take(100_000).any(|opened| opened.is_ok()));
}

#[test]
fn requests_in_parts_and_at_once_are_answered_in_order() {
    let server = Server::start(false);
    let mut stream = raw(&server);
    let text = "SELECT name FROM shunt_admin.settings";
    let mut sent = bytes::startup(4, None);
    (0..100).for_each(|number| sent.extend(bytes::query(4, number, text)));
    for part in sent.chunks(7) {
        stream.write_all(part).expect("sent");
    }
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    let received = rest(&mut stream);
    let (mut left, mut streams) = (&received[..], Vec::new());
    while let Some(header) = Header::decode(left) {
        streams.push((header.opcode, header.stream));
        left = &left[HEADER_BYTES + header.length as usize..];
    }
    let results = (0..100).map(|number| (opcode::RESULT, number));
    assert_eq!(streams, std::iter::once((opcode::READY, 0)).chain(results).collect::<Vec<_>>());
}

#[test]
fn statements_that_are_garbage_are_errors() {
    let server = Server::start(false);
    let mut client = server.client(5);
    let deep = format!("SELECT * FROM shunt_admin.nodes WHERE up = {}true", "(".repeat(20_000));
    let wide = format!(
        "SELECT * FROM shunt_admin.nodes WHERE address IN ({})",
        vec!["'a'"; 10_000].join(",")
    );
    for text in
        ["", ";", "\0", "SELECT * FROM", &deep, &wide, "USE \"\"", "UPDATE shunt_admin.settings"]
    {
        client.query(text).error();
    }
    let mut body = Vec::new();
    encode::register(&mut body, ["SCHEMA_CHANGE"]);
    client.send(Header::request(5, 3, opcode::REGISTER), &body);
    assert_eq!(client.receive().opcode(), opcode::READY);
}

/// A QUERY whose markers `:a` all have this value.
fn query_with_value(text: &str, value: &[u8]) -> Vec<u8> {
    let mut items = Vec::new();
    put::short(&mut items, 1);
    put::string(&mut items, "a");
    put::bytes(&mut items, Some(value));
    let values = Values::read(&mut Reader::new(&items), 5, true).expect("values");
    let mut body = Vec::new();
    let params = QueryParams { values, ..QueryParams::simple(Consistency(1)) };
    encode::query(&mut body, 5, text, &params);
    body
}

#[test]
fn a_value_is_not_copied_without_bound() {
    let server = Server::start(false);
    let mut client = server.client(5);
    let statement = |markers: usize| {
        let markers = vec![":a"; markers].join(",");
        format!("SELECT * FROM shunt_admin.settings WHERE name IN ({markers})")
    };
    let mut ask = |markers: usize, bytes: usize| {
        let body = query_with_value(&statement(markers), &vec![b'x'; bytes]);
        client.send(Header::request(5, 1, opcode::QUERY), &body);
        client.receive().outcome()
    };
    assert_eq!(ask(256, BOUND_BYTES_MAX / 256), Ok(Vec::new()));
    let refused = ask(256, BOUND_BYTES_MAX / 256 + 1).expect_err("a refusal");
    assert!(refused.contains("the values of all bind markers have 262400 bytes"), "{refused}");
    let (code, message) = client.query(&statement(MARKERS_MAX + 1)).error();
    assert!(code == INVALID && message.contains("at most 1024 bind markers"), "{message}");
}

#[test]
fn a_unix_socket_is_served_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("admin.sock");
    let pages = Pages::new("0.1.0", vec![Arc::new(Fixed::default()) as Arc<dyn Part>]);
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    listener.set_nonblocking(true).expect("a socket");
    let (_stop, stopped) = oneshot::channel();
    serve(pages, move || tokio::net::UnixListener::from_std(listener).map(Listener::Unix), stopped);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("connect");
    let text = "SELECT rpc_address FROM system.local";
    let sent = [bytes::startup(4, None), bytes::query(4, 1, text)].concat();
    stream.write_all(&sent).expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("answers");
    assert!(received.ends_with(&[127, 0, 0, 1]), "{received:?}");
}
