//! The reader decodes the writer's output, in every framing and in pieces of any size.

use super::*;
use crate::cql::envelope::opcode;
use crate::cql::reader::EnvelopeReader;

const LENGTHS: [usize; 7] = [0, 1, 70, 5000, 140_000, 300_000, 3];

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7) as u8).collect()
}

/// Sends a STARTUP and bodies of all lengths; returns the bytes sent.
fn send_all(version: u8, compression: Option<Algorithm>, segments: Option<bool>) -> Vec<u8> {
    let (mut wire, mut writer) = (Vec::new(), EnvelopeWriter::default());
    writer.push(&mut wire, Header::request(version, -1, opcode::STARTUP), b"options");
    writer.compression = compression;
    segments.into_iter().for_each(|lz4| writer.start_segments(lz4));
    for (stream, &length) in (0..).zip(&LENGTHS) {
        writer.push(&mut wire, Header::request(version, stream, opcode::QUERY), &body(length));
    }
    writer.finish(&mut wire);
    wire
}

/// Reads the bytes in pieces of the given size, and switches to segments as a server does that
/// answers STARTUP.
fn receive_all(
    wire: &[u8],
    compression: Option<Algorithm>,
    segments: Option<bool>,
    piece: usize,
) -> Vec<(Header, Vec<u8>)> {
    let (mut reader, mut answers) = (EnvelopeReader::default(), EnvelopeWriter::default());
    let (mut scratch, mut unread, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for arrived in wire.chunks(piece) {
        unread.extend_from_slice(arrived);
        let mut envelopes = reader.read(&unread, &mut scratch);
        while let Some((header, body)) = envelopes.next(1 << 20, compression).expect("valid") {
            found.push((header, body.to_vec()));
            if header.opcode == opcode::STARTUP {
                segments.into_iter().for_each(|lz4| answers.start_segments(lz4));
            }
            envelopes.follow(&answers);
        }
        let used = envelopes.finish();
        unread.drain(..used);
    }
    assert_eq!((unread.len(), reader.carried_bytes()), (0, 0));
    found
}

#[test]
fn every_framing_in_whole_and_in_pieces() {
    let framings = [
        (4, None, None),
        (3, Some(Algorithm::Lz4), None),
        (4, Some(Algorithm::Snappy), None),
        (5, None, Some(false)),
        (5, None, Some(true)),
    ];
    for (version, compression, segments) in framings {
        let wire = send_all(version, compression, segments);
        for piece in [wire.len(), 1000, 131] {
            let found = receive_all(&wire, compression, segments, piece);
            assert_eq!(found[0].1, b"options");
            let streams = found[1..].iter().map(|(header, _)| header.stream);
            assert!(streams.eq(0..LENGTHS.len() as i16), "version {version}");
            assert!(
                found[1..].iter().zip(LENGTHS).all(|((_, found), length)| *found == body(length))
            );
            // Bodies that compression does not shorten stay as they are.
            let compressed =
                found.iter().filter(|(header, _)| header.flags & flag::COMPRESSION != 0).count();
            assert_eq!(compressed, if compression.is_some() { 4 } else { 0 });
        }
    }
}

#[test]
fn an_envelope_pushed_unchanged_has_its_length_set() {
    let (mut out, mut writer) = (Vec::new(), EnvelopeWriter::default());
    writer.compression = Some(Algorithm::Lz4);
    let header =
        Header { flags: flag::COMPRESSION, length: 99, ..Header::response(4, 1, opcode::READY) };
    writer.push_as_is(&mut out, header, &[0; 5]);
    assert_eq!(out, [0x84, 1, 0, 1, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0]);
}
