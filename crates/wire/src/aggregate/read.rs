//! Reading an aggregated frame.

use super::ENTRY_HEADER_BYTES;
use crate::cql::message::primitive::Reader;
use crate::error::{DecodeError, Problem};

/// One query or answer of an aggregated frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<'a> {
    /// The link's stream id of the query.
    pub stream: i16,
    /// Client that sent the query; 0 only from a misbehaving peer.
    pub client_id: u32,
    /// Protocol version of the body, without a direction bit.
    pub version: u8,
    /// Header flags as in an envelope.
    pub flags: u8,
    /// Opcode as in an envelope.
    pub opcode: u8,
    /// The body.
    pub body: &'a [u8],
    /// Offset of `body` in the frame's body.
    pub offset: usize,
}

/// Iterator over the entries of a complete body. Ends after the first error.
#[derive(Clone, Debug)]
pub struct AggregateReader<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> AggregateReader<'a> {
    /// Reads the count at the start of `body`.
    ///
    /// # Errors
    /// If the count is missing, negative, or larger than the body can hold.
    #[inline]
    pub fn new(body: &'a [u8]) -> Result<AggregateReader<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        let left = reader.count("aggregate count")?;
        let max = reader.rest().len() / ENTRY_HEADER_BYTES;
        if left > max {
            let problem = Problem::TooLarge { found: left as u64, max: max as u64 };
            return Err(DecodeError { problem, field: "aggregate count", offset: 0 });
        }
        Ok(AggregateReader { reader, left })
    }

    /// Returns the stream of a body's only entry, read from the body's first bytes, or `None` if
    /// the body does not hold exactly one entry. Meant for bodies too long to be read whole.
    ///
    /// # Errors
    /// If `start` is too short to tell.
    pub fn only_stream(start: &[u8]) -> Result<Option<i16>, DecodeError> {
        let mut reader = Reader::new(start);
        let count = reader.int("aggregate count")?;
        let stream = reader.short("entry stream")? as i16;
        Ok((count == 1).then_some(stream))
    }

    /// Number of entries not yet read.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Bytes of the body read so far.
    pub fn position(&self) -> usize {
        self.reader.position()
    }

    #[inline]
    fn entry(&mut self) -> Result<Entry<'a>, DecodeError> {
        let reader = &mut self.reader;
        let stream = reader.short("entry stream")? as i16;
        let client_id = reader.int("entry client id")? as u32;
        let version = reader.byte("entry version")?;
        let flags = reader.byte("entry flags")?;
        let opcode = reader.byte("entry opcode")?;
        let length = reader.count("entry length")?;
        let offset = reader.position();
        let body = reader.take(length, "entry body")?;
        Ok(Entry { stream, client_id, version, flags, opcode, body, offset })
    }
}

impl<'a> Iterator for AggregateReader<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.entry();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}
