//! The reader against streams cut at every place, held and skipped anywhere.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::cql::compression::{CompressionError, Compressor};
use crate::cql::envelope::opcode;
use crate::cql::frame_v5::{PAYLOAD_BYTES_MAX, SegmentWriter, segment_of};

/// Stream id and body of an envelope.
type Found = (i16, Vec<u8>);

fn envelope(stream: i16, length: usize) -> Vec<u8> {
    let header = Header { length: length as u32, ..Header::request(5, stream, opcode::QUERY) };
    [&header.to_bytes()[..], &body(stream, length)].concat()
}

fn body(stream: i16, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7) as u8 ^ stream as u8).collect()
}

/// Envelopes of the given lengths, with consecutive stream ids.
fn envelopes(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().enumerate().map(|(stream, length)| envelope(stream as i16, *length)).collect()
}

/// A receive buffer and its reader.
#[derive(Default)]
struct Connection {
    reader: EnvelopeReader,
    unread: Vec<u8>,
    scratch: Vec<u8>,
    found: Vec<Found>,
    skipped: Vec<i16>,
    /// Stream id of the envelope after which segments start, and whether they use LZ4.
    switch: Option<(i16, bool)>,
    /// Stream ids of envelopes to discard.
    skip: Vec<i16>,
}

/// An action at an envelope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Act {
    Handle,
    /// Ends the read before the header is looked at.
    StopBefore,
    /// Ends the read between header and body.
    StopAtHeader,
    /// Looks at the body and asks to see it again.
    Hold,
}

impl Connection {
    fn segmented(lz4: bool) -> Connection {
        let mut connection = Connection::default();
        connection.reader.start_segments(lz4);
        connection
    }

    fn receive(&mut self, data: &[u8], mut act: impl FnMut() -> Act) -> Result<(), FrameError> {
        self.unread.extend_from_slice(data);
        let mut reader = std::mem::take(&mut self.reader);
        let mut envelopes = reader.read(&self.unread, &mut self.scratch);
        let used = loop {
            let act = act();
            if act == Act::StopBefore {
                break envelopes.finish();
            }
            let Some(header) = envelopes.header()? else { break envelopes.finish() };
            if act == Act::StopAtHeader {
                break envelopes.finish();
            }
            if self.skip.contains(&header.stream) {
                let start = envelopes.start_of_body(3)?;
                let whole = body(header.stream, header.length as usize);
                assert!(whole.starts_with(start), "{start:?}");
                if start.len() < whole.len().min(3) {
                    break envelopes.finish();
                }
                self.skipped.push(header.stream);
                envelopes.skip();
                continue;
            }
            let Some(body) = envelopes.body()? else { break envelopes.finish() };
            if act == Act::Hold {
                break envelopes.hold();
            }
            self.found.push((header.stream, body.to_vec()));
            if let Some((_, lz4)) = self.switch.take_if(|(stream, _)| *stream == header.stream) {
                envelopes.start_segments(lz4);
            }
        };
        self.unread.drain(..used);
        self.reader = reader;
        Ok(())
    }

    fn handle(&mut self, data: &[u8]) -> Result<(), FrameError> {
        self.receive(data, || Act::Handle)
    }

    fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.reader.carried_bytes() == 0 && self.reader.skip == 0
    }
}

fn expected(lengths: &[usize]) -> Vec<Found> {
    lengths
        .iter()
        .enumerate()
        .map(|(stream, length)| (stream as i16, body(stream as i16, *length)))
        .collect()
}

fn in_segments(envelopes: &[Vec<u8>], lz4: bool) -> Vec<u8> {
    let (mut out, mut writer) = (Vec::new(), SegmentWriter::new(lz4));
    for envelope in envelopes {
        let (header, body) = envelope.split_first_chunk::<HEADER_BYTES>().unwrap();
        writer.push(&mut out, header, body);
    }
    writer.finish(&mut out);
    out
}

#[test]
fn a_whole_envelope_is_borrowed_from_what_was_received() {
    for data in [envelope(1, 100), segment_of(&envelope(1, 100), true, false)] {
        let mut reader = EnvelopeReader::default();
        if data.len() > HEADER_BYTES + 100 {
            reader.start_segments(false);
        }
        let mut scratch = Vec::new();
        let mut envelopes = reader.read(&data, &mut scratch);
        assert_eq!(envelopes.header().unwrap().unwrap().length, 100);
        let found = envelopes.body().unwrap().unwrap();
        assert_eq!(found, body(1, 100));
        assert!(data.as_ptr_range().contains(&found.as_ptr()));
        // A second call returns the same body.
        assert_eq!(envelopes.body().unwrap().unwrap(), body(1, 100));
        assert_eq!(envelopes.header(), Ok(None));
        assert_eq!(envelopes.finish(), data.len());
        assert_eq!((reader.held_bytes(), scratch.capacity()), (0, 0));
    }
}

#[test]
fn a_header_is_there_before_its_body() {
    let whole = envelope(3, 10);
    let mut connection = Connection::default();
    let mut envelopes = connection.reader.read(&whole[..12], &mut connection.scratch);
    assert_eq!(envelopes.header().unwrap().map(|header| header.length), Some(10));
    assert_eq!(envelopes.body(), Ok(None));
    assert_eq!(envelopes.start_of_body(2), Ok(&whole[9..12]));
    assert_eq!(envelopes.next(9, None), Err(FrameError::EnvelopeTooLarge { claimed: 10, max: 9 }));
    assert_eq!(envelopes.next(10, None), Ok(None));
    assert_eq!(envelopes.finish(), 0);
}

/// An envelope of v4 whose body is compressed.
fn compressed(stream: i16, algorithm: Algorithm, length: usize) -> Vec<u8> {
    let mut plain = Vec::new();
    assert!(Compressor::new().compress(algorithm, &body(stream, length), &mut plain));
    let header = Header { flags: flag::COMPRESSION, ..Header::request(4, stream, opcode::QUERY) };
    [&Header { length: plain.len() as u32, ..header }.to_bytes()[..], &plain].concat()
}

#[test]
fn a_compressed_body_comes_decompressed_and_others_are_still_borrowed() {
    for algorithm in [Algorithm::Lz4, Algorithm::Snappy] {
        let data = [compressed(0, algorithm, 500), envelope(1, 40), compressed(2, algorithm, 300)]
            .concat();
        let (mut reader, mut scratch) = (EnvelopeReader::default(), Vec::new());
        for cut in 0..=data.len() {
            let (mut start, mut found) = (0, Vec::new());
            for end in [cut, data.len()] {
                let mut envelopes = reader.read(&data[start..end], &mut scratch);
                while let Some((header, body)) = envelopes.next(500, Some(algorithm)).unwrap() {
                    let borrowed = data.as_ptr_range().contains(&body.as_ptr());
                    assert_eq!(borrowed, header.flags & flag::COMPRESSION == 0);
                    found.push((header.stream, body.to_vec()));
                }
                start += envelopes.finish();
            }
            assert_eq!(
                found,
                [(0, body(0, 500)), (1, body(1, 40)), (2, body(2, 300))],
                "cut at {cut}"
            );
            assert_eq!((start, reader.held_bytes()), (data.len(), 0));
        }
    }
}

#[test]
fn a_compressed_body_that_is_held_comes_again() {
    let data = compressed(0, Algorithm::Lz4, 500);
    let (mut reader, mut scratch) = (EnvelopeReader::default(), Vec::new());
    for _ in 0..2 {
        let mut envelopes = reader.read(&data, &mut scratch);
        assert_eq!(envelopes.next(500, Some(Algorithm::Lz4)).unwrap().unwrap().1, body(0, 500));
        assert_eq!(envelopes.hold(), 0);
    }
}

#[test]
fn a_compressed_body_is_refused_by_what_it_claims() {
    let next = |data: &[u8], bytes_max, agreed| {
        let mut scratch = Vec::new();
        let found = EnvelopeReader::default()
            .read(data, &mut scratch)
            .next(bytes_max, agreed)
            .map(|found| found.is_some());
        (found, scratch.capacity())
    };
    let (lz4, too_large) =
        (Some(Algorithm::Lz4), CompressionError::TooLarge { claimed: 500, max: 499 });
    let good = compressed(0, Algorithm::Lz4, 500);
    assert_eq!(next(&good, 500, None), (Err(FrameError::CompressionNotAgreed), 0));
    assert_eq!(next(&good, 499, lz4), (Err(FrameError::Body(too_large)), 0));
    assert_eq!(next(&good, 500, lz4).0, Ok(true));
    let mut damaged = good.clone();
    damaged.truncate(good.len() - 1);
    damaged[8] -= 1;
    assert!(matches!(
        next(&damaged, 500, lz4).0,
        Err(FrameError::Body(CompressionError::Damaged(_)))
    ));
    // Version 5 ignores the flag.
    let mut ignored = good;
    ignored[0] = 5;
    assert_eq!(next(&ignored, 500, None), (Ok(true), 0));
}

#[test]
fn a_length_that_is_too_long_is_refused_before_anything_is_kept() {
    let header = Header { length: 0x7F00_0000, ..Header::request(5, 0, opcode::QUERY) }.to_bytes();
    for (data, segments) in [(header.to_vec(), false), (segment_of(&header, false, false), true)] {
        let (mut reader, mut scratch) = (EnvelopeReader::default(), Vec::new());
        if segments {
            reader.start_segments(false);
        }
        let error = reader.read(&data, &mut scratch).next(1 << 20, None).unwrap_err();
        assert_eq!(error, FrameError::EnvelopeTooLarge { claimed: 0x7F00_0000, max: 1 << 20 });
        assert_eq!((reader.held_bytes(), scratch.capacity()), (0, 0));
    }
}

#[test]
fn a_reader_is_small() {
    assert!(size_of::<EnvelopeReader>() <= 24);
}

#[test]
fn a_stream_cut_in_two_at_every_byte() {
    let lengths = [0, 1, 40, 300, 0, 7];
    let envelopes = envelopes(&lengths);
    let startup = envelope(-1, 20);
    let cut: Vec<u8> =
        envelopes.concat().chunks(50).flat_map(|part| segment_of(part, false, true)).collect();
    let mut streams =
        vec![(envelopes.concat(), None), ([startup.clone(), cut].concat(), Some((-1, true)))];
    for lz4 in [false, true] {
        streams.push(([startup.clone(), in_segments(&envelopes, lz4)].concat(), Some((-1, lz4))));
    }
    for (bytes, switch) in streams {
        for at in 0..=bytes.len() {
            let mut connection = Connection { switch, ..Connection::default() };
            connection.handle(&bytes[..at]).unwrap();
            connection.handle(&bytes[at..]).unwrap();
            connection.found.retain(|(stream, _)| *stream >= 0);
            assert_eq!(connection.found, expected(&lengths), "cut at {at}");
            assert!(connection.is_empty());
        }
    }
}

#[test]
fn held_bytes_stay_and_later_segments_wait_in_place() {
    for lz4 in [false, true] {
        let first: Vec<u8> = envelopes(&[30, 30, 30]).concat();
        let bytes =
            [segment_of(&first, true, lz4), segment_of(&envelope(3, 30), true, lz4)].concat();
        let mut connection = Connection::segmented(lz4);
        for stream in 0..4 {
            for act in [Act::StopBefore, Act::StopAtHeader, Act::Hold] {
                let data = if connection.found.is_empty() && act == Act::StopBefore {
                    &bytes[..]
                } else {
                    &[]
                };
                connection.receive(data, || act).unwrap();
                assert_eq!(connection.found.len(), stream, "{act:?}");
            }
            let mut acts = [Act::Handle, Act::Hold].into_iter();
            connection.receive(&[], || acts.next().unwrap_or(Act::StopBefore)).unwrap();
            assert_eq!(connection.found.len(), stream + 1);
        }
        assert_eq!(connection.found, expected(&[30; 4]));
        assert!(connection.is_empty());
        assert_eq!(connection.reader.held_bytes(), 0);
    }
}

#[test]
fn before_a_segment_is_asked_for_it_is_not_looked_at() {
    let mut damaged = segment_of(&envelope(1, 30), true, false);
    damaged[0] ^= 1;
    let bytes = [segment_of(&envelope(0, 30), true, false), damaged].concat();
    let mut connection = Connection::segmented(false);
    let mut acts = [Act::Handle, Act::StopBefore].into_iter();
    connection.receive(&bytes, || acts.next().unwrap()).unwrap();
    assert_eq!(connection.found, expected(&[30]));
    assert!(matches!(connection.handle(&[]), Err(FrameError::HeaderCrc { .. })));
}

#[test]
fn a_long_message_is_skipped_as_it_comes_and_never_kept() {
    let lengths = [10, 500_000, 10];
    for (bytes, segments) in [
        (envelopes(&lengths).concat(), None),
        (in_segments(&envelopes(&lengths), true), Some(true)),
    ] {
        let mut connection = segments.map_or_else(Connection::default, Connection::segmented);
        connection.skip = vec![1];
        for piece in bytes.chunks(1000) {
            connection.handle(piece).unwrap();
            assert!(connection.reader.held_bytes() < 1000);
        }
        assert_eq!(connection.skipped, [1]);
        assert_eq!(connection.found.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), [0, 2]);
        assert!(connection.is_empty());
    }
}

#[test]
fn a_length_of_four_gigabytes_is_skipped_too() {
    let header = Header { length: u32::MAX, ..Header::request(4, 1, opcode::QUERY) };
    let data = [&header.to_bytes()[..], &[0; 100]].concat();
    let (mut reader, mut scratch) = (EnvelopeReader::default(), Vec::new());
    let mut envelopes = reader.read(&data, &mut scratch);
    assert!(envelopes.header().unwrap().is_some());
    envelopes.skip();
    assert_eq!(envelopes.header(), Ok(None));
    assert_eq!(envelopes.finish(), data.len());
    assert_eq!(reader.skip, u32::MAX - 100);
}

#[test]
fn a_self_contained_segment_ends_with_an_envelope() {
    let (whole, next) = (envelope(0, 30), envelope(1, 30));
    let late = [&whole[..], &next[..20]].concat();
    for bytes in [&late[..], &whole[..5]] {
        let mut connection = Connection::segmented(false);
        assert_eq!(
            connection.handle(&segment_of(bytes, true, false)),
            Err(FrameError::PartialEnvelope)
        );
    }
    // A hold in the middle loses no information.
    let mut connection = Connection::segmented(false);
    let mut acts = [Act::Handle, Act::StopBefore].into_iter();
    connection.receive(&segment_of(&late, true, false), || acts.next().unwrap()).unwrap();
    assert_eq!(connection.handle(&[]), Err(FrameError::PartialEnvelope));
}

/// A self-contained segment holds whole envelopes, so it continues no earlier one.
#[test]
fn a_self_contained_segment_is_no_part_of_an_envelope() {
    let (long, other) = (envelope(0, 40), envelope(1, 100));
    for lz4 in [false, true] {
        for part in [1, HEADER_BYTES, 30] {
            let bytes = [segment_of(&long[..part], false, lz4), segment_of(&other, true, lz4)];
            for pieces in [vec![bytes.concat()], bytes.to_vec()] {
                for skip in [vec![], vec![0]] {
                    let mut connection = Connection { skip, ..Connection::segmented(lz4) };
                    let outcome = pieces.iter().try_for_each(|piece| connection.handle(piece));
                    assert_eq!(outcome, Err(FrameError::InterruptedEnvelope), "{part}");
                    assert_eq!(connection.found, []);
                }
            }
        }
    }
    // A discarded envelope also ends with its segment.
    let bytes =
        [segment_of(&long[..30], true, false), segment_of(&long[30..], false, false)].concat();
    let mut connection = Connection { skip: vec![0], ..Connection::segmented(false) };
    assert_eq!(connection.handle(&bytes), Err(FrameError::PartialEnvelope));
}

#[test]
fn damaged_segments_are_errors() {
    let good = segment_of(&envelope(0, 300), true, true);
    for at in [0, 7, 20, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert!(Connection::segmented(true).handle(&bytes).is_err());
    }
}

#[test]
fn memory_is_given_back_unless_it_is_to_be_kept() {
    let bytes = in_segments(&[envelope(0, 200_000)], false);
    for (keep, held) in [(0, false), (100_000, false), (1 << 20, true)] {
        let mut connection =
            Connection { reader: EnvelopeReader::keeping(keep), ..Connection::default() };
        connection.reader.start_segments(false);
        let (early, late) = bytes.split_at(150_000);
        connection.handle(early).unwrap();
        assert_eq!(connection.reader.carried_bytes(), PAYLOAD_BYTES_MAX);
        assert!(connection.reader.held_bytes() < 2 * early.len());
        connection.handle(late).unwrap();
        assert_eq!(connection.found, expected(&[200_000]));
        assert!(connection.is_empty());
        assert_eq!(connection.reader.held_bytes() > 0, held, "keep {keep}");
    }
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![10 => 0..20_usize, 5 => 0..2000_usize, 1 => PAYLOAD_BYTES_MAX - 20..2 * PAYLOAD_BYTES_MAX + 20]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![6 => Just(Act::Handle), 1 => Just(Act::StopBefore), 1 => Just(Act::StopAtHeader), 1 => Just(Act::Hold)]
}

/// Segments with parts of the given sizes, cut regardless of envelope boundaries.
fn cut_anyhow(bytes: &[u8], sizes: &[usize], lz4: bool) -> Vec<u8> {
    let (mut out, mut left, mut sizes) = (Vec::new(), bytes, sizes.iter().cycle());
    while !left.is_empty() {
        let (part, rest) = left.split_at((*sizes.next().unwrap()).min(left.len()));
        out.extend(segment_of(part, false, lz4));
        left = rest;
    }
    out
}

fn pieces(mut bytes: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let (mut pieces, mut sizes) = (Vec::new(), sizes.iter().cycle());
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at((*sizes.next().unwrap()).min(bytes.len()));
        pieces.push(piece.to_vec());
        bytes = rest;
    }
    pieces
}

fn piece_size() -> impl Strategy<Value = usize> {
    prop_oneof![1..30_usize, 500..70_000_usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_stream_in_any_pieces(
        lengths in vec(length(), 1..20),
        switch in proptest::option::of((0..10_i16, any::<bool>())),
        cut in proptest::option::of(vec(prop_oneof![0..30_usize, 5000..PAYLOAD_BYTES_MAX], 1..10)),
        sizes in vec(piece_size(), 1..20),
        acts in vec(act(), 1..50),
        skip in vec(0..20_i16, 0..4),
    ) {
        // Cuts of zero bytes only would never end.
        let cut = cut.filter(|sizes| sizes.iter().any(|size| *size > 0));
        let sent = envelopes(&lengths);
        let bare = switch.map_or(sent.len(), |(after, _)| sent.len().min(after as usize + 1));
        let mut bytes = sent[..bare].concat();
        if let Some((_, lz4)) = switch {
            match &cut {
                Some(sizes) => bytes.extend(cut_anyhow(&sent[bare..].concat(), sizes, lz4)),
                None => bytes.extend(in_segments(&sent[bare..], lz4)),
            }
        }
        let pieces = pieces(&bytes, &sizes);
        let skip: Vec<i16> = skip.into_iter().filter(|skip| switch.is_none_or(|(after, _)| *skip != after)).collect();
        let mut connection = Connection { switch, skip: skip.clone(), ..Connection::default() };
        let mut acts = acts.into_iter().chain([Act::Handle]).cycle();
        for piece in &pieces {
            connection.receive(piece, || acts.next().unwrap()).unwrap();
        }
        // Held envelopes come without new bytes.
        connection.handle(&[]).unwrap();
        let mut all = expected(&lengths);
        let (skipped, expected): (Vec<_>, Vec<_>) = all.drain(..).partition(|(stream, _)| skip.contains(stream));
        prop_assert!(connection.found == expected);
        prop_assert!(connection.skipped.iter().eq(skipped.iter().map(|(stream, _)| stream)));
        prop_assert!(connection.is_empty());
        prop_assert_eq!(connection.reader.held_bytes(), 0);
    }

    #[test]
    fn any_bytes_at_all(bytes in vec(any::<u8>(), 0..2000), size in 1..100_usize, segments: Option<bool>) {
        let mut connection = segments.map_or_else(Connection::default, Connection::segmented);
        for piece in bytes.chunks(size) {
            if connection.handle(piece).is_err() {
                break;
            }
        }
    }
}
