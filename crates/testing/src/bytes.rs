//! Requests as bytes, valid ones and every kind of invalid framing.
//!
//! Segments and checksums are implemented from the specification, independently of the product.

use shunt_wire::aggregate::{AggregateWriter, Limits};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, flag, opcode};
use shunt_wire::cql::message::{Consistency, QueryParams, Value, ValueList, encode};

/// An envelope with this header and the length of `body`.
pub fn envelope(header: Header, body: &[u8]) -> Vec<u8> {
    let header = Header { length: body.len() as u32, ..header };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A request without flags.
pub fn request(version: u8, stream: i16, op: u8, body: &[u8]) -> Vec<u8> {
    envelope(Header::request(version, stream, op), body)
}

/// The bytes that `write` appends.
pub fn body(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    write(&mut body);
    body
}

/// OPTIONS.
pub fn options(version: u8, stream: i16) -> Vec<u8> {
    request(version, stream, opcode::OPTIONS, &[])
}

/// STARTUP that requests this compression by name.
pub fn startup(version: u8, compression: Option<&str>) -> Vec<u8> {
    let options =
        [("CQL_VERSION", "3.0.0")].into_iter().chain(compression.map(|name| ("COMPRESSION", name)));
    request(version, 0, opcode::STARTUP, &body(|out| encode::startup(out, options)))
}

/// STARTUP of a driver that reports its name and version.
pub fn startup_of(version: u8, driver: &str, driver_version: &str) -> Vec<u8> {
    let options =
        [("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", driver), ("DRIVER_VERSION", driver_version)];
    request(version, 0, opcode::STARTUP, &body(|out| encode::startup(out, options)))
}

/// AUTH_RESPONSE with this SASL token.
pub fn auth_response(version: u8, token: &[u8]) -> Vec<u8> {
    request(version, 0, opcode::AUTH_RESPONSE, &body(|out| encode::auth_response(out, Some(token))))
}

/// QUERY at consistency ONE.
pub fn query(version: u8, stream: i16, text: &str) -> Vec<u8> {
    request(
        version,
        stream,
        opcode::QUERY,
        &body(|out| encode::query_simple(out, version, text, Consistency::ONE)),
    )
}

/// PREPARE.
pub fn prepare(version: u8, stream: i16, text: &str) -> Vec<u8> {
    request(
        version,
        stream,
        opcode::PREPARE,
        &body(|out| encode::prepare(out, version, text, None)),
    )
}

/// EXECUTE of a statement with these values; in v5 with a metadata id of zeros.
pub fn execute(version: u8, stream: i16, id: &[u8], values: &[&[u8]]) -> Vec<u8> {
    let mut list = ValueList::positional(version);
    for value in values {
        list.push(Value::Bytes(value));
    }
    let params = QueryParams { values: list.values(), ..QueryParams::simple(Consistency::ONE) };
    request(
        version,
        stream,
        opcode::EXECUTE,
        &body(|out| encode::execute(out, version, id, Some(&[0; 16]), &params)),
    )
}

/// `INSERT` into the table that all nodes know, as text, with this key and a value of the given
/// length.
pub fn insert(version: u8, stream: i16, key: &str, value_bytes: usize) -> Vec<u8> {
    let mut list = ValueList::positional(version);
    list.push(Value::Bytes(key.as_bytes())).push(Value::Bytes(&vec![7; value_bytes]));
    let params = QueryParams { values: list.values(), ..QueryParams::simple(Consistency::ONE) };
    let text = "INSERT INTO bench.kv (k, v) VALUES (?, ?)";
    request(version, stream, opcode::QUERY, &body(|out| encode::query(out, version, text, &params)))
}

/// The same envelope with its header changed.
pub fn with_header(mut envelope: Vec<u8>, change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::decode(&envelope).expect("a whole header");
    change(&mut header);
    envelope[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    envelope
}

/// The same envelope with the compression flag set.
pub fn said_compressed(envelope: Vec<u8>) -> Vec<u8> {
    with_header(envelope, |header| header.flags |= flag::COMPRESSION)
}

/// One aggregated frame with requests of this client.
pub fn aggregate<'b>(
    client_id: u32,
    requests: impl IntoIterator<Item = (Header, &'b [u8])>,
) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut writer = AggregateWriter::new(Limits { count_max: 100, bytes_max: 1 << 20 });
    for (header, body) in requests {
        writer.push(
            &mut frame,
            header.stream,
            client_id,
            header.version,
            header.flags,
            header.opcode,
            body,
        );
    }
    writer.finish(&mut frame);
    frame
}

/// Envelopes as a connection of this version carries them after its handshake, without compression.
pub fn framed(version: u8, envelopes: Vec<u8>) -> Vec<u8> {
    if version >= 5 { segment(&envelopes, true) } else { envelopes }
}

/// One v5 segment around arbitrary bytes.
pub fn segment(payload: &[u8], self_contained: bool) -> Vec<u8> {
    let lengths = payload.len() as u32 | u32::from(self_contained) << 17;
    segment_with_lengths(&lengths.to_le_bytes()[..3], payload)
}

/// One v5 segment of a connection with LZ4, which claims this decompressed length (0 for plain).
pub fn segment_lz4(payload: &[u8], uncompressed_len: usize) -> Vec<u8> {
    let lengths = payload.len() as u64 | (uncompressed_len as u64) << 17 | 1 << 34;
    segment_with_lengths(&lengths.to_le_bytes()[..5], payload)
}

/// A segment with correct checksums and arbitrary header bytes.
pub fn segment_with_lengths(lengths: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = lengths.to_vec();
    bytes.extend_from_slice(&crc24(lengths).to_le_bytes()[..3]);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&crc32(payload).to_le_bytes());
    bytes
}

/// v5, section 2.3.
fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x87_5060, |mut crc: u32, byte| {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x100_0000 != 0 {
                crc ^= 0x197_4F0B;
            }
        }
        crc
    })
}

/// The usual CRC32, seeded with four bytes known to both sides.
fn crc32(payload: &[u8]) -> u32 {
    let begun = [0xFA, 0x2D, 0x55, 0xCA];
    !begun.iter().chain(payload).fold(u32::MAX, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
        crc
    })
}
