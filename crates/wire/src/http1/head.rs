//! Finds the end of a head as its bytes arrive, and the positions of its fields.

use super::error::Refusal;
use super::limits::HeadLimits;
use super::names::is_token;

/// Position of a field in its head.
#[derive(Clone, Copy, Debug)]
struct Span {
    name_start: u32,
    name_end: u32,
    value_start: u32,
    value_end: u32,
}

/// Reads one head after another. It stores positions only: the caller presents an incomplete head
/// again with more bytes behind it.
#[derive(Debug)]
pub struct HeadReader {
    limits: HeadLimits,
    /// Bytes scanned without finding a line end.
    scanned: usize,
    /// Start of the current line.
    line_start: usize,
    /// End of the first line, without its line end; 0 while unknown.
    start_line_end: usize,
    fields: Vec<Span>,
}

impl HeadReader {
    /// A reader with these limits.
    pub fn new(limits: HeadLimits) -> Self {
        Self { limits, scanned: 0, line_start: 0, start_line_end: 0, fields: Vec::new() }
    }

    /// Looks for a complete head at the start of `data`, which must be the data of the last call
    /// with bytes appended. `None` if the head is incomplete. After a head or an error, call
    /// [`reset`](HeadReader::reset) first.
    ///
    /// The outcome does not depend on where the bytes were cut.
    ///
    /// # Errors
    /// The head is malformed or beyond a limit; reported as soon as the bytes show it.
    pub fn read<'h, 'd>(&'h mut self, data: &'d [u8]) -> Result<Option<Head<'h, 'd>>, Refusal> {
        loop {
            let (line_limit, head_limit) =
                (self.line_start + self.limits.line_bytes, self.limits.head_bytes);
            let bound = line_limit.min(head_limit);
            let visible = &data[..data.len().min(bound)];
            let unseen = visible.get(self.scanned..).unwrap_or_default();
            let Some(found) = unseen.iter().position(|byte| *byte == b'\n') else {
                if data.len() >= bound {
                    return Err(match line_limit < head_limit {
                        true => Refusal::LineTooLong { limit: self.limits.line_bytes },
                        false => Refusal::HeadTooLong { limit: head_limit },
                    });
                }
                self.scanned = data.len();
                return Ok(None);
            };
            let next = self.scanned + found + 1;
            let line = self.line_start..next - 1;
            (self.scanned, self.line_start) = (next, next);
            if self.take_line(data, line.start, line.end)? {
                return Ok(Some(Head { reader: self, data: &data[..next] }));
            }
        }
    }

    /// Prepares for the next head.
    pub fn reset(&mut self) {
        (self.scanned, self.line_start, self.start_line_end) = (0, 0, 0);
        self.fields.clear();
    }

    /// True if no byte of a head has been seen.
    pub fn is_fresh(&self) -> bool {
        self.scanned == 0
    }

    /// Takes the line up to its line feed; true for the empty line that ends the head.
    fn take_line(&mut self, data: &[u8], start: usize, feed: usize) -> Result<bool, Refusal> {
        let line = checked_line(&data[start..feed])?;
        let end = start + line.len();
        if start == 0 {
            if line.is_empty() {
                return Err(Refusal::StartLine);
            }
            self.start_line_end = end;
            return Ok(false);
        }
        if line.is_empty() {
            return Ok(true);
        }
        if self.fields.len() == self.limits.fields {
            return Err(Refusal::TooManyFields { limit: self.limits.fields });
        }
        let (name_length, value) = field(line)?;
        let value_start = start + name_length + 1 + offset_of_value(&line[name_length + 1..]);
        self.fields.push(Span {
            name_start: start as u32,
            name_end: (start + name_length) as u32,
            value_start: value_start as u32,
            value_end: (value_start + value.len()) as u32,
        });
        Ok(false)
    }
}

/// The line without the carriage return before its line feed.
pub(super) fn checked_line(line: &[u8]) -> Result<&[u8], Refusal> {
    let Some((b'\r', line)) = line.split_last() else { return Err(Refusal::BareLineFeed) };
    match line.iter().find(|byte| matches!(byte, b'\r' | 0)) {
        None => Ok(line),
        Some(0) => Err(Refusal::Nul),
        Some(_) => Err(Refusal::BareCarriageReturn),
    }
}

/// Length of the name, and the value without surrounding blanks.
pub(super) fn field(line: &[u8]) -> Result<(usize, &[u8]), Refusal> {
    if let Some(b' ' | b'\t') = line.first() {
        return Err(Refusal::FoldedField);
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Refusal::FieldName)?;
    let (name, rest) = (&line[..colon], &line[colon + 1..]);
    if let Some(b' ' | b'\t') = name.last() {
        return Err(Refusal::SpaceBeforeColon);
    }
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(Refusal::FieldName);
    }
    // RFC 9110, section 5.5: visible characters, blanks and bytes beyond ASCII.
    if rest.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(Refusal::FieldValue);
    }
    Ok((colon, rest.trim_ascii()))
}

fn offset_of_value(rest: &[u8]) -> usize {
    rest.len() - rest.trim_ascii_start().len()
}

/// A complete head: the first line, and fields whose lines are well-formed.
#[derive(Clone, Copy, Debug)]
pub struct Head<'h, 'd> {
    reader: &'h HeadReader,
    data: &'d [u8],
}

impl<'d> Head<'_, 'd> {
    /// Length of the head in bytes, including the empty line that ends it.
    #[allow(clippy::len_without_is_empty, reason = "no head is empty")]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// The whole head.
    pub fn bytes(&self) -> &'d [u8] {
        self.data
    }

    /// The first line, without its line end.
    pub fn start_line(&self) -> &'d [u8] {
        &self.data[..self.reader.start_line_end]
    }

    /// Name and value of each field, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'d [u8], &'d [u8])> {
        let data = self.data;
        let at = move |start: u32, end: u32| &data[start as usize..end as usize];
        self.reader.fields.iter().map(move |span| {
            (at(span.name_start, span.name_end), at(span.value_start, span.value_end))
        })
    }

    /// The value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<&'d [u8]> {
        self.fields()
            .find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}
