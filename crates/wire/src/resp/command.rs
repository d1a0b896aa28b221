//! Commands of clients: arrays of bulk strings.

use std::ops::Range;

use super::{HEAD_BYTES_MAX, Malformed, length, line_within, string_end};

/// Arguments of one command, its name among them.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// A command as a whole. The list of positions is used again.
#[derive(Clone, Debug, Default)]
pub struct Command {
    arguments: Vec<Range<usize>>,
    /// How far it was read.
    length: usize,
    /// Arguments that are still to come, if a part of it was read.
    left: Option<usize>,
}

impl Command {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if a part of it was read.
    pub fn is_begun(&self) -> bool {
        self.left.is_some()
    }

    /// True for an empty line or array, which is no command and has no answer.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// How many arguments there are, the name among them.
    pub fn count(&self) -> usize {
        self.arguments.len()
    }

    /// An argument out of the bytes that it was read from; the name is the first.
    pub fn argument<'b>(&self, bytes: &'b [u8], index: usize) -> Option<&'b [u8]> {
        bytes.get(self.arguments.get(index)?.clone())
    }

    /// The arguments from one on.
    pub fn arguments<'b>(&'b self, bytes: &'b [u8], from: usize) -> impl ExactSizeIterator<Item = &'b [u8]> {
        self.arguments.iter().skip(from).map(|range| &bytes[range.clone()])
    }
}

/// Reads the command at the start of `bytes`; false if it is not there as a whole. Until then the same bytes have to be shown again with the same `command`,
/// and more behind them: what was looked at is not looked at again. Afterwards the next command begins.
///
/// # Errors
/// It is none, or longer than `bytes_max`.
pub fn read_command(bytes: &[u8], bytes_max: usize, command: &mut Command) -> Result<bool, Malformed> {
    let outcome = read(bytes, bytes_max, command);
    if outcome != Ok(false) {
        command.left = None;
    }
    outcome
}

fn read(bytes: &[u8], bytes_max: usize, command: &mut Command) -> Result<bool, Malformed> {
    let mut left = match command.left {
        Some(left) => left,
        None => {
            command.arguments.clear();
            // Commands in plain text are for people with telnet. An empty line is passed over, as Redis does.
            if !matches!(bytes, [] | [b'*' | b'\r' | b'\n', ..]) {
                return Err(Malformed::Command);
            }
            let Some((head, behind)) = line_within(bytes, HEAD_BYTES_MAX)? else { return Ok(false) };
            command.length = behind;
            match head.split_first() {
                None => return Ok(true),
                Some((b'*', digits)) => count(digits)?,
                Some(_) => return Err(Malformed::Command),
            }
        }
    };
    while left > 0 {
        command.left = Some(left);
        let at = command.length;
        let Some((head, behind)) = line_within(&bytes[at..], HEAD_BYTES_MAX)? else {
            return limited(at, bytes, bytes_max);
        };
        let Some((b'$', digits)) = head.split_first() else { return Err(Malformed::Command) };
        let size = length(digits)?.ok_or(Malformed::Length)?;
        let start = at + behind;
        if start + size + 2 > bytes_max {
            return Err(Malformed::TooLong { limit: bytes_max });
        }
        let Some(end) = string_end(bytes, start, size)? else { return Ok(false) };
        command.arguments.push(start..start + size);
        command.length = end;
        left -= 1;
    }
    Ok(true)
}

/// How many arguments follow: none for less than nothing, as for Redis.
fn count(digits: &[u8]) -> Result<usize, Malformed> {
    match digits.strip_prefix(b"-").map(length) {
        Some(Ok(Some(1..))) => Ok(0),
        Some(_) => Err(Malformed::Length),
        None => {
            let count = length(digits)?.ok_or(Malformed::Length)?;
            if count > ARGUMENTS_MAX { Err(Malformed::TooManyArguments) } else { Ok(count) }
        }
    }
}

/// What is not there as a whole may still come, unless it is too much already.
fn limited(at: usize, bytes: &[u8], bytes_max: usize) -> Result<bool, Malformed> {
    if at.max(bytes.len()) > bytes_max { Err(Malformed::TooLong { limit: bytes_max }) } else { Ok(false) }
}
