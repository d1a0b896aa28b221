//! v5 segments. The first byte says what the rest is: a stream of segments as received, or what an envelope or a
//! segment with right checksums is made from, since no mutation of bytes gets past two checksums.

use shunt_wire::cql::envelope::{HEADER_BYTES, Header};
use shunt_wire::cql::frame_v5::{Assembler, PAYLOAD_BYTES_MAX, SegmentWriter, decode};

/// Most bytes that large envelopes may claim here.
const BODY_MAX: u32 = 1 << 20;

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let lz4 = mode & 1 == 1;
    match mode >> 1 & 3 {
        0 => stream(rest, lz4),
        1 => forged(rest, lz4),
        2 => round_trip(rest, lz4),
        _ => damaged(rest, lz4),
    }
}

/// Reads segments until one is damaged or not whole, as a connection would.
fn stream(data: &[u8], lz4: bool) {
    let mut assembler = Assembler::new();
    let mut scratch = Vec::new();
    let mut at = 0;
    while let Ok(Some(segment)) = decode(&data[at..], lz4) {
        assert!(segment.consumed > segment.payload.len() && at + segment.consumed <= data.len());
        at += segment.consumed;
        let Ok(payload) = segment.payload(&mut scratch) else { return };
        assert_eq!(payload.len(), segment.uncompressed_len);
        if segment.self_contained {
            continue;
        }
        match assembler.push(payload, BODY_MAX) {
            Ok(None) => assert!(assembler.len() <= HEADER_BYTES + BODY_MAX as usize),
            Ok(Some((header, body))) => {
                assert_eq!(header.length as usize, body.len());
                assembler.clear();
            }
            Err(_) => assert!(assembler.is_empty()),
        }
    }
}

/// A segment whose checksums are right and whose lengths and payload need not be.
fn forged(data: &[u8], lz4: bool) {
    let Some((lengths, payload)) = data.split_first_chunk::<5>() else { return };
    let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
    let mut lengths = *lengths;
    // The payload's own length is right, so that it is reached.
    lengths[..2].copy_from_slice(&(payload.len() as u16).to_le_bytes());
    lengths[2] = lengths[2] & !1 | (payload.len() >> 16) as u8;
    let lengths = if lz4 { &lengths[..] } else { &lengths[..3] };
    let mut bytes = lengths.to_vec();
    bytes.extend_from_slice(&crc24(lengths).to_le_bytes()[..3]);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&crc32(payload).to_le_bytes());
    let segment = decode(&bytes, lz4).expect("right checksums").expect("a whole segment");
    assert_eq!((segment.consumed, segment.payload), (bytes.len(), payload));
    stream(&bytes, lz4);
}

/// Writes envelopes with bodies cut from the input, and reads them again.
fn round_trip(data: &[u8], lz4: bool) {
    let mut writer = SegmentWriter::new(lz4);
    let mut out = b"before".to_vec();
    let mut sent = Vec::new();
    for (number, body) in data.split(|byte| *byte == b'|').enumerate() {
        // Now and then a body that fills segments, which inputs are too short for.
        let body = if number % 8 == 7 { body.repeat(PAYLOAD_BYTES_MAX / body.len().max(64)) } else { body.to_vec() };
        let header = Header { length: body.len() as u32, ..Header::request(5, number as i16, 7) }.to_bytes();
        let at = writer.push(&mut out, &header, &body);
        if at != usize::MAX {
            assert_eq!(out[at..at + body.len()], body);
        }
        sent.extend_from_slice(&header);
        sent.extend_from_slice(&body);
        if number % 5 == 4 {
            writer.finish(&mut out);
        }
    }
    writer.finish(&mut out);
    assert!(!writer.is_open() && out.starts_with(b"before"));

    let mut received = Vec::new();
    let mut scratch = Vec::new();
    let mut bytes = &out[6..];
    while let Some(segment) = decode(bytes, lz4).expect("our own segment") {
        received.extend_from_slice(segment.payload(&mut scratch).expect("our own payload"));
        bytes = &bytes[segment.consumed..];
    }
    assert!(bytes.is_empty() && received == sent);
    stream(&out[6..], lz4);
}

/// Checks that one flipped bit in a segment is noticed, wherever it is.
fn damaged(data: &[u8], lz4: bool) {
    let Some((place, body)) = data.split_first_chunk::<2>() else { return };
    let body = &body[..body.len().min(1000)];
    let mut out = Vec::new();
    let mut writer = SegmentWriter::new(lz4);
    let header = Header { length: body.len() as u32, ..Header::request(5, 0, 7) }.to_bytes();
    writer.push(&mut out, &header, body);
    writer.finish(&mut out);
    let bit = usize::from(u16::from_be_bytes(*place)) % (out.len() * 8);
    out[bit / 8] ^= 1 << (bit % 8);
    assert!(decode(&out, lz4).is_err(), "bit {bit}");
}

/// The header's checksum, written from the specification once more (v5, section 2.1).
pub(crate) fn crc24(bytes: &[u8]) -> u32 {
    let mut crc = 0x0087_5060_u32;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= 0x0197_4F0B;
            }
        }
    }
    crc
}

/// The payload's checksum, after the four bytes that Cassandra puts in front.
pub(crate) fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0xFA, 0x2D, 0x55, 0xCA]);
    hasher.update(payload);
    hasher.finalize()
}
