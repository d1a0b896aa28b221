//! Commands to servers and answers to clients.

use std::io::Write as _;

/// The protocol version of a client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Version {
    /// RESP2, the initial version of a connection.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

fn put_head(out: &mut Vec<u8>, kind: char, number: usize) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{kind}{number}\r\n");
}

/// A command with these arguments.
pub fn put_command<'a>(out: &mut Vec<u8>, arguments: impl ExactSizeIterator<Item = &'a [u8]>) {
    put_array(out, arguments.len());
    arguments.for_each(|argument| put_bulk(out, argument));
}

/// The head of an array.
pub fn put_array(out: &mut Vec<u8>, count: usize) {
    put_head(out, '*', count);
}

/// The head of a map; in RESP2 an array of its keys and values.
pub fn put_map(out: &mut Vec<u8>, version: Version, count: usize) {
    match version {
        Version::Two => put_head(out, '*', 2 * count),
        Version::Three => put_head(out, '%', count),
    }
}

/// A string.
pub fn put_bulk(out: &mut Vec<u8>, text: &[u8]) {
    put_head(out, '$', text.len());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Null.
pub fn put_nil(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Two => b"$-1\r\n",
        Version::Three => b"_\r\n",
    });
}

/// A number.
pub fn put_integer(out: &mut Vec<u8>, number: i64) {
    let _ = write!(out, ":{number}\r\n");
}

/// A status.
pub fn put_simple(out: &mut Vec<u8>, text: &str) {
    let _ = write!(out, "+{text}\r\n");
}

/// An error; line ends in it become blanks.
pub fn put_error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}
