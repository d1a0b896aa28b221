//! RESP, the protocol of Redis and Valkey, versions 2 and 3, for an intermediary between client and
//! server.
//!
//! Commands are read to their arguments, which determine the command's destination. Answers are
//! only searched for their end ([`Scanner`]) and passed on unchanged in the client's protocol
//! version. The answer to MGET is the exception ([`values`]).

mod command;
mod error;
mod scan;
#[cfg(test)]
mod tests;
mod write;

pub use command::{ARGUMENTS_MAX, Command, read_command};
pub use error::Malformed;
pub use scan::{Scanner, Step, Value, value, values};
pub use write::{
    Version, put_array, put_bulk, put_command, put_error, put_integer, put_map, put_nil, put_simple,
};

/// Most bytes of a line: a length, a number, an error, a status.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a line in a command: a letter and a length.
const HEAD_BYTES_MAX: usize = 32;

/// The line at the start, without its end, and the offset of the next line.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    line_within(bytes, LINE_BYTES_MAX)
}

fn line_within(bytes: &[u8], bytes_max: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    let searched = &bytes[..bytes.len().min(bytes_max)];
    match searched.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && bytes[end - 1] == b'\r' => Ok(Some((&bytes[..end - 1], end + 1))),
        Some(_) => Err(Malformed::LineEnd),
        None if searched.len() == bytes_max => Err(Malformed::LineTooLong),
        None => Ok(None),
    }
}

/// A length or count: decimal without leading zeros, as Redis requires, at most 2^31 - 1, or -1 for
/// null.
fn length(digits: &[u8]) -> Result<Option<usize>, Malformed> {
    if digits == b"-1" {
        return Ok(None);
    }
    let is_padded = digits.len() > 1 && digits[0] == b'0';
    let is_number = !digits.is_empty()
        && digits.len() <= 10
        && !is_padded
        && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits)
        .ok()
        .filter(|_| is_number)
        .and_then(|text| text.parse::<u64>().ok());
    number
        .filter(|number| *number <= i32::MAX as u64)
        .map(|number| Some(number as usize))
        .ok_or(Malformed::Length)
}

/// End of a string of `length` bytes and its line end, if complete.
fn string_end(bytes: &[u8], start: usize, length: usize) -> Result<Option<usize>, Malformed> {
    match bytes.get(start + length..start + length + 2) {
        Some(b"\r\n") => Ok(Some(start + length + 2)),
        Some(_) => Err(Malformed::LineEnd),
        None => Ok(None),
    }
}
