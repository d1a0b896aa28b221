//! Answers of servers: their ends, and the values in the answer to MGET.

use super::{Malformed, length, line, string_end};

/// Finds the end of consecutive answers as they arrive, without scanning any byte twice.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// Progress within the answer.
    at: usize,
    /// Values still to come.
    left: u64,
    bytes_max: usize,
    /// The answer exceeds the limit, and this many more bytes belong to a string in it.
    passed_over: Option<usize>,
    /// First byte of that answer, which is dropped before its end arrives.
    kind: u8,
}

/// The element at the start of the bytes, for callers that skip oversized answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// An incomplete answer: present the same bytes again, with more behind them.
    Waits,
    /// A complete answer of this length.
    Whole(usize),
    /// Bytes of an oversized answer. The caller must drop them; the next call starts behind them.
    Part(usize),
    /// The last bytes of an oversized answer.
    TooLong {
        /// Number of these bytes.
        length: usize,
        /// First byte of the answer, which is not among these bytes if parts came before.
        kind: u8,
    },
}

/// Content announced by a line.
enum Head {
    Nothing,
    String(usize),
    Values(u64),
}

fn head_of(line: &[u8]) -> Result<Head, Malformed> {
    let (kind, digits) = line.split_first().ok_or(Malformed::Type { found: b'\r' })?;
    let count = |digits| Ok(length(digits)?.unwrap_or(0) as u64);
    Ok(match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Head::Nothing,
        b'$' | b'!' | b'=' => length(digits)?.map_or(Head::Nothing, Head::String),
        b'*' | b'~' | b'>' => Head::Values(count(digits)?),
        b'%' => Head::Values(2 * count(digits)?),
        // Attributes precede the value that they describe.
        b'|' => Head::Values(2 * count(digits)? + 1),
        found => return Err(Malformed::Type { found: *found }),
    })
}

impl Scanner {
    /// A scanner for answers of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { at: 0, left: 1, bytes_max, passed_over: None, kind: 0 }
    }

    /// Length of the answer at the start of `bytes`, if complete. Until then the caller must
    /// present the same bytes again, with more behind them. The next call begins a new answer.
    ///
    /// # Errors
    /// The bytes are not an answer, or it is longer than the limit.
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.left > 0 {
            let Some((head, behind)) = line(&bytes[self.at..])? else {
                return self.waiting(bytes.len());
            };
            let (end, more) = match head_of(head)? {
                Head::Nothing => (self.at + behind, 0),
                Head::String(size) if self.at + behind + size + 2 > self.bytes_max => {
                    return Err(Malformed::TooLong { limit: self.bytes_max });
                }
                Head::String(size) => match string_end(bytes, self.at + behind, size)? {
                    Some(end) => (end, 0),
                    None => return Ok(None),
                },
                Head::Values(more) => (self.at + behind, more),
            };
            self.at = end;
            // Each value has at least four bytes, so the limit also bounds their number.
            self.left = self.left - 1 + more;
            if self.left.saturating_mul(3) > self.bytes_max as u64 && self.left > 1 {
                return Err(Malformed::TooLong { limit: self.bytes_max });
            }
        }
        let found = self.at;
        if found > self.bytes_max {
            return Err(Malformed::TooLong { limit: self.bytes_max });
        }
        *self = Self::new(self.bytes_max);
        Ok(Some(found))
    }

    /// Like [`find`](Self::find), but skips an answer longer than the limit as it arrives, so that
    /// no more of it than the limit is buffered.
    ///
    /// # Errors
    /// The bytes are not an answer.
    pub fn find_or_pass_over(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        if self.passed_over.is_none() {
            match self.find(bytes) {
                Ok(Some(length)) => return Ok(Step::Whole(length)),
                Ok(None) => return Ok(Step::Waits),
                Err(Malformed::TooLong { .. }) => {
                    // No part was skipped before, so the bytes start with the answer.
                    (self.passed_over, self.kind) =
                        (Some(0), bytes.first().copied().unwrap_or_default());
                }
                Err(error) => return Err(error),
            }
        }
        let mut at = std::mem::take(&mut self.at);
        loop {
            let more = self.passed_over.unwrap_or(0).min(bytes.len() - at);
            (at, self.passed_over) = (at + more, self.passed_over.map(|left| left - more));
            if self.passed_over != Some(0) {
                return Ok(Step::Part(at));
            }
            if self.left == 0 {
                let kind = self.kind;
                *self = Self::new(self.bytes_max);
                return Ok(Step::TooLong { length: at, kind });
            }
            let Some((head, behind)) = line(&bytes[at..])? else {
                return Ok(if at == 0 { Step::Waits } else { Step::Part(at) });
            };
            let more = match head_of(head)? {
                Head::Nothing => 0,
                Head::String(size) => {
                    self.passed_over = Some(size + 2);
                    0
                }
                Head::Values(more) => more,
            };
            (at, self.left) = (at + behind, (self.left - 1).saturating_add(more));
        }
    }

    fn waiting(&self, have: usize) -> Result<Option<usize>, Malformed> {
        if have > self.bytes_max {
            Err(Malformed::TooLong { limit: self.bytes_max })
        } else {
            Ok(None)
        }
    }
}

/// A value, or the head of an aggregate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Value<'b> {
    /// A string.
    Bulk(&'b [u8]),
    /// Null.
    Nil,
    /// An error with the server's text.
    Error(&'b [u8]),
    /// A number.
    Integer(i64),
    /// An array; this many values follow.
    Array(usize),
    /// Any other value.
    Other,
}

/// The first value in the complete `bytes`, and the offset of the next. An aggregate ends behind
/// its header.
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

/// The values of a complete answer to MGET; `None` for any other answer, such as an error.
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
