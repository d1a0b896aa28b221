//! Commands of clients: arrays of bulk strings.

use std::ops::Range;

use super::{Malformed, length, line, string_end};

/// Arguments of one command, its name among them.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// A command as a whole. The list of positions is used again.
#[derive(Clone, Debug, Default)]
pub struct Command {
    arguments: Vec<Range<usize>>,
    length: usize,
}

impl Command {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.length
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

/// Reads the command at the start of `bytes`; false if it is not there as a whole.
///
/// # Errors
/// It is none, or longer than `bytes_max`.
pub fn read_command(bytes: &[u8], bytes_max: usize, command: &mut Command) -> Result<bool, Malformed> {
    command.arguments.clear();
    let Some((head, mut at)) = line(bytes)? else { return Ok(false) };
    let Some((b'*', digits)) = head.split_first() else {
        // An empty line is passed over, as Redis does; commands in plain text are for people with telnet.
        command.length = at;
        return if head.is_empty() { Ok(true) } else { Err(Malformed::Command) };
    };
    let count = length(digits)?.unwrap_or(0);
    if count > ARGUMENTS_MAX {
        return Err(Malformed::TooManyArguments);
    }
    for _ in 0..count {
        let Some((head, behind)) = line(&bytes[at..])? else { return limited(at, bytes, bytes_max) };
        let Some((b'$', digits)) = head.split_first() else { return Err(Malformed::Command) };
        let size = length(digits)?.ok_or(Malformed::Length)?;
        let start = at + behind;
        if start + size + 2 > bytes_max {
            return Err(Malformed::TooLong { limit: bytes_max });
        }
        let Some(end) = string_end(bytes, start, size)? else { return Ok(false) };
        command.arguments.push(start..start + size);
        at = end;
    }
    command.length = at;
    Ok(true)
}

/// What is not there as a whole may still come, unless it is too much already.
fn limited(at: usize, bytes: &[u8], bytes_max: usize) -> Result<bool, Malformed> {
    if at.max(bytes.len()) > bytes_max { Err(Malformed::TooLong { limit: bytes_max }) } else { Ok(false) }
}
