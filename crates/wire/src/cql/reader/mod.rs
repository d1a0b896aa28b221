//! Reader of envelopes from received bytes, for every side of every connection.
//!
//! A connection owns an [`EnvelopeReader`], the state between two reads. For the duration of one
//! read it lends the state, the received bytes and a buffer of the event loop to [`Envelopes`],
//! which yields envelopes on request. Bare envelopes (v3, v4 and every handshake) and whole
//! envelopes in plain v5 segments come straight from the receive buffer without a copy; compressed
//! ones and those that span several segments come from a buffer.
//!
//! [`Envelopes::next`] also decompresses bodies that are compressed one by one (v3, v4), into the
//! same buffer. The proxy passes most bodies on unchanged and does not use it.
//!
//! The caller pulls. It can judge a header before the body has arrived, stop anywhere and later
//! continue at the same envelope, discard a message while its bytes arrive, and switch to segments
//! in the middle of the received bytes. It takes the reader out of the connection's state first, so
//! that the handler may change that state freely, including closing the connection.
//!
//! ```
//! use shunt_wire::cql::envelope::{Header, opcode};
//! use shunt_wire::cql::frame_v5::FrameError;
//! use shunt_wire::cql::reader::EnvelopeReader;
//!
//! struct Connection {
//!     reader: EnvelopeReader,
//!     body_bytes_max: u32,
//!     is_full: bool,
//!     is_closed: bool,
//! }
//!
//! /// Handles received bytes; returns the number of consumed ones. The rest comes again.
//! fn receive(
//!     connection: &mut Connection,
//!     scratch: &mut Vec<u8>,
//!     data: &[u8],
//! ) -> Result<usize, FrameError> {
//!     let mut reader = std::mem::take(&mut connection.reader);
//!     let mut envelopes = reader.read(data, scratch);
//!     // A connection that must wait is not read: no envelope is parsed in advance.
//!     while !connection.is_full {
//!         let Some(header) = envelopes.header()? else { break };
//!         if header.length > connection.body_bytes_max {
//!             envelopes.skip();
//!             continue;
//!         }
//!         let Some(body) = envelopes.body()? else { break };
//!         handle(connection, &header, body);
//!         if connection.is_closed {
//!             return Ok(data.len());
//!         }
//!         if header.version >= 5 && header.opcode == opcode::STARTUP {
//!             envelopes.start_segments(false);
//!         }
//!     }
//!     // `hold` instead, if the last envelope could not be handled and must come again.
//!     let used = envelopes.finish();
//!     connection.reader = reader;
//!     Ok(used)
//! }
//! # fn handle(_: &mut Connection, _: &Header, _: &[u8]) {}
//! # let reader = EnvelopeReader::default();
//! # let (is_full, is_closed) = (false, false);
//! # let mut connection = Connection { reader, body_bytes_max: 9, is_full, is_closed };
//! # let data = [4, 0, 0, 1, 5, 0, 0, 0, 0, 4];
//! # assert_eq!(receive(&mut connection, &mut Vec::new(), &data), Ok(9));
//! ```
//!
//! Held envelopes come again with another call of the same function, whose `data` may be empty.

#[cfg(test)]
mod tests;

use super::compression::{self, Algorithm};
use super::envelope::{HEADER_BYTES, Header, flag};
use super::frame_v5::{self, FrameError};
use super::writer::EnvelopeWriter;

/// Framing of envelopes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Framing {
    #[default]
    Bare,
    Segments,
    SegmentsLz4,
}

/// State of a connection between two reads. It is small, so that it can move out of a connection's
/// state and back, and owns no memory unless an envelope is in progress in segments.
#[derive(Debug, Default)]
pub struct EnvelopeReader {
    carry: Option<Box<Carry>>,
    /// Bytes still to come of a discarded envelope.
    skip: u32,
    kept_bytes: u32,
    framing: Framing,
}

/// Payloads of consumed segments whose envelopes are not consumed yet.
#[derive(Debug, Default)]
struct Carry {
    bytes: Vec<u8>,
    /// Consumed bytes at its head.
    at: usize,
    /// The last segment in it was self-contained.
    self_contained: bool,
}

impl Carry {
    fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

impl EnvelopeReader {
    /// A reader of bare envelopes that keeps an unused buffer of up to `bytes` for envelopes in
    /// several segments. The default keeps none, which suits many connections.
    pub fn keeping(bytes: u32) -> EnvelopeReader {
        EnvelopeReader { kept_bytes: bytes, ..EnvelopeReader::default() }
    }

    /// Begins to read `data`: the received bytes not consumed so far, oldest first. `scratch` takes
    /// decompressed segments or bodies; its old content is lost.
    #[inline]
    pub fn read<'a>(&'a mut self, data: &'a [u8], scratch: &'a mut Vec<u8>) -> Envelopes<'a> {
        let mut envelopes = Envelopes {
            direct: data,
            at: 0,
            taken: 0,
            bare: self.framing == Framing::Bare,
            place: Place::Received,
            self_contained: false,
            behind: &[],
            received: data.len(),
            skip: self.skip,
            reader: self,
            scratch,
        };
        if !envelopes.bare {
            envelopes.begin_in_segments();
        } else if envelopes.skip > 0 {
            envelopes.skip_on();
        }
        envelopes
    }

    /// Switches to segments for all bytes from now on (v5, section 2.3.1: after the answer to
    /// STARTUP), with LZ4 if STARTUP agreed on it. During a read use [`Envelopes::start_segments`].
    pub fn start_segments(&mut self, lz4: bool) {
        self.framing = if lz4 { Framing::SegmentsLz4 } else { Framing::Segments };
    }

    /// True if envelopes come in segments.
    pub fn is_segmented(&self) -> bool {
        self.framing != Framing::Bare
    }

    /// Bytes of envelopes taken out of their segments and not yet handed out: a partial envelope,
    /// or held ones.
    pub fn carried_bytes(&self) -> usize {
        self.carry.as_ref().map_or(0, |carry| carry.unread().len())
    }

    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.carry.as_ref().map_or(0, |carry| carry.bytes.capacity() + size_of::<Carry>())
    }
}

/// Location of the unread envelopes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// In the received bytes: bare, or the payload of a plain segment.
    Received,
    /// In the scratch: the payload of a compressed segment.
    Scratch,
    /// In the reader's carry.
    Carry,
}

/// One read of a connection: hands out the envelopes in the received bytes.
///
/// Call [`Envelopes::header`] and then [`Envelopes::body`], or [`Envelopes::next`] for both. An
/// envelope is consumed by the call for the next header or by [`Envelopes::finish`]. After an error
/// the connection must be closed; envelopes handed out before it were correct.
#[derive(Debug)]
#[must_use = "finish() says how much of the input is done with"]
pub struct Envelopes<'a> {
    /// The unread bytes while they are in the received bytes: bare, or the payload of a plain
    /// segment.
    direct: &'a [u8],
    /// Start of the unread bytes in the scratch or the carry.
    at: usize,
    /// Length of the envelope whose body was handed out and that is not consumed.
    taken: usize,
    bare: bool,
    place: Place,
    /// The last segment was self-contained: no part of an envelope may be missing at its end.
    self_contained: bool,
    /// The received bytes behind the segments taken so far.
    behind: &'a [u8],
    received: usize,
    /// Bytes still to come of a discarded envelope; if not 0, no bytes are unread.
    skip: u32,
    reader: &'a mut EnvelopeReader,
    scratch: &'a mut Vec<u8>,
}

impl Envelopes<'_> {
    /// The header of the next envelope, whether or not its body has arrived; `None` if the header
    /// is incomplete. The reader does not validate it.
    ///
    /// # Errors
    /// A segment is damaged or ends in the middle of this envelope.
    #[inline(always)]
    pub fn header(&mut self) -> Result<Option<Header>, FrameError> {
        if self.place == Place::Received {
            self.direct = self.direct.get(self.taken..).unwrap_or_default();
            self.taken = 0;
            let header = Header::decode(self.direct);
            if header.is_some() || self.bare {
                return Ok(header);
            }
        }
        self.gather_header()
    }

    /// The body of the envelope whose header was returned last; `None` if it is incomplete.
    ///
    /// # Errors
    /// A segment is damaged or ends in the middle of this envelope.
    #[inline(always)]
    pub fn body(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if self.place == Place::Received {
            let Some((head, rest)) = self.direct.split_first_chunk::<HEADER_BYTES>() else {
                return Ok(None);
            };
            let [.., a, b, c, d] = *head;
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if let Some(body) = rest.get(..length) {
                self.taken = HEADER_BYTES + length;
                return Ok(Some(body));
            }
            if self.bare {
                return Ok(None);
            }
        }
        self.gather_body()
    }

    /// The next whole envelope, if its body has at most `body_bytes_max` bytes. A body compressed
    /// on its own (v3, v4, section 5) is decompressed by the algorithm agreed in STARTUP; its
    /// header stays as received.
    ///
    /// # Errors
    /// The body is longer, or claims to be once decompressed; it is compressed without an agreed
    /// algorithm, or damaged; or a segment is damaged or ends in the middle of the envelope.
    #[inline]
    pub fn next(
        &mut self,
        body_bytes_max: u32,
        agreed: Option<Algorithm>,
    ) -> Result<Option<(Header, &[u8])>, FrameError> {
        let Some(header) = self.header()? else { return Ok(None) };
        if header.length > body_bytes_max {
            return Err(FrameError::EnvelopeTooLarge {
                claimed: header.length,
                max: body_bytes_max,
            });
        }
        // v5, section 2.4.1.2: the flag is "deprecated and ignored".
        let is_compressed =
            header.flags & flag::COMPRESSION != 0 && header.version < 5 && self.bare;
        let body = if is_compressed {
            self.decompressed_body(body_bytes_max, agreed)?
        } else {
            self.body()?
        };
        Ok(body.map(|body| (header, body)))
    }

    /// The bytes that have arrived of the body of the envelope whose header was returned last: at
    /// least `bytes`, unless the body is shorter or more must arrive first.
    ///
    /// # Errors
    /// A segment is damaged or ends in the middle of this envelope.
    pub fn start_of_body(&mut self, bytes: usize) -> Result<&[u8], FrameError> {
        let length = Header::decode(self.unread()).map_or(0, |header| header.length as usize);
        self.gather(HEADER_BYTES + bytes.min(length))?;
        let unread = self.unread();
        let end = unread.len().min(HEADER_BYTES + length);
        Ok(unread.get(HEADER_BYTES..end).unwrap_or_default())
    }

    /// Discards the envelope whose header was returned last: the bytes present now, the rest as it
    /// arrives.
    pub fn skip(&mut self) {
        self.taken = 0;
        let Some(header) = Header::decode(self.unread()) else { return };
        self.advance(HEADER_BYTES);
        self.skip = header.length;
        self.skip_on();
    }

    /// Switches to segments behind the envelope handed out last (v5, section 2.3.1), with LZ4 if
    /// STARTUP agreed on it.
    pub fn start_segments(&mut self, lz4: bool) {
        debug_assert!(self.bare, "segments start once");
        self.reader.start_segments(lz4);
        self.bare = false;
        self.consume();
        self.behind = std::mem::take(&mut self.direct);
    }

    /// Adopts the framing of `writer`: the message that switches one direction of a connection to
    /// segments switches the other too, behind the envelope handed out last. Does nothing before
    /// the switch or after it was adopted.
    #[inline]
    pub fn follow(&mut self, writer: &EnvelopeWriter) {
        if self.bare
            && let Some(lz4) = writer.segments_lz4()
        {
            self.start_segments(lz4);
        }
    }

    /// Ends the read behind the envelope handed out last and returns the number of consumed bytes.
    /// The caller must present the others again at the start of the next read.
    #[inline]
    pub fn finish(&mut self) -> usize {
        self.consume();
        self.hold()
    }

    /// Ends the read in front of the envelope handed out last, so that the next read returns it
    /// again. Returns the number of consumed bytes, like [`Envelopes::finish`].
    #[inline]
    pub fn hold(&mut self) -> usize {
        self.reader.skip = self.skip;
        if self.bare {
            return self.received - self.direct.len();
        }
        self.end_in_segments();
        self.received - self.behind.len()
    }

    /// The available bytes that are not consumed.
    #[inline]
    fn unread(&self) -> &[u8] {
        let buffer = match self.place {
            Place::Received => return self.direct,
            Place::Scratch => &self.scratch[..],
            Place::Carry => self.reader.carry.as_ref().map_or(&[][..], |carry| &carry.bytes),
        };
        buffer.get(self.at..).unwrap_or_default()
    }

    /// Consumes `bytes` of the unread bytes.
    #[inline]
    fn advance(&mut self, bytes: usize) {
        match self.place {
            Place::Received => self.direct = self.direct.get(bytes..).unwrap_or_default(),
            Place::Scratch | Place::Carry => self.at += bytes,
        }
    }

    /// Consumes the envelope whose body was handed out.
    #[inline]
    fn consume(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.advance(taken);
    }

    /// Drops the available bytes of a discarded envelope.
    fn skip_on(&mut self) {
        let skipped = self.unread().len().min(self.skip as usize);
        self.skip -= skipped as u32;
        self.advance(skipped);
    }

    /// Like [`Envelopes::body`] for a bare envelope, into the scratch, which has no other use
    /// before segments start.
    #[inline(never)]
    fn decompressed_body(
        &mut self,
        bytes_max: u32,
        agreed: Option<Algorithm>,
    ) -> Result<Option<&[u8]>, FrameError> {
        let algorithm = agreed.ok_or(FrameError::CompressionNotAgreed)?;
        let Self { direct, taken, scratch, .. } = self;
        let length = Header::decode(direct).map_or(0, |header| header.length as usize);
        let Some(body) = direct.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        scratch.clear();
        compression::decompress(algorithm, body, bytes_max, scratch).map_err(FrameError::Body)?;
        *taken = HEADER_BYTES + length;
        Ok(Some(scratch))
    }

    #[inline(never)]
    fn gather_header(&mut self) -> Result<Option<Header>, FrameError> {
        self.consume();
        let header = Header::decode(self.unread());
        if header.is_some() || !self.gather(HEADER_BYTES)? {
            return Ok(header);
        }
        Ok(Header::decode(self.unread()))
    }

    #[inline(never)]
    fn gather_body(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let unread = self.unread();
        let Some(header) = Header::decode(unread) else { return Ok(None) };
        let whole = HEADER_BYTES + header.length as usize;
        if unread.len() < whole && !self.gather(whole)? {
            return Ok(None);
        }
        self.taken = whole;
        Ok(self.unread().get(HEADER_BYTES..whole))
    }

    /// Takes segments until `bytes` are unread; false if they have not all arrived.
    #[inline(never)]
    fn gather(&mut self, bytes: usize) -> Result<bool, FrameError> {
        loop {
            let unread = self.unread().len();
            if unread >= bytes {
                return Ok(true);
            }
            if self.bare {
                return Ok(false);
            }
            if self.is_within(unread > 0) && self.self_contained {
                return Err(FrameError::PartialEnvelope);
            }
            if !self.next_segment(unread > 0)? {
                return Ok(false);
            }
        }
    }

    /// True if the next segment must continue an envelope: the `unread` one or a discarded one.
    fn is_within(&self, unread: bool) -> bool {
        unread || self.skip > 0
    }

    /// Takes the next segment and appends its payload to the `unread` bytes, if any; false if the
    /// segment is incomplete.
    fn next_segment(&mut self, unread: bool) -> Result<bool, FrameError> {
        let lz4 = self.reader.framing == Framing::SegmentsLz4;
        let Some(segment) = frame_v5::decode(self.behind, lz4)? else { return Ok(false) };
        if self.is_within(unread) && segment.self_contained {
            return Err(FrameError::InterruptedEnvelope);
        }
        self.behind = self.behind.get(segment.consumed..).unwrap_or_default();
        self.self_contained = segment.self_contained;
        if unread {
            segment.append_payload(&mut self.carry_unread().bytes)?;
            return Ok(true);
        }
        self.release_carry();
        if segment.compressed {
            self.scratch.clear();
            segment.append_payload(self.scratch)?;
            (self.place, self.at) = (Place::Scratch, 0);
        } else {
            (self.place, self.direct) = (Place::Received, segment.payload);
        }
        if self.skip > 0 {
            self.skip_on();
        }
        Ok(true)
    }

    /// Moves the unread bytes to the head of the carry.
    fn carry_unread(&mut self) -> &mut Carry {
        let carry = self.reader.carry.get_or_insert_default();
        match self.place {
            Place::Received => carry.bytes.extend_from_slice(self.direct),
            Place::Scratch => {
                carry.bytes.extend_from_slice(self.scratch.get(self.at..).unwrap_or_default())
            }
            Place::Carry => drop(carry.bytes.drain(..self.at.min(carry.bytes.len()))),
        }
        (self.place, self.at) = (Place::Carry, 0);
        carry
    }

    /// Empties the carry, which has no unread bytes; keeps only a small allocation.
    fn release_carry(&mut self) {
        if self.place != Place::Carry {
            return;
        }
        match &mut self.reader.carry {
            Some(carry) if carry.bytes.capacity() <= self.reader.kept_bytes as usize => {
                carry.bytes.clear();
                carry.at = 0;
            }
            carry => *carry = None,
        }
    }

    fn begin_in_segments(&mut self) {
        self.behind = std::mem::take(&mut self.direct);
        if let Some(carry) = &self.reader.carry
            && !carry.unread().is_empty()
        {
            (self.place, self.at) = (Place::Carry, carry.at);
            self.self_contained = carry.self_contained;
        }
    }

    fn end_in_segments(&mut self) {
        if self.unread().is_empty() {
            return self.release_carry();
        }
        // Consumed bytes stay at the head of a carry: many envelopes may be held one by one, and
        // each would move all bytes behind it.
        let (at, self_contained) = (self.at, self.self_contained);
        if self.place == Place::Carry
            && let Some(carry) = &mut self.reader.carry
        {
            (carry.at, carry.self_contained) = (at, self_contained);
        } else {
            self.carry_unread().self_contained = self_contained;
        }
    }
}
