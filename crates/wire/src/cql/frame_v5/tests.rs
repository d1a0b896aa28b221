//! Segments against vectors written by an independent implementation (the Python driver), and
//! damaged segments.

use super::*;
use crate::cql::envelope::{HEADER_BYTES, Header, opcode};

/// An OPTIONS request of v5 on stream 5, the content of the vectors.
const OPTIONS: [u8; 9] = [5, 0, 0, 5, 5, 0, 0, 0, 0];
const OPTIONS_SEGMENT: &str = "090002a4c8c1050000050500000000a317e51d";
const OPTIONS_SEGMENT_LZ4: &str = "0900000004c2b895050000050500000000a317e51d";
/// Fifty times the letter b.
const LETTERS_SEGMENT_LZ4: &str = "0b006400042dacc41f6201001950626262626225c4f9e0";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap())
        .collect()
}

fn header(body: &[u8]) -> [u8; HEADER_BYTES] {
    let length = body.len() as u32;
    Header { length, ..Header::request(5, 1, opcode::QUERY) }.to_bytes()
}

/// Bytes that LZ4 cannot shorten.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_u32;
    let step = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    std::iter::repeat_with(step).take(length).collect()
}

/// Returns all segments of `bytes` with their payloads; panics if bytes are left over.
fn decode_all(mut bytes: &[u8], lz4: bool) -> Vec<(bool, Vec<u8>)> {
    let mut segments = Vec::new();
    while !bytes.is_empty() {
        let segment = decode(bytes, lz4).unwrap().expect("a whole segment");
        let mut payload = Vec::new();
        segment.append_payload(&mut payload).unwrap();
        assert_eq!(payload.len(), segment.uncompressed_len);
        segments.push((segment.self_contained, payload));
        bytes = &bytes[segment.consumed..];
    }
    segments
}

#[test]
fn writes_what_another_implementation_writes() {
    for (lz4, vector) in [(false, OPTIONS_SEGMENT), (true, OPTIONS_SEGMENT_LZ4)] {
        let mut out = Vec::new();
        let mut writer = SegmentWriter::new(lz4);
        writer.push(&mut out, &OPTIONS, &[]);
        writer.finish(&mut out);
        assert_eq!(out, unhex(vector));
    }
}

#[test]
fn reads_what_another_implementation_writes() {
    let payloads = [
        (false, OPTIONS_SEGMENT, OPTIONS.to_vec()),
        (true, OPTIONS_SEGMENT_LZ4, OPTIONS.to_vec()),
        (true, LETTERS_SEGMENT_LZ4, vec![b'b'; 50]),
    ];
    for (lz4, vector, payload) in payloads {
        assert_eq!(decode_all(&unhex(vector), lz4), [(true, payload)]);
    }
}

#[test]
fn headers_hold_the_largest_lengths() {
    let largest = SegmentHeader {
        payload_len: PAYLOAD_BYTES_MAX,
        uncompressed_len: 0,
        self_contained: false,
    };
    let mut room = [0; 6];
    largest.encode(false, &mut room);
    assert_eq!(room, *unhex("ffff013891fe"));
    let largest = SegmentHeader {
        payload_len: 1234,
        uncompressed_len: PAYLOAD_BYTES_MAX,
        self_contained: false,
    };
    let mut room = [0; 8];
    largest.encode(true, &mut room);
    assert_eq!(room, *unhex("d204feff0383cd3c"));
    assert_eq!(SegmentHeader::decode(&room, true), Ok(Some(largest)));
}

#[test]
fn any_flipped_bit_is_noticed() {
    for (lz4, vector) in
        [(false, OPTIONS_SEGMENT), (true, OPTIONS_SEGMENT_LZ4), (true, LETTERS_SEGMENT_LZ4)]
    {
        let segment = unhex(vector);
        for bit in 0..segment.len() * 8 {
            let mut damaged = segment.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged, lz4).is_err(), "bit {bit} of {vector}");
        }
    }
}

#[test]
fn a_part_of_a_segment_is_waited_for() {
    for (lz4, vector) in [(false, OPTIONS_SEGMENT), (true, LETTERS_SEGMENT_LZ4)] {
        let segment = unhex(vector);
        for length in 0..segment.len() {
            assert_eq!(decode(&segment[..length], lz4), Ok(None));
        }
    }
}

#[test]
fn envelopes_share_a_segment_and_say_where_their_bodies_are() {
    let mut out = b"before".to_vec();
    let mut writer = SegmentWriter::new(false);
    let bodies = [&b"first"[..], b"", b"third"];
    let offsets = bodies.map(|body| writer.push(&mut out, &header(body), body));
    assert!(writer.is_open());
    writer.finish(&mut out);
    writer.finish(&mut out);
    for (body, offset) in bodies.iter().zip(offsets) {
        assert_eq!(&out[offset..offset + body.len()], *body);
    }
    let payload = bodies.iter().flat_map(|body| [&header(body)[..], body].concat()).collect();
    assert_eq!(decode_all(&out[6..], false), [(true, payload)]);
}

#[test]
fn a_full_segment_makes_room_for_the_next() {
    let half = vec![1; PAYLOAD_BYTES_MAX / 2 + 1 - HEADER_BYTES];
    let other_half = vec![2; PAYLOAD_BYTES_MAX / 2 - HEADER_BYTES];
    let mut writer = SegmentWriter::new(false);
    let mut out = Vec::new();
    for body in [&half, &other_half, &half, &half] {
        writer.push(&mut out, &header(body), body);
    }
    writer.finish(&mut out);
    let lengths: Vec<_> =
        decode_all(&out, false).iter().map(|(whole, payload)| (*whole, payload.len())).collect();
    let half = half.len() + HEADER_BYTES;
    assert_eq!(lengths, [(true, PAYLOAD_BYTES_MAX), (true, half), (true, half)]);
}

#[test]
fn a_large_envelope_is_split() {
    for lz4 in [false, true] {
        for extra in [1, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1] {
            let body = noise(PAYLOAD_BYTES_MAX - HEADER_BYTES + extra);
            let mut writer = SegmentWriter::new(lz4);
            let mut out = Vec::new();
            writer.push(&mut out, &header(b"small"), b"small");
            assert_eq!(writer.push(&mut out, &header(&body), &body), usize::MAX);
            writer.push(&mut out, &header(b"small"), b"small");
            writer.finish(&mut out);

            let segments = decode_all(&out, lz4);
            let (last, parts) = segments[1..].split_last().unwrap();
            assert!(segments[0].0 && last.0 && parts.iter().all(|(whole, _)| !whole));
            let whole: Vec<u8> = parts.iter().flat_map(|(_, part)| part).copied().collect();
            assert_eq!(whole, [&header(&body)[..], &body].concat());
        }
    }
}

#[test]
fn incompressible_segments_are_sent_as_they_are() {
    let body = noise(1000);
    let mut writer = SegmentWriter::new(true);
    let mut out = Vec::new();
    writer.push(&mut out, &header(&body), &body);
    writer.finish(&mut out);
    let segment = decode(&out, true).unwrap().unwrap();
    assert!(!segment.compressed);
    assert_eq!(&segment.payload[HEADER_BYTES..], &body);
}

#[test]
fn a_false_uncompressed_length_is_an_error_behind_right_checksums() {
    let block = &unhex(LETTERS_SEGMENT_LZ4)[8..19];
    for claimed in [1, 49, 51, PAYLOAD_BYTES_MAX] {
        let mut bytes = vec![0; 8];
        SegmentHeader { payload_len: block.len(), uncompressed_len: claimed, self_contained: true }
            .encode(true, &mut bytes);
        bytes.extend_from_slice(block);
        bytes.extend_from_slice(&crc::crc32(block).to_le_bytes());
        let segment = decode(&bytes, true).unwrap().unwrap();
        let error = segment.append_payload(&mut Vec::new()).unwrap_err();
        assert!(matches!(error, FrameError::Payload(_)), "{claimed}: {error}");
    }
}

#[test]
fn segments_claim_what_they_hold_before_they_are_decompressed() {
    let (zeros, plain) = (segment_of(&[0; 100_000], true, true), segment_of(b"abc", true, true));
    assert!(zeros.len() < 1_000);
    let bytes = [&zeros[..], &plain, &zeros].concat();
    let part = |bytes: &[u8], most| claimed_part(bytes, most);
    assert_eq!(part(&bytes, 200_000), (bytes.len(), 200_000));
    assert_eq!(part(&bytes, 199_999), (zeros.len() + plain.len(), 100_000));
    assert_eq!(part(&bytes, 1), (zeros.len() + plain.len(), 100_000), "one is taken alone");
    let last = bytes.len() - 1;
    assert_eq!(part(&bytes[..last], 1), (last, 100_000), "the last is not there whole");
    assert_eq!((part(&[], 1), part(&zeros[..7], 1)), ((0, 0), (7, 0)));
}
