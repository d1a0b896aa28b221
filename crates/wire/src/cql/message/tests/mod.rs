//! Messages by example: differences between versions, refused messages, and the offset of the
//! error.

mod request;
mod response;
mod result;

use crate::error::DecodeError;

/// A body written by `write`.
fn body(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Checks that every proper prefix of `body` is refused, at an offset within it.
fn refuses_every_start<'a, T>(body: &'a [u8], decode: impl Fn(&'a [u8]) -> Result<T, DecodeError>) {
    assert!(decode(body).is_ok());
    for length in 0..body.len() {
        match decode(&body[..length]) {
            Err(error) => assert!(error.offset <= length, "{error}"),
            Ok(_) => panic!("accepted {length} of {} bytes", body.len()),
        }
    }
}
