//! v5 segments, alone and as read by the reader of envelopes. The first byte selects the meaning of
//! the rest: a stream of segments as received, or the content of an envelope or of a segment with
//! correct checksums, since no mutation of bytes passes two checksums.

use shunt_wire::cql::envelope::{HEADER_BYTES, Header};
use shunt_wire::cql::frame_v5::{FrameError, PAYLOAD_BYTES_MAX, SegmentWriter, decode};
use shunt_wire::cql::reader::EnvelopeReader;

/// Most bytes that envelopes may claim here.
const BODY_MAX: u32 = 1 << 20;

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let lz4 = mode & 1 == 1;
    match mode >> 1 & 3 {
        0 => drop(stream(rest, lz4)),
        1 => forged(rest, lz4),
        2 => round_trip(rest, lz4),
        _ => damaged(rest, lz4),
    }
}

/// Reads segments up to a damaged or incomplete one, and the envelopes in them as a connection
/// would; returns the envelopes.
fn stream(data: &[u8], lz4: bool) -> Vec<(Header, Vec<u8>)> {
    let payloads = payloads(data, lz4);
    let read = |piece, pause| receive_all((data, lz4), payloads.len(), piece, pause);
    let (found, error) = read(usize::MAX, usize::MAX);
    let mut expected = &payloads[..];
    for (header, body) in &found {
        assert_eq!(header.length as usize, body.len());
        let whole = [&header.to_bytes()[..], body].concat();
        expected = expected
            .strip_prefix(&whole[..])
            .expect("the envelopes are those of the payloads, in order");
    }
    // However the bytes arrive, and wherever the connection pauses, the result is the same.
    for (piece, pause) in [(usize::MAX, 1), (1, usize::MAX), (7, 2), (1000, 3)] {
        assert_eq!(
            read(piece, pause),
            (found.clone(), error),
            "pieces of {piece}, pauses after {pause}"
        );
    }
    found
}

/// Payloads of all segments before the first damaged or incomplete one.
fn payloads(data: &[u8], lz4: bool) -> Vec<u8> {
    let (mut payloads, mut at) = (Vec::new(), 0);
    while let Ok(Some(segment)) = decode(&data[at..], lz4) {
        assert!(segment.consumed > segment.payload.len() && at + segment.consumed <= data.len());
        at += segment.consumed;
        let before = payloads.len();
        if segment.append_payload(&mut payloads).is_err() {
            payloads.truncate(before);
            break;
        }
        assert_eq!(payloads.len() - before, segment.uncompressed_len);
    }
    payloads
}

/// The envelopes in `data`, which arrives in pieces of `piece` bytes and is read by a connection
/// that pauses after each `pause` envelopes; and the final error. The segments hold
/// `payload_bytes`.
fn receive_all(
    (data, lz4): (&[u8], bool),
    payload_bytes: usize,
    piece: usize,
    pause: usize,
) -> (Vec<(Header, Vec<u8>)>, Option<FrameError>) {
    let (mut reader, mut scratch) = (EnvelopeReader::default(), Vec::new());
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    reader.start_segments(lz4);
    for arrived in data.chunks(piece.min(data.len().max(1))) {
        unread.extend_from_slice(arrived);
        loop {
            let mut envelopes = reader.read(&unread, &mut scratch);
            let before = found.len();
            while found.len() - before < pause {
                match envelopes.next(BODY_MAX, None) {
                    Ok(Some((header, body))) => found.push((header, body.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
            let used = envelopes.finish();
            unread.drain(..used);
            assert!(found.len() * HEADER_BYTES <= payload_bytes, "envelopes come more than once");
            assert!(reader.carried_bytes() <= HEADER_BYTES + BODY_MAX as usize + PAYLOAD_BYTES_MAX);
            if found.len() - before < pause {
                break;
            }
        }
    }
    (found, None)
}

/// A segment with correct checksums, and arbitrary lengths and payload.
fn forged(data: &[u8], lz4: bool) {
    let Some((lengths, payload)) = data.split_first_chunk::<5>() else { return };
    let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
    let mut lengths = *lengths;
    // The payload's own length is correct, so that it is reached.
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

/// Writes envelopes with bodies cut from the input, and reads them back.
fn round_trip(data: &[u8], lz4: bool) {
    let mut writer = SegmentWriter::new(lz4);
    let mut out = b"before".to_vec();
    let mut sent = Vec::new();
    for (number, body) in data.split(|byte| *byte == b'|').enumerate() {
        // Occasionally a body that fills segments, longer than inputs.
        let body = if number % 8 == 7 {
            body.repeat(PAYLOAD_BYTES_MAX / body.len().max(64))
        } else {
            body.to_vec()
        };
        let header =
            Header { length: body.len() as u32, ..Header::request(5, number as i16, 7) }.to_bytes();
        let at = writer.push(&mut out, &header, &body);
        if at != usize::MAX {
            assert_eq!(out[at..at + body.len()], body);
        }
        sent.push([&header[..], &body].concat());
        if number % 5 == 4 {
            writer.finish(&mut out);
        }
    }
    writer.finish(&mut out);
    assert!(!writer.is_open() && out.starts_with(b"before"));

    assert_eq!(payloads(&out[6..], lz4), sent.concat());
    let found = stream(&out[6..], lz4);
    assert!(found.iter().map(|(header, body)| [&header.to_bytes()[..], body].concat()).eq(sent));
}

/// Checks that one flipped bit anywhere in a segment is detected.
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

/// The header's checksum, implemented independently from the specification (v5, section 2.1).
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

/// The payload's checksum, including the four bytes that Cassandra puts in front.
pub(crate) fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0xFA, 0x2D, 0x55, 0xCA]);
    hasher.update(payload);
    hasher.finalize()
}
