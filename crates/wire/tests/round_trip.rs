//! Framings at random sizes: decoding restores the input for any sizes of envelopes, limits and
//! pieces.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

use proptest::collection::vec;
use proptest::prelude::*;
use shunt_wire::aggregate::{AggregateReader, AggregateWriter, Limits};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::frame_v5::{PAYLOAD_BYTES_MAX, SegmentWriter};
use shunt_wire::cql::message::encode_result::{RowsWriter, native};
use shunt_wire::cql::message::{ResultMessage, put};
use shunt_wire::cql::reader::EnvelopeReader;

/// Sizes of bodies: mostly small, some around one and two segments.
fn body_len() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 0..2000_usize,
        1 => PAYLOAD_BYTES_MAX - HEADER_BYTES - 2..PAYLOAD_BYTES_MAX + 3,
        1 => 2 * PAYLOAD_BYTES_MAX - HEADER_BYTES - 2..2 * PAYLOAD_BYTES_MAX + 3,
    ]
}

/// A body that compresses a little.
fn body(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * (number + 1) / 3) as u8).collect()
}

/// Every envelope in `bytes`, which arrive in pieces of `piece` bytes, as a connection would read
/// them.
fn receive(bytes: &[u8], lz4: bool, piece: usize) -> Vec<(Header, Vec<u8>)> {
    let (mut received, mut unread, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    let mut reader = EnvelopeReader::default();
    reader.start_segments(lz4);
    for arrived in bytes.chunks(piece) {
        unread.extend_from_slice(arrived);
        let mut envelopes = reader.read(&unread, &mut scratch);
        while let Some((header, body)) = envelopes.next(u32::MAX, None).unwrap() {
            received.push((header, body.to_vec()));
        }
        let used = envelopes.finish();
        unread.drain(..used);
    }
    assert_eq!((unread.len(), reader.carried_bytes()), (0, 0));
    received
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn envelopes_through_segments(
        lengths in vec((body_len(), any::<bool>()), 1..20), lz4 in any::<bool>(), piece in 1000..70_000_usize,
    ) {
        let mut writer = SegmentWriter::new(lz4);
        let mut out = Vec::new();
        let mut sent = Vec::new();
        for (number, (length, flush)) in lengths.into_iter().enumerate() {
            let body = body(number, length);
            let header = Header { length: length as u32, ..Header::request(5, number as i16, opcode::QUERY) };
            writer.push(&mut out, &header.to_bytes(), &body);
            sent.push((header, body));
            if flush {
                writer.finish(&mut out);
            }
        }
        writer.finish(&mut out);
        prop_assert!(receive(&out, lz4, piece) == sent);
    }

    #[test]
    fn queries_through_aggregated_frames(
        lengths in vec(0..300_usize, 1..50), count_max in 1..10_u32, bytes_max in 50..1000_u32,
    ) {
        let mut writer = AggregateWriter::new(Limits { count_max, bytes_max });
        let mut out = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            writer.push(&mut out, number as i16, 1, 4, 0, opcode::EXECUTE, &body(number, *length));
        }
        writer.finish(&mut out);
        let mut bytes = &out[..];
        let mut number = 0;
        while let Some(header) = Header::decode(bytes) {
            let (frame, rest) = bytes[HEADER_BYTES..].split_at(header.length as usize);
            let entries: Vec<_> = AggregateReader::new(frame).unwrap().map(Result::unwrap).collect();
            prop_assert!(entries.len() <= count_max as usize);
            prop_assert!(frame.len() <= bytes_max as usize || entries.len() == 1);
            for entry in entries {
                prop_assert_eq!(entry.stream, number as i16);
                prop_assert_eq!(entry.body, &body(number, lengths[number])[..]);
                number += 1;
            }
            bytes = rest;
        }
        prop_assert_eq!(number, lengths.len());
    }

    #[test]
    fn rows_through_the_writer(rows in vec(vec(proptest::option::of(vec(any::<u8>(), 0..20)), 3), 0..20)) {
        let columns = [("a", native::INT), ("b", native::MAP_OF_TEXT), ("c", native::BLOB)];
        let mut out = Vec::new();
        let mut writer = RowsWriter::new(&mut out, "ks", "t", &columns);
        for value in rows.iter().flatten() {
            writer.value(value.as_deref());
        }
        writer.finish();
        let Ok(ResultMessage::Rows(found)) = ResultMessage::decode(4, &out) else { panic!("not rows") };
        prop_assert_eq!(found.row_count, rows.len());
        for (found, sent) in found.rows().zip(&rows) {
            prop_assert!(found.unwrap().values().eq(sent.iter().map(Option::as_deref)));
        }
    }

    #[test]
    fn texts_through_every_notation(texts in vec((".{0,20}", ".{0,20}"), 0..10)) {
        let pairs = || texts.iter().map(|(key, value)| (&key[..], &value[..]));
        let mut out = Vec::new();
        put::string_map(&mut out, pairs());
        put::string_list(&mut out, pairs().map(|(key, _)| key));
        put::bytes_map(&mut out, pairs().map(|(key, value)| (key, Some(value.as_bytes()))));
        let mut reader = shunt_wire::cql::message::Reader::new(&out);
        prop_assert!(reader.string_map("map").unwrap().iter().eq(pairs()));
        prop_assert!(reader.string_list("list").unwrap().iter().eq(pairs().map(|(key, _)| key)));
        let bytes = reader.bytes_map("bytes").unwrap();
        prop_assert!(bytes.iter().eq(pairs().map(|(key, value)| (key, Some(value.as_bytes())))));
        prop_assert!(reader.rest().is_empty());
    }
}
