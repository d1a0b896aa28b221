//! v5's framing.

use cassandra_protocol::compression::Compression;
use cassandra_protocol::frame::frame_decoder::{
    FrameDecoder, Lz4FrameDecoder, UncompressedFrameDecoder,
};
use cassandra_protocol::frame::frame_encoder::{
    FrameEncoder, Lz4FrameEncoder, UncompressedFrameEncoder,
};
use cassandra_protocol::frame::{Direction, Envelope, Flags, Opcode, Version};
use shunt_wire::cql::envelope::HEADER_BYTES;
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::reader::EnvelopeReader;

/// Small envelopes, one that needs several segments, and small ones again.
fn envelopes() -> Vec<Envelope> {
    [3, 500, 300_000, 0, 70_000, 70_000]
        .into_iter()
        .enumerate()
        .map(|(stream, length)| {
            let body = (0..length).map(|at: u32| (at / 7) as u8).collect();
            let (direction, flags) = (Direction::Response, Flags::empty());
            Envelope::new(
                Version::V5,
                direction,
                flags,
                Opcode::Result,
                stream as i16,
                body,
                None,
                vec![],
            )
        })
        .collect()
}

fn encoded(envelope: &Envelope) -> Vec<u8> {
    envelope.encode_with(Compression::None).unwrap()
}

fn they_read_ours(lz4: bool, decoder: &mut dyn FrameDecoder) {
    let mut writer = SegmentWriter::new(lz4);
    let mut out = Vec::new();
    for envelope in envelopes() {
        let bytes = encoded(&envelope);
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().unwrap();
        writer.push(&mut out, header, body);
    }
    writer.finish(&mut out);
    let compression = if lz4 { Compression::Lz4 } else { Compression::None };
    let mut read = Vec::new();
    // In pieces, so that their decoder sees segments as they would arrive.
    let mut arrived = Vec::new();
    for piece in out.chunks(10_000) {
        arrived.extend_from_slice(piece);
        read.extend(decoder.consume(&mut arrived, compression).unwrap());
    }
    assert_eq!(read, envelopes());
}

#[test]
fn they_read_our_segments() {
    they_read_ours(false, &mut UncompressedFrameDecoder::default());
    they_read_ours(true, &mut Lz4FrameDecoder::default());
}

fn we_read_theirs(lz4: bool, encoder: &mut dyn FrameEncoder) {
    let mut bytes = Vec::new();
    for envelope in envelopes() {
        let envelope = encoded(&envelope);
        encoder.reset();
        if encoder.can_fit(envelope.len()) {
            encoder.add_envelope(envelope);
            bytes.extend_from_slice(encoder.finalize_self_contained());
            continue;
        }
        let mut left = &envelope[..];
        while !left.is_empty() {
            encoder.reset();
            let (taken, segment) = encoder.finalize_non_self_contained(left);
            bytes.extend_from_slice(segment);
            left = &left[taken..];
        }
    }

    let mut reader = EnvelopeReader::default();
    reader.start_segments(lz4);
    let (mut read, mut scratch) = (Vec::new(), Vec::new());
    let mut found = reader.read(&bytes, &mut scratch);
    while let Some((header, body)) = found.next(u32::MAX, None).unwrap() {
        read.push((header, [&header.to_bytes()[..], body].concat()));
    }
    assert_eq!(found.finish(), bytes.len());
    assert_eq!(reader.carried_bytes(), 0);
    let (header, _) = read[1];
    assert_eq!((header.version, header.stream, header.length), (5, 1, 500));
    assert!(read.into_iter().map(|(_, bytes)| bytes).eq(envelopes().iter().map(encoded)));
}

#[test]
fn we_read_their_segments() {
    we_read_theirs(false, &mut UncompressedFrameEncoder::default());
    we_read_theirs(true, &mut Lz4FrameEncoder::default());
}
