//! Heads and bodies: what is accepted, what is refused and by which name, wherever the bytes are
//! cut.

mod bodies;
mod cuts;
mod heads;

use super::*;

/// Reads a complete request head and passes it to `check`.
fn with_request<T>(
    text: &[u8],
    check: impl FnOnce(RequestHead<'_, '_>) -> T,
) -> Result<T, Refusal> {
    let mut reader = HeadReader::new(HeadLimits::DEFAULT);
    let head = reader.read(text)?.expect("the head is whole");
    assert_eq!(head.len(), text.len());
    RequestHead::read(head).map(check)
}

/// Reads a complete response head, to HEAD or another request.
fn with_response<T>(
    text: &[u8],
    to_head: bool,
    check: impl FnOnce(ResponseHead<'_, '_>) -> T,
) -> Result<T, Refusal> {
    let mut reader = HeadReader::new(HeadLimits::DEFAULT);
    let head = reader.read(text)?.expect("the head is whole");
    ResponseHead::read(head, to_head).map(check)
}

fn refused(text: &[u8]) -> Refusal {
    match with_request(text, |_| ()) {
        Err(refusal) => refusal,
        Ok(()) => panic!("taken: {}", text.escape_ascii()),
    }
}

/// A request with these fields, each with its line end.
fn get(fields: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}
