//! Writing aggregated frames in place, at the end of an output buffer.

use super::{COUNT_BYTES, ENTRY_HEADER_BYTES, HEADER_VERSION, Offer};
use crate::cql::envelope::{HEADER_BYTES, Header, opcode};

/// Size limits of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Most entries in a frame; at least 1.
    pub count_max: u32,
    /// Most bytes in the body of a frame.
    pub bytes_max: u32,
}

impl Limits {
    /// True if a frame has room for an entry with a body of `body_len` bytes. An entry without room
    /// must travel as an ordinary envelope.
    #[inline]
    pub fn fits(&self, body_len: usize) -> bool {
        COUNT_BYTES + ENTRY_HEADER_BYTES + body_len <= self.bytes_max as usize
    }
}

impl From<Offer> for Limits {
    fn from(offer: Offer) -> Limits {
        Limits { count_max: offer.count_max, bytes_max: offer.bytes_max }
    }
}

/// Packs queries, or answers, into aggregated frames at the end of an output buffer.
///
/// While a frame is open, nothing else may be appended to the buffer, and the buffer may not be
/// sent or replaced. [`AggregateWriter::finish`] therefore comes before an ordinary envelope and
/// before the flush. Allocates no memory besides the output.
#[derive(Debug)]
pub struct AggregateWriter {
    limits: Limits,
    response: bool,
    open: Option<Open>,
    frames: u32,
}

/// The frame being filled: its start, the end of the buffer after the last push, and the number of
/// entries.
#[derive(Clone, Copy, Debug)]
struct Open {
    start: usize,
    end: usize,
    count: u32,
}

impl AggregateWriter {
    /// A writer of queries within the limits of a node.
    pub fn new(limits: Limits) -> AggregateWriter {
        AggregateWriter { limits, response: false, open: None, frames: 0 }
    }

    /// A writer of answers.
    pub fn responses(limits: Limits) -> AggregateWriter {
        AggregateWriter { response: true, ..AggregateWriter::new(limits) }
    }

    /// The limits of a frame.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// True if a frame is open, so that [`AggregateWriter::finish`] has something to do.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Entries in the open frame.
    pub fn count(&self) -> u32 {
        self.open.map_or(0, |open| open.count)
    }

    /// Appends an entry to the frame at the end of `out` and returns where in `out` its body
    /// starts. If the open frame has no room, the writer completes it and opens the next. An entry
    /// that [`Limits::fits`] refuses gets a separate frame above the limit.
    #[inline]
    #[allow(
        clippy::too_many_arguments,
        reason = "the fields of an entry, in the order of the wire"
    )]
    pub fn push(
        &mut self,
        out: &mut Vec<u8>,
        stream: i16,
        client_id: u32,
        version: u8,
        flags: u8,
        opcode: u8,
        body: &[u8],
    ) -> usize {
        let open = self.open_with_room(out, body.len());
        out.extend_from_slice(&stream.to_be_bytes());
        out.extend_from_slice(&client_id.to_be_bytes());
        out.extend_from_slice(&[version, flags, opcode]);
        // Envelopes are shorter than 2^28 bytes, so every body length fits.
        let length = i32::try_from(body.len()).unwrap_or(i32::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        let body_at = out.len();
        out.extend_from_slice(body.get(..length as usize).unwrap_or(body));
        self.open = Some(Open { end: out.len(), count: open.count + 1, ..open });
        body_at
    }

    /// Appends the entry that tells the node to forget a client.
    pub fn push_client_gone(&mut self, out: &mut Vec<u8>, client_id: u32) {
        self.push(out, 0, client_id, HEADER_VERSION, 0, opcode::CLIENT_GONE, &[]);
    }

    /// True if a frame was completed since the last call of [`AggregateWriter::take_frames`].
    pub fn has_frames(&self) -> bool {
        self.frames > 0
    }

    /// Returns the number of frames completed since the last call.
    pub fn take_frames(&mut self) -> u32 {
        std::mem::take(&mut self.frames)
    }

    /// Completes the open frame, if any.
    #[inline]
    pub fn finish(&mut self, out: &mut [u8]) {
        if let Some(open) = self.take_open(out) {
            self.close(out, open);
        }
    }

    fn open_with_room(&mut self, out: &mut Vec<u8>, body_len: usize) -> Open {
        if let Some(open) = self.take_open(out) {
            let bytes = open.end - open.start - HEADER_BYTES + ENTRY_HEADER_BYTES + body_len;
            if open.count < self.limits.count_max && bytes <= self.limits.bytes_max as usize {
                return open;
            }
            self.close(out, open);
        }
        let start = out.len();
        out.resize(start + HEADER_BYTES + COUNT_BYTES, 0);
        Open { start, end: out.len(), count: 0 }
    }

    /// Takes the open frame, if any. Returns `None` too if the buffer changed since the last push:
    /// the frame's bytes are gone, and writing would damage other data.
    fn take_open(&mut self, out: &[u8]) -> Option<Open> {
        let open = self.open.take()?;
        debug_assert_eq!(open.end, out.len(), "the buffer was changed while a frame was open");
        (open.end == out.len()).then_some(open)
    }

    /// Fills in the header and the count.
    fn close(&mut self, out: &mut [u8], open: Open) {
        self.frames += 1;
        let length = u32::try_from(open.end - open.start - HEADER_BYTES).unwrap_or(u32::MAX);
        let header = Header {
            version: HEADER_VERSION,
            response: self.response,
            flags: 0,
            stream: 0,
            opcode: opcode::AGGREGATE,
            length,
        };
        let Some(room) = out.get_mut(open.start..open.start + HEADER_BYTES + COUNT_BYTES) else {
            return;
        };
        let (header_room, count_room) = room.split_at_mut(HEADER_BYTES);
        header_room.copy_from_slice(&header.to_bytes());
        count_room.copy_from_slice(&open.count.to_be_bytes());
    }
}
