//! The control protocol between an owner and an agent, on one TCP connection.
//!
//! ```text
//! u32 length of what follows | u8 kind | u64 ticket | payload | 16 bytes of MAC
//! ```
//!
//! Numbers are big endian. The MAC is an HMAC-SHA256, cut to its first 16 bytes, over the number of
//! messages that this side has sent in this session and over the message, under a key of this
//! session and direction (`keys.rs`). A message of kind `BODY` has none, and the messages of the
//! handshake carry their own.
//!
//! | file | content |
//! |---|---|
//! | `kinds.rs` | the messages and their numbers |
//! | `error.rs` | what can be wrong with them |
//! | `encode.rs` | encoding of messages |
//! | `decode.rs` | decoding without copying; a body is passed on before all of it has come |
//! | `connection.rs` | a frozen connection as bytes, and its checks |
//!
//! An invalid message is refused by name and ends the session: the position of anything behind it
//! cannot be trusted.

pub(crate) mod connection;
mod decode;
mod encode;
mod error;
pub(crate) mod kinds;
#[cfg(test)]
mod tests;

pub use connection::{decode_frozen, encode_frozen};
pub use decode::{Decoder, Read, decode_payload};
pub use encode::Encoder;
pub use error::Error;
pub use kinds::{
    Ending, Framing, HEADER_BYTES, MAC_BYTES, Message, Refusal, SEGMENTS, SEGMENTS_LZ4, Side,
    Ticket,
};
