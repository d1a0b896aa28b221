//! Commands of clients: arrays of bulk strings.

use std::ops::Range;

use super::{HEAD_BYTES_MAX, Malformed, length, line_within, string_end};

/// Arguments of one command, its name among them.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// A command: how far it was read, and once it is there as a whole, its arguments. The list of
/// their positions is used again.
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
    pub fn arguments<'b>(
        &'b self,
        bytes: &'b [u8],
        from: usize,
    ) -> impl ExactSizeIterator<Item = &'b [u8]> {
        self.arguments.iter().skip(from).map(|range| &bytes[range.clone()])
    }
}

/// Reads the command at the start of `bytes`; false if it is not there as a whole. Until then the
/// same bytes have to be shown again with the same `command`, and more behind them: how far they
/// were looked at is kept, and where the arguments are is found once the last one is there.
/// Afterwards the next command begins.
///
/// # Errors
/// It is none, or longer than `bytes_max`.
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
        // Who sends a command by and by may take any time for it. An argument takes 6 bytes there,
        // and a place in this list more.
        command.arguments = Vec::new();
        return Ok(false);
    }
    if let Some(begun) = begin(bytes)?.filter(|_| was_begun) {
        go_on(bytes, bytes_max, begun, |argument| command.arguments.push(argument))?;
    }
    Ok(true)
}

/// How far a command was read, and how many arguments are still to come.
#[derive(Clone, Copy)]
struct Begun {
    at: usize,
    left: usize,
}

/// Reads what a command begins with.
fn begin(bytes: &[u8]) -> Result<Option<Begun>, Malformed> {
    // Commands in plain text are for people with telnet. An empty line is passed over, as Redis
    // does.
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

/// Reads the arguments that are there, from one on.
fn go_on(
    bytes: &[u8],
    bytes_max: usize,
    mut begun: Begun,
    mut found: impl FnMut(Range<usize>),
) -> Result<Begun, Malformed> {
    while begun.left > 0 {
        let at = begun.at;
        let Some((head, behind)) = line_within(&bytes[at..], HEAD_BYTES_MAX)? else {
            // It may still come, unless it is too much already.
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
