//! Parsing of a connection's bytes: requests directly behind STARTUP, envelopes in several
//! segments, and false lengths.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use shunt_testing::{Answer, Client, Handshake, bytes};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::error_code;
use shunt_wire::cql::writer::EnvelopeWriter;
use support::{PATIENCE, start};

/// Protocol version and compression.
type Layout = (u8, Option<Algorithm>);

const LAYOUTS: [Layout; 6] = [
    (3, None),
    (4, Some(Algorithm::Lz4)),
    (4, Some(Algorithm::Snappy)),
    (4, None),
    (5, None),
    (5, Some(Algorithm::Lz4)),
];

/// A valid statement of this length.
fn select(length: usize) -> String {
    let text = "SELECT cluster_name FROM system.local";
    format!("{text}{}", " ".repeat(length.saturating_sub(text.len())))
}

/// Requests of these lengths, as sent behind STARTUP.
fn requests((version, compression): Layout, lengths: &[usize]) -> Vec<u8> {
    let (mut out, mut writer) = (Vec::new(), EnvelopeWriter::default());
    if version < 5 {
        writer.compression = compression;
    } else {
        writer.start_segments(compression.is_some());
    }
    for (stream, length) in (1..).zip(lengths) {
        let query = bytes::query(version, stream, &select(*length));
        writer.push(&mut out, Header::request(version, stream, opcode::QUERY), &query[9..]);
    }
    writer.finish(&mut out);
    out
}

/// Sends STARTUP and, directly behind it, these bytes, in pieces; returns every answer up to a
/// number, or until the node closes.
fn exchange(
    address: SocketAddr,
    layout: Layout,
    behind: &[u8],
    piece: usize,
    answers: usize,
) -> Vec<Answer> {
    let (version, compression) = layout;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let sent = [&bytes::startup(version, compression.map(Algorithm::name))[..], behind].concat();
    sent.chunks(piece).for_each(|piece| stream.write_all(piece).unwrap());
    let mut client = Client::new(Handshake::new(version).compressed(compression));
    let (mut received, mut found) = (Vec::new(), Vec::new());
    while found.len() < answers {
        let mut arrived = [0; 16_384];
        let count = stream.read(&mut arrived).unwrap();
        if count == 0 {
            break;
        }
        received.extend_from_slice(&arrived[..count]);
        let used = client.receive(&received, &mut Vec::new()).unwrap();
        received.drain(..used);
        found.extend(std::iter::from_fn(|| client.next_answer()));
    }
    found
}

#[test]
fn requests_right_behind_startup_have_its_framing() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let lengths = [40, 3000, 150_000, 40, 300_000, 40];
    for layout in LAYOUTS {
        let behind = requests(layout, &lengths);
        for piece in [usize::MAX, 70_000, 997] {
            let mut answers =
                exchange(nodes.addresses()[0], layout, &behind, piece, 1 + lengths.len());
            answers.sort_by_key(Answer::stream);
            assert_eq!(answers[0].opcode(), opcode::READY);
            assert!(answers.iter().map(Answer::stream).eq(0..7), "{layout:?}");
            assert!(
                answers[1..].iter().all(|answer| answer.first_column() == [b"loopback"]),
                "{layout:?}"
            );
        }
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}

#[test]
fn bytes_that_lie_are_refused_and_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let header = |version, length| {
        Header { length, ..Header::request(version, 1, opcode::QUERY) }.to_bytes()
    };
    let compressed =
        |body: &[u8]| bytes::said_compressed(bytes::request(4, 1, opcode::QUERY, body));
    let mut damaged = bytes::segment(&bytes::query(5, 1, &select(0)), true);
    damaged[20] ^= 1;
    let lz4 = Some(Algorithm::Lz4);
    let too_long = (16 << 20) + 1;
    // Its first bytes are not a body for the header before them.
    let interrupted = [
        bytes::segment(&header(5, 40), false),
        bytes::segment(&bytes::query(5, 2, &select(0)), true),
    ]
    .concat();
    let cases: [(Layout, Vec<u8>, &str); 10] = [
        ((4, None), header(4, too_long).to_vec(), "at most 16777216 bytes, 16777217 are claimed"),
        ((4, None), header(4, u32::MAX).to_vec(), "4294967295 are claimed"),
        ((5, None), bytes::segment(&header(5, too_long), false), "16777217 are claimed"),
        ((5, None), bytes::segment(&header(5, 50), true), "ends in the middle of an envelope"),
        ((5, None), interrupted, "comes in the middle of an envelope"),
        ((5, None), damaged, "expected CRC32"),
        ((5, lz4), bytes::segment_lz4(&[0xFF; 30], 100), "expected valid lz4"),
        ((4, None), compressed(&[0, 0, 0, 1, 0x10, b'a']), "no compression was agreed on"),
        (
            (4, lz4),
            compressed(&[0x7F, 0xFF, 0xFF, 0xFF, 0x10, b'a']),
            "at most 16777216 bytes uncompressed",
        ),
        ((4, lz4), compressed(&[0, 0, 0, 9, 0xFF, b'a']), "expected valid lz4"),
    ];
    for (layout, behind, why) in cases {
        // One more than there are: the node closes.
        let answers = exchange(nodes.addresses()[0], layout, &behind, usize::MAX, 3);
        let [ready, refusal] = &answers[..] else { panic!("{layout:?} {why}: {answers:?}") };
        assert_eq!(ready.opcode(), opcode::READY);
        let (code, text) = refusal.error();
        assert_eq!(code, error_code::PROTOCOL_ERROR);
        assert!(text.contains(why), "{layout:?}: {text}");
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// Headers of v1 and v2 are a byte shorter, and other protocols have none: their apparent length is
/// meaningless, and must not be waited for.
#[test]
fn another_version_is_refused_before_its_body_comes() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let startup = b"\x02\0\0\x01\0\0\0\x16\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
    for (bytes, told) in [
        (&startup[..], "Invalid or unsupported protocol version (2)"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc", "TLS"),
    ] {
        let mut stream = TcpStream::connect(nodes.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let header = Header::decode(&answer).unwrap();
        assert_eq!((header.opcode, header.version, header.response), (opcode::ERROR, 5, true));
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(told), "{text}");
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}
