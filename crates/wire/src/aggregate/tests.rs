//! Layout of frames, their limits, and damaged frames.

use super::*;
use crate::cql::envelope::{HEADER_BYTES, Header, opcode};
use crate::error::{DecodeError, Problem};

const ROOMY: Limits = Limits { count_max: 1000, bytes_max: 1 << 20 };

/// Header and entries of each frame in `bytes`.
fn frames(mut bytes: &[u8]) -> Vec<(Header, Vec<Entry<'_>>)> {
    let mut frames = Vec::new();
    while let Some(header) = Header::decode(bytes) {
        let (frame, rest) = bytes[HEADER_BYTES..].split_at(header.length as usize);
        let mut reader = AggregateReader::new(frame).unwrap();
        let entries = reader.by_ref().collect::<Result<_, _>>().unwrap();
        assert_eq!(reader.position(), frame.len());
        frames.push((header, entries));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

#[test]
fn a_frame_has_the_designed_layout() {
    let mut out = b"before".to_vec();
    let mut writer = AggregateWriter::new(ROOMY);
    let at = writer.push(&mut out, 0x0102, 0x0304_0506, 5, 2, opcode::EXECUTE, b"ab");
    assert_eq!(&out[at..], b"ab");
    assert_eq!((writer.is_open(), writer.count()), (true, 1));
    writer.finish(&mut out);
    writer.finish(&mut out);
    let header = [4, 0, 0, 0, 0x64, 0, 0, 0, 19];
    let entry = [1, 2, 3, 4, 5, 6, 5, 2, 0x0A, 0, 0, 0, 2, b'a', b'b'];
    assert_eq!(out, [&b"before"[..], &header, &[0, 0, 0, 1], &entry].concat());
}

#[test]
fn entries_survive_the_round_trip_in_order() {
    let mut out = Vec::new();
    let mut writer = AggregateWriter::responses(ROOMY);
    let bodies = [&b"one"[..], b"", b"three"];
    let mut offsets = Vec::new();
    for (stream, body) in bodies.iter().enumerate() {
        offsets.push(writer.push(&mut out, stream as i16, 9, 4, 0, opcode::RESULT, body));
    }
    writer.finish(&mut out);
    let frames = frames(&out);
    let [(header, entries)] = &frames[..] else { panic!("one frame") };
    assert!(header.response && header.version == 4 && header.opcode == opcode::AGGREGATE);
    for (stream, (entry, body)) in entries.iter().zip(bodies).enumerate() {
        assert_eq!((entry.stream, entry.client_id, entry.body), (stream as i16, 9, body));
        assert_eq!(entry.offset + HEADER_BYTES, offsets[stream]);
    }
}

#[test]
fn the_only_stream_is_known_from_the_first_bytes() {
    let mut out = Vec::new();
    let mut writer = AggregateWriter::responses(ROOMY);
    writer.push(&mut out, -7, 1, 4, 0, opcode::RESULT, b"body");
    writer.finish(&mut out);
    let body = &out[HEADER_BYTES..];
    assert_eq!(AggregateReader::only_stream(&body[..6]), Ok(Some(-7)));
    assert!((0..6).all(|end| AggregateReader::only_stream(&body[..end]).is_err()));
    for count in [-1_i32, 0, 2] {
        let start = [&count.to_be_bytes()[..], &body[4..]].concat();
        assert_eq!(AggregateReader::only_stream(&start), Ok(None));
    }
}

#[test]
fn frames_end_at_either_limit() {
    let limits =
        Limits { count_max: 3, bytes_max: COUNT_BYTES as u32 + 2 * ENTRY_HEADER_BYTES as u32 + 20 };
    let lengths = |bodies: &[usize]| {
        let mut out = Vec::new();
        let mut writer = AggregateWriter::new(limits);
        for length in bodies {
            writer.push(&mut out, 0, 1, 4, 0, opcode::QUERY, &vec![7; *length]);
        }
        writer.finish(&mut out);
        let frames = frames(&out);
        frames.iter().map(|(_, entries)| entries.len()).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&[0, 0, 0, 0]), [3, 1]);
    assert_eq!(lengths(&[10, 10, 10]), [2, 1]);
    assert_eq!(lengths(&[10, 11]), [1, 1]);
    assert!(limits.fits(33) && !limits.fits(34));
    assert_eq!(lengths(&[1, 34, 1]), [1, 1, 1]);
}

#[test]
fn a_client_that_is_gone_is_an_entry_without_a_body() {
    let mut out = Vec::new();
    let mut writer = AggregateWriter::new(ROOMY);
    writer.push_client_gone(&mut out, 77);
    writer.finish(&mut out);
    let entry = frames(&out)[0].1[0];
    assert_eq!((entry.opcode, entry.client_id, entry.body), (opcode::CLIENT_GONE, 77, &b""[..]));
}

#[test]
fn a_count_is_not_believed() {
    let error = AggregateReader::new(&[0x7F, 0xFF, 0xFF, 0xFF, 0]).unwrap_err();
    let problem = Problem::TooLarge { found: 0x7FFF_FFFF, max: 0 };
    assert_eq!((error.problem, error.offset), (problem, 0));
    let error = AggregateReader::new(&[0xFF; 4]).unwrap_err();
    assert_eq!(error.problem, Problem::Negative { found: -1 });
}

#[test]
fn after_a_damaged_entry_comes_nothing() {
    let mut out = Vec::new();
    let mut writer = AggregateWriter::new(ROOMY);
    for _ in 0..3 {
        writer.push(&mut out, 0, 1, 4, 0, opcode::QUERY, b"body");
    }
    writer.finish(&mut out);
    let frame = &mut out[HEADER_BYTES..];
    frame[COUNT_BYTES + 9..COUNT_BYTES + 13].copy_from_slice(&100_i32.to_be_bytes());
    let mut reader = AggregateReader::new(frame).unwrap();
    let problem = Problem::Truncated { needed: 100, left: 38 };
    let error = DecodeError { problem, field: "entry body", offset: 17 };
    assert_eq!(reader.next(), Some(Err(error)));
    assert_eq!(reader.next(), None);
}
