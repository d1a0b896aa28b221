//! Formats between proxies and nodes of different versions: `fixtures` holds the bytes as written
//! by the version that began each layout, this file the values. The extension's `FrameFixturesTest`
//! reads the same files.
//!
//! `SHUNT_WRITE_FIXTURES=1` writes missing fixtures and never overwrites one: see "Changing a
//! format" in CONTRIBUTING.md.

use std::path::Path;

use shunt_wire::aggregate::{AggregateReader, AggregateWriter, Entry, Limits, Offer};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, flag, opcode};

/// The fields of an entry in wire order.
type Fields = (i16, u32, u8, u8, u8, &'static [u8]);

const QUERIES: [Fields; 5] = [
    (1, 9, 4, 0, opcode::EXECUTE, &[7; 30]),
    (-7, 0xFFFF_FFFE, 5, flag::TRACING, opcode::QUERY, b"\0\0\0\x08SELECT 1\0\x01\0\0\0\0"),
    (0, 9, 4, 0, opcode::CLIENT_GONE, b""),
    (32_767, 10, 3, 0, opcode::BATCH, b"\0\0\0\0\x01\0"),
    (2, 10, 4, flag::COMPRESSION, opcode::PREPARE, b""),
];

/// A RESULT without rows, one of a USE, and one of version 5 with a leading warning.
const ANSWERS: [Fields; 3] = [
    (1, 9, 4, 0, opcode::RESULT, b"\0\0\0\x01"),
    (-7, 0xFFFF_FFFE, 3, 0, opcode::RESULT, b"\0\0\0\x03\0\x02ks"),
    (32_767, 10, 5, flag::WARNING, opcode::RESULT, b"\0\x01\0\x04slow\0\0\0\x01"),
];

const ROOMY: Limits = Limits { count_max: 100, bytes_max: 10_000 };

/// The bytes of a fixture, which equal today's output.
fn kept(name: &str, written: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    if std::env::var_os("SHUNT_WRITE_FIXTURES").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().expect("it is in a folder"))
            .expect("a folder for it");
        std::fs::write(&path, written).expect("room for it");
    }
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        bytes == written,
        "what is written differs from {}: the layout has changed, and nodes have jars of another version than their proxies. \
         Raise its version (LAYOUT in aggregate/offer.rs), keep this fixture, and add one of the new version: see \"Changing \
         a format\" in CONTRIBUTING.md.\n{bytes:02x?} is there\n{written:02x?} is written",
        path.display()
    );
    bytes
}

fn frame(mut writer: AggregateWriter, entries: &[Fields]) -> Vec<u8> {
    let mut out = Vec::new();
    for (stream, client_id, version, flags, opcode, body) in entries {
        match *opcode {
            opcode::CLIENT_GONE => writer.push_client_gone(&mut out, *client_id),
            opcode => {
                let _: usize =
                    writer.push(&mut out, *stream, *client_id, *version, *flags, opcode, body);
            }
        }
    }
    writer.finish(&mut out);
    out
}

fn fields<'a>(entry: &Entry<'a>) -> (i16, u32, u8, u8, u8, &'a [u8]) {
    (entry.stream, entry.client_id, entry.version, entry.flags, entry.opcode, entry.body)
}

fn check(name: &str, writer: AggregateWriter, entries: &[Fields], response: bool) {
    let bytes = kept(name, &frame(writer, entries));
    let header = Header::decode(&bytes).expect("a header");
    assert_eq!(
        (header.version, header.response, header.flags, header.opcode),
        (4, response, 0, 0x64),
        "{name}"
    );
    let body = &bytes[HEADER_BYTES..];
    assert_eq!(header.length as usize, body.len(), "{name}");
    let reader = AggregateReader::new(body).expect("a frame that was ever sent is read");
    let read: Vec<_> = reader.map(|entry| fields(&entry.expect("its entries, too"))).collect();
    assert_eq!(read, entries, "{name}");
}

#[test]
fn frames_of_queries() {
    check("aggregate-1/queries", AggregateWriter::new(ROOMY), &QUERIES, false);
}

#[test]
fn frames_of_answers() {
    check("aggregate-1/answers", AggregateWriter::responses(ROOMY), &ANSWERS, true);
}

#[test]
fn the_offer_of_a_node() {
    let offer = Offer { count_max: 64, bytes_max: 65_536, port: Some(9142) };
    let bytes = kept("aggregate-1/offer", (offer.values().join("\n") + "\n").as_bytes());
    let text = String::from_utf8(bytes).expect("text");
    assert_eq!(Offer::parse(text.lines()), Some(offer));
}

/// A node that knows only a later layout gets ordinary envelopes; one that also lists this layout
/// gets frames.
#[test]
fn an_offer_of_a_version_to_come_is_not_taken() {
    let later = ["v2", "count_max=64", "bytes_max=65536", "port=9142"];
    assert_eq!(Offer::parse(later), None);
    assert!(Offer::parse(later.into_iter().chain(["v1"])).is_some());
}
