//! Answers of servers: where they end, and the values in the answer to MGET.

use super::{Malformed, length, line, string_end};

/// Finds the end of one answer after the other while they arrive. What was looked at is not looked at again.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// How far it has come within the answer.
    at: usize,
    /// Values that are still to come.
    left: u64,
    bytes_max: usize,
}

impl Scanner {
    /// For answers of at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { at: 0, left: 1, bytes_max }
    }

    /// The length of the answer that `bytes` begins with, if it is there as a whole. Until then the same bytes have to be shown again, with more
    /// behind them; afterwards the next answer begins.
    ///
    /// # Errors
    /// It is no answer, or longer than the limit.
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.left > 0 {
            let Some((head, behind)) = line(&bytes[self.at..])? else { return self.waiting(bytes.len()) };
            let (kind, digits) = head.split_first().ok_or(Malformed::Type { found: b'\r' })?;
            let (end, more) = match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => (self.at + behind, 0),
                b'$' | b'!' | b'=' => match length(digits)? {
                    None => (self.at + behind, 0),
                    Some(size) if self.at + behind + size + 2 > self.bytes_max => {
                        return Err(Malformed::TooLong { limit: self.bytes_max });
                    }
                    Some(size) => match string_end(bytes, self.at + behind, size)? {
                        Some(end) => (end, 0),
                        None => return Ok(None),
                    },
                },
                b'*' | b'~' | b'>' => (self.at + behind, length(digits)?.unwrap_or(0) as u64),
                b'%' => (self.at + behind, 2 * length(digits)?.unwrap_or(0) as u64),
                // Attributes stand in front of the value that they are about.
                b'|' => (self.at + behind, 2 * length(digits)?.unwrap_or(0) as u64 + 1),
                found => return Err(Malformed::Type { found: *found }),
            };
            self.at = end;
            // Each is four bytes at least, and so the limit is one on their number too.
            self.left = self.left - 1 + more;
            if self.left.saturating_mul(3) > self.bytes_max as u64 && self.left > 1 {
                return Err(Malformed::TooLong { limit: self.bytes_max });
            }
        }
        let found = self.at;
        *self = Self::new(self.bytes_max);
        if found > self.bytes_max { Err(Malformed::TooLong { limit: self.bytes_max }) } else { Ok(Some(found)) }
    }

    fn waiting(&self, have: usize) -> Result<Option<usize>, Malformed> {
        if have > self.bytes_max { Err(Malformed::TooLong { limit: self.bytes_max }) } else { Ok(None) }
    }
}

/// A value that is no aggregate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Value<'b> {
    /// A string.
    Bulk(&'b [u8]),
    /// Nothing.
    Nil,
    /// An error, in the server's words.
    Error(&'b [u8]),
    /// A number.
    Integer(i64),
    /// So many values follow.
    Array(usize),
    /// Anything else.
    Other,
}

/// The first value in `bytes`, which are there as a whole, and where the next begins. An aggregate ends behind its header.
pub fn value(bytes: &[u8]) -> Option<(Value<'_>, usize)> {
    let (head, behind) = line(bytes).ok()??;
    let (kind, digits) = head.split_first()?;
    let found = match kind {
        b'-' => Value::Error(digits),
        b'_' => Value::Nil,
        b':' => Value::Integer(std::str::from_utf8(digits).ok()?.parse().ok()?),
        b'*' => length(digits).ok()?.map_or(Value::Nil, Value::Array),
        b'$' | b'!' => match length(digits).ok()? {
            None => Value::Nil,
            Some(size) => {
                let text = bytes.get(behind..behind + size)?;
                let value = if *kind == b'$' { Value::Bulk(text) } else { Value::Error(text) };
                return Some((value, behind + size + 2));
            }
        },
        _ => Value::Other,
    };
    Some((found, behind))
}

/// The values of the answer to MGET, which is there as a whole; none if it is something else, such as an error.
pub fn values(answer: &[u8]) -> Option<(usize, impl Iterator<Item = Value<'_>>)> {
    let (head, mut at) = line(answer).ok()??;
    let count = length(head.strip_prefix(b"*")?).ok()??;
    let each = (0..count).map_while(move |_| {
        let (value, length) = value(answer.get(at..)?)?;
        at += length;
        Some(value)
    });
    Some((count, each))
}
