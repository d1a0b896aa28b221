//! Commands of clients: arrays of bulk strings.

use std::ops::Range;

use super::{HEAD_BYTES_MAX, Malformed, length, line_within, string_end};

/// Most arguments of one command, including its name.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// A command: the progress of reading it and, once complete, its arguments. The list of positions
/// is reused.
#[derive(Clone, Debug, Default)]
pub struct Command {
    arguments: Vec<Range<usize>>,
    /// Bytes read so far.
    length: usize,
    /// Arguments still to come, if a part of the command was read.
    left: Option<usize>,
}

impl Command {
    /// Length of the command in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if a part of the command was read.
    pub fn is_begun(&self) -> bool {
        self.left.is_some()
    }

    /// True for an empty line or array, which is not a command and gets no answer.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// Number of arguments, including the name.
    pub fn count(&self) -> usize {
        self.arguments.len()
    }

    /// An argument in the bytes that the command was read from; the name is the first.
    pub fn argument<'b>(&self, bytes: &'b [u8], index: usize) -> Option<&'b [u8]> {
        bytes.get(self.arguments.get(index)?.clone())
    }

    /// The arguments from `index` on.
    pub fn arguments<'b>(
        &'b self,
        bytes: &'b [u8],
        from: usize,
    ) -> impl ExactSizeIterator<Item = &'b [u8]> {
        self.arguments.iter().skip(from).map(|range| &bytes[range.clone()])
    }
}

/// Reads the command at the start of `bytes`; false if it is incomplete. Until it is complete, the
/// caller must present the same bytes again, with more behind them, and the same `command`, which
/// stores the progress. Positions of arguments are valid once the last one is present. The next
/// call begins a new command.
///
/// # Errors
/// The bytes are not a command, or it is longer than `bytes_max`.
pub fn read_command(
    bytes: &[u8],
    bytes_max: usize,
    command: &mut Command,
) -> Result<bool, Malformed> {
    let begun = command.left.take().map(|left| Begun { at: command.length, left });
    let was_begun = begun.is_some();
    let Some(begun) = begun.map_or_else(|| begin(bytes), |begun| Ok(Some(begun)))? else {
        return Ok(false);
    };
    command.arguments.clear();
    let found = match was_begun {
        true => go_on(bytes, bytes_max, begun, |_| {})?,
        false => go_on(bytes, bytes_max, begun, |argument| command.arguments.push(argument))?,
    };
    command.length = found.at;
    if found.left > 0 {
        command.left = Some(found.left);
        // A client that sends a command slowly may take any time. Each argument takes 6 bytes on
        // the wire, and more in this list.
        command.arguments = Vec::new();
        return Ok(false);
    }
    if let Some(begun) = begin(bytes)?.filter(|_| was_begun) {
        go_on(bytes, bytes_max, begun, |argument| command.arguments.push(argument))?;
    }
    Ok(true)
}

/// Length of the part read, and number of arguments still to come.
#[derive(Clone, Copy)]
struct Begun {
    at: usize,
    left: usize,
}

/// Reads the head of a command.
fn begin(bytes: &[u8]) -> Result<Option<Begun>, Malformed> {
    // Commands in plain text are for people with telnet and are refused. An empty line is skipped,
    // as Redis does.
    if !matches!(bytes, [] | [b'*' | b'\r' | b'\n', ..]) {
        return Err(Malformed::Command);
    }
    let Some((head, at)) = line_within(bytes, HEAD_BYTES_MAX)? else { return Ok(None) };
    let left = match head.split_first() {
        None => 0,
        Some((b'*', digits)) => count(digits)?,
        Some(_) => return Err(Malformed::Command),
    };
    Ok(Some(Begun { at, left }))
}

/// Reads the arguments that are present, starting at an offset.
fn go_on(
    bytes: &[u8],
    bytes_max: usize,
    mut begun: Begun,
    mut found: impl FnMut(Range<usize>),
) -> Result<Begun, Malformed> {
    while begun.left > 0 {
        let at = begun.at;
        let Some((head, behind)) = line_within(&bytes[at..], HEAD_BYTES_MAX)? else {
            // The rest may still arrive, unless the command is too long already.
            let is_too_long = at.max(bytes.len()) > bytes_max;
            return if is_too_long {
                Err(Malformed::TooLong { limit: bytes_max })
            } else {
                Ok(begun)
            };
        };
        let Some((b'$', digits)) = head.split_first() else { return Err(Malformed::Command) };
        let size = length(digits)?.ok_or(Malformed::Length)?;
        let start = at + behind;
        if start + size + 2 > bytes_max {
            return Err(Malformed::TooLong { limit: bytes_max });
        }
        let Some(end) = string_end(bytes, start, size)? else { return Ok(begun) };
        found(start..start + size);
        begun = Begun { at: end, left: begun.left - 1 };
    }
    Ok(begun)
}

/// Number of arguments that follow; 0 for a negative count, as in Redis.
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
