//! The reader of envelopes. The first byte selects the framing, the second the cuts of received
//! bytes and segments and the places where the reader stops; the rest are envelopes, or arbitrary
//! bytes.

use shunt_wire::cql::envelope::{HEADER_BYTES, Header};
use shunt_wire::cql::reader::EnvelopeReader;

use crate::segments::{crc24, crc32};

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some(([mode, seed], rest)) = data.split_first_chunk::<2>() else { return };
    let cuts = Cuts(u64::from(*seed) | 1);
    let lz4 = mode & 1 == 1;
    let mut connection = Connection { cuts, ..Connection::default() };
    match mode >> 1 & 3 {
        0 => connection.finds(rest, &expected(rest)),
        1 => {
            // Claimed segments: whatever is found, nothing panics.
            connection.reader.start_segments(lz4);
            connection.receive_all(rest);
        }
        2 => {
            connection.reader.start_segments(lz4);
            let segments = segments(rest, connection.cuts, lz4);
            connection.finds(&segments, &expected(rest));
        }
        _ => {
            connection.switch = Some(lz4);
            let first = Header::decode(rest)
                .map_or(rest.len(), |header| HEADER_BYTES + header.length as usize);
            let (first, others) = rest.split_at(first.min(rest.len()));
            let bytes = [first, &segments(others, connection.cuts, lz4)].concat();
            connection.finds(&bytes, &expected(rest));
        }
    }
}

/// Draws the places of cuts; deterministic.
#[derive(Clone, Copy, Debug, Default)]
struct Cuts(u64);

impl Cuts {
    /// A length of 1 to 64, rarely one that takes everything.
    fn length(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let drawn = (self.0 >> 33) as usize;
        if drawn.is_multiple_of(13) { usize::MAX } else { 1 + drawn % 64 }
    }
}

fn pieces(mut bytes: &[u8], mut cuts: Cuts) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        // Less than a segment holds.
        let (piece, rest) = bytes.split_at(cuts.length().min(bytes.len()).min(100_000));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// `bytes` in segments cut anywhere.
fn segments(bytes: &[u8], cuts: Cuts, lz4: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for part in pieces(bytes, cuts) {
        // With LZ4 an uncompressed length of 0 means a plain payload.
        let lengths = &(part.len() as u64).to_le_bytes()[..if lz4 { 5 } else { 3 }];
        out.extend_from_slice(lengths);
        out.extend_from_slice(&crc24(lengths).to_le_bytes()[..3]);
        out.extend_from_slice(part);
        out.extend_from_slice(&crc32(part).to_le_bytes());
    }
    out
}

/// Envelopes of these streams are discarded, except the first.
fn is_skipped(number: usize, header: &Header) -> bool {
    number > 0 && header.stream % 4 == 3
}

/// The whole envelopes in `bytes` without the discarded ones.
fn expected(mut bytes: &[u8]) -> Vec<(Header, &[u8])> {
    let mut found = Vec::new();
    for number in 0.. {
        let Some(header) = Header::decode(bytes) else { break };
        let Some((body, rest)) = bytes[HEADER_BYTES..].split_at_checked(header.length as usize)
        else {
            break;
        };
        if !is_skipped(number, &header) {
            found.push((header, body));
        }
        bytes = rest;
    }
    found
}

#[derive(Debug, Default)]
struct Connection {
    reader: EnvelopeReader,
    scratch: Vec<u8>,
    unread: Vec<u8>,
    found: Vec<(Header, Vec<u8>)>,
    /// Number of envelopes seen, including discarded ones.
    seen: usize,
    /// `Some`: segments start after the first envelope, compressed if true.
    switch: Option<bool>,
    cuts: Cuts,
}

impl Connection {
    fn finds(&mut self, bytes: &[u8], expected: &[(Header, &[u8])]) {
        assert!(self.receive_all(bytes), "an error in right segments");
        assert!(
            self.found
                .iter()
                .map(|(header, body)| (*header, &body[..]))
                .eq(expected.iter().copied())
        );
    }

    /// Returns false if the bytes were refused.
    fn receive_all(&mut self, bytes: &[u8]) -> bool {
        for piece in pieces(bytes, self.cuts) {
            self.unread.extend_from_slice(piece);
            if !self.receive() {
                return false;
            }
        }
        // Held envelopes come without new bytes.
        self.cuts = Cuts::default();
        self.receive()
    }

    fn receive(&mut self) -> bool {
        let mut reader = std::mem::take(&mut self.reader);
        let mut envelopes = reader.read(&self.unread, &mut self.scratch);
        let used = loop {
            let Ok(header) = envelopes.header() else { return false };
            let Some(header) = header else { break envelopes.finish() };
            if is_skipped(self.seen, &header) {
                self.seen += 1;
                envelopes.skip();
                continue;
            }
            let Ok(body) = envelopes.body() else { return false };
            let Some(body) = body else { break envelopes.finish() };
            assert_eq!(body.len(), header.length as usize);
            if self.cuts.0 != 0 && self.cuts.length().is_multiple_of(5) {
                break envelopes.hold();
            }
            self.found.push((header, body.to_vec()));
            self.seen += 1;
            if let Some(lz4) = self.switch.take() {
                envelopes.start_segments(lz4);
            }
        };
        self.unread.drain(..used);
        self.reader = reader;
        true
    }
}
