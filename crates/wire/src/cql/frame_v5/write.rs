//! Writer of segments: takes envelopes one by one and appends segments to an output buffer.

use std::cell::RefCell;

use super::{PAYLOAD_BYTES_MAX, SegmentHeader, crc, header_bytes};
use crate::cql::compression::Compressor;
use crate::cql::envelope::HEADER_BYTES;

/// Shorter payloads are sent uncompressed: compression would cost more than it saves.
const COMPRESSED_BYTES_MIN: usize = 128;

thread_local! {
    /// The compressor's tables and its result buffer, about 200 KB. A thread serves thousands of
    /// connections and completes one segment at a time, so the tables are per thread and an idle
    /// connection costs nothing.
    static LZ4: RefCell<(Compressor, Vec<u8>)> = RefCell::new((Compressor::new(), Vec::new()));
}

/// Packs envelopes into segments at the end of an output buffer, as many as fit into each.
///
/// While a segment is open, nothing else may be appended to the buffer, and the buffer may not be
/// sent or replaced. [`SegmentWriter::finish`] therefore comes before the flush. The writer
/// allocates nothing per envelope or segment once the buffers have grown and, for LZ4, the thread
/// has its tables.
#[derive(Debug)]
pub struct SegmentWriter {
    lz4: bool,
    open: Option<Open>,
}

/// The segment being filled: its start, and the end of the buffer after the last push.
#[derive(Clone, Copy, Debug)]
struct Open {
    start: usize,
    end: usize,
}

impl SegmentWriter {
    /// A writer for a connection whose STARTUP agreed on LZ4 or on no compression.
    pub fn new(lz4: bool) -> SegmentWriter {
        SegmentWriter { lz4, open: None }
    }

    /// Appends an envelope to the segment at the end of `out`, opening and closing segments as
    /// needed. An envelope longer than one payload gets segments to itself.
    ///
    /// Returns the offset of the body in `out` if the body is contiguous and will stay
    /// uncompressed, else `usize::MAX`. `header` holds the length of `body`; the writer does not
    /// check it.
    #[inline]
    pub fn push(&mut self, out: &mut Vec<u8>, header: &[u8; HEADER_BYTES], body: &[u8]) -> usize {
        let envelope_len = HEADER_BYTES + body.len();
        if envelope_len > PAYLOAD_BYTES_MAX {
            self.finish(out);
            self.split(out, header, body);
            return usize::MAX;
        }
        let open = self.open_with_room(out, envelope_len);
        out.extend_from_slice(header);
        let body_at = out.len();
        out.extend_from_slice(body);
        self.open = Some(Open { end: out.len(), ..open });
        if self.lz4 { usize::MAX } else { body_at }
    }

    /// Completes the open segment, if any.
    #[inline]
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(open) = self.take_open(out) {
            self.close(out, open.start, true);
        }
    }

    /// True if segments may be compressed.
    pub fn is_lz4(&self) -> bool {
        self.lz4
    }

    /// True if a segment is open, so that [`SegmentWriter::finish`] has something to do.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the open segment after closing one without room for `envelope_len` bytes.
    fn open_with_room(&mut self, out: &mut Vec<u8>, envelope_len: usize) -> Open {
        if let Some(open) = self.take_open(out) {
            let payload_len = open.end - open.start - header_bytes(self.lz4);
            if payload_len + envelope_len <= PAYLOAD_BYTES_MAX {
                return open;
            }
            self.close(out, open.start, true);
        }
        let start = out.len();
        out.resize(start + header_bytes(self.lz4), 0);
        Open { start, end: out.len() }
    }

    /// Takes the open segment, if any. Returns `None` too if the buffer changed since the push: the
    /// segment's bytes are gone, and writing would damage other data.
    fn take_open(&mut self, out: &[u8]) -> Option<Open> {
        let open = self.open.take()?;
        debug_assert_eq!(open.end, out.len(), "the buffer was changed while a segment was open");
        (open.end == out.len()).then_some(open)
    }

    /// Appends an envelope as segments that are not self-contained.
    fn split(&self, out: &mut Vec<u8>, header: &[u8; HEADER_BYTES], body: &[u8]) {
        let (first, rest) = body.split_at(body.len().min(PAYLOAD_BYTES_MAX - HEADER_BYTES));
        self.part(out, header, first);
        for part in rest.chunks(PAYLOAD_BYTES_MAX) {
            self.part(out, &[], part);
        }
    }

    fn part(&self, out: &mut Vec<u8>, header: &[u8], body: &[u8]) {
        let start = out.len();
        out.resize(start + header_bytes(self.lz4), 0);
        out.extend_from_slice(header);
        out.extend_from_slice(body);
        self.close(out, start, false);
    }

    /// Turns the bytes behind the gap at `start` into the payload of a segment.
    fn close(&self, out: &mut Vec<u8>, start: usize, self_contained: bool) {
        let payload_at = start + header_bytes(self.lz4);
        let uncompressed_len = if self.lz4 { compress_from(out, payload_at) } else { 0 };
        let Some((room, payload)) =
            out.get_mut(start..).and_then(|bytes| bytes.split_at_mut_checked(payload_at - start))
        else {
            return;
        };
        SegmentHeader { payload_len: payload.len(), uncompressed_len, self_contained }
            .encode(self.lz4, room);
        let crc = crc::crc32(payload);
        out.extend_from_slice(&crc.to_le_bytes());
    }
}

/// Compresses the end of `out` in place. Returns its uncompressed length, or 0 if compression does
/// not shorten it and the bytes stay unchanged.
fn compress_from(out: &mut Vec<u8>, payload_at: usize) -> usize {
    let payload_len = out.len().saturating_sub(payload_at);
    if payload_len < COMPRESSED_BYTES_MIN {
        return 0;
    }
    LZ4.with_borrow_mut(|(compressor, compressed)| {
        compressed.clear();
        match compressor.lz4_block(out.get(payload_at..).unwrap_or_default(), compressed) {
            Some(written) if written < payload_len => {
                out.truncate(payload_at);
                out.extend_from_slice(compressed);
                payload_len
            }
            _ => 0,
        }
    })
}
