//! HTTP/1.0 and HTTP/1.1 (RFC 9110, RFC 9112) for an intermediary between client and server: heads,
//! the end of a body, and the persistence of the connection.
//!
//! ```text
//! bytes ─ head (lines, limits) ─┬─ request  ─┐
//!                               └─ response ─┴─ fields (combined meaning) ─ body (its end)
//! ```
//! The module stores and changes no body: it checks chunks and passes them on. Bytes that two
//! readers could understand differently are refused by name ([`Refusal`]) instead of interpreted,
//! since request smuggling depends on such differences.
//!
//! A head costs no allocation once the list of positions has grown; the bytes remain the caller's.

mod body;
mod error;
mod fields;
mod head;
mod limits;
mod names;
mod request;
mod response;
mod version;
#[cfg(test)]
mod tests;

pub use body::{BodyReader, Framing};
pub use error::Refusal;
pub use head::{Head, HeadReader};
pub use limits::{CHUNK_LINE_BYTES_MAX, HeadLimits, TRAILER_BYTES_MAX};
pub use request::RequestHead;
pub use response::{ContentRange, ResponseHead};
pub use version::Version;
