//! The control protocol: what an owner and an agent say to one another on one TCP connection.
//!
//! ```text
//! u32 length of what follows | u8 kind | u64 ticket | payload | 16 bytes of MAC
//! ```
//!
//! Numbers are big endian. The MAC is an HMAC-SHA256, cut to its first 16 bytes, over the number of
//! messages that this side has sent in this session and over the message, under a key of this
//! session and direction (`session.rs`). A message of kind `BODY` has none, and the messages of the
//! handshake carry their own.
//!
//! | file | what is there |
//! |---|---|
//! | `encode.rs` | messages as bytes |
//! | `decode.rs` | bytes as messages, as they come; nothing is copied, and a body is passed on before all of it is there |
//! | `connection.rs` | a frozen connection as bytes, and its checks |
//!
//! Whatever is wrong is refused by name, and ends the session: after it, nothing that comes can be
//! trusted to be where it seems to be.

pub(crate) mod connection;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use crate::session::Instance;
use shunt_reactor::moving::Frozen;

pub use connection::{decode_frozen, encode_frozen};
pub use decode::{Decoder, Read, decode_payload};
pub use encode::Encoder;

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 16;
/// Bytes before a payload: length, kind and ticket.
pub const HEADER_BYTES: usize = 4 + AFTER_LENGTH_BYTES;
/// Bytes of a header that the length counts.
pub(crate) const AFTER_LENGTH_BYTES: usize = 1 + 8;

/// Of a CQL answer that was offered, the head of `REQUEST` is the header that its client is to be
/// sent, and behind it, if it goes in segments (v5), one of these: with no compression, or with LZ4
/// where that makes them shorter.
pub const SEGMENTS: u8 = 1;
/// The same.
pub const SEGMENTS_LZ4: u8 = 2;

/// Names one exchange of one client connection. An owner never uses one twice: its first is drawn
/// at random when the process starts, and each next one is greater by one, also over several
/// sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Who has sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that clients connect to: the dispatcher or proxy.
    Owner,
    /// The side beside a backend.
    Agent,
}

/// Where the body of an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// After the last of the chunks that it comes in.
    Chunked,
    /// Where the connection ends.
    UntilClose,
}

/// Why an agent did not take a connection. The owner has its state and puts it in again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There is no offer of that ticket, or none any more.
    UnknownTicket,
    /// The address or port is not among those that this agent serves.
    ForeignAddress,
    /// This agent has a connection of the same addresses, or puts one in.
    Occupied,
    /// It has as many connections as it may have.
    Full,
    /// The host did not let the connection in.
    NotRestored,
}

/// Why an agent has a connection no more, and gives none back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The client closed it, or it ended in order after its answer.
    Client,
    /// The client reset it.
    Reset,
    /// Its time was over: the client takes nothing, or the owner is gone.
    TimedOut,
    /// It could not be taken out of the host again.
    NotFrozen,
    /// The owner said so.
    Released,
}

/// One message. Those that an owner sends come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message<'a> {
    /// Answer this request.
    Request {
        /// Its head.
        head: &'a [u8],
        /// `BODY` messages and `END` follow.
        has_body: bool,
        /// It may be carried out twice.
        is_idempotent: bool,
    },
    /// The exchange is of no use any more.
    Cancel,
    /// Relay the answer that you offered.
    Fetch,
    /// Take this connection, and send the answer that you offered on it.
    Take {
        /// The connection.
        connection: Frozen,
        /// Bytes of the answer that the client has been sent.
        answer_sent: u64,
    },
    /// Give the connection back as soon as its answer is out.
    Recall,
    /// The connection that you named by `HELD` is still mine: go on.
    HeldAck,
    /// What you said of this connection, by `RETURN` or `CLOSED`, has arrived: forget it.
    Settled,
    /// Close the connection of this ticket without a word to the client.
    Release,
    /// Are you there?
    Ping,
    /// So many bytes more of a body may be sent; either side.
    Credit {
        /// Bytes.
        bytes: u32,
    },
    /// The body has ended; either side.
    End,
    /// The head of an answer that is relayed; `BODY` and `END` follow, unless there is no body.
    Response {
        /// The head.
        head: &'a [u8],
        /// Where the body ends.
        framing: Framing,
    },
    /// The exchange has failed.
    Failed {
        /// The status that a relay would answer with.
        status: u16,
        /// What was wrong.
        reason: &'a str,
    },
    /// There is a large answer: shall it go over the client's own connection?
    Offer {
        /// The head of the answer.
        head: &'a [u8],
        /// Where the body ends.
        framing: Framing,
        /// Its entity tag, if it is a strong one; else empty.
        etag: &'a [u8],
    },
    /// The connection is here and alive.
    Taken,
    /// The connection is not here and never will be by this ticket.
    Refused {
        /// Why.
        reason: Refusal,
    },
    /// The connection comes back.
    Return {
        /// The connection.
        connection: Frozen,
        /// Bytes of the answer that were put in, those in its queues among them.
        answer_sent: u64,
        /// Those are all.
        is_complete: bool,
    },
    /// The connection has ended here.
    Closed {
        /// Why.
        reason: Ending,
        /// Bytes of the answer that were put in.
        answer_sent: u64,
        /// Those are all, and the client has acknowledged them.
        is_complete: bool,
    },
    /// After the handshake: this connection of yours is here.
    Held {
        /// The address that moves.
        local: SocketAddr,
        /// The client's.
        peer: SocketAddr,
        /// The owner's process that it came from.
        from: Instance,
    },
    /// All connections, returns and endings that concern you have been named.
    HeldEnd {
        /// Nothing was forgotten for want of room: what was not named was never taken.
        is_complete: bool,
    },
    /// I am here.
    Pong,
}

/// Numbers of kinds. `BODY` and the handshake are no [`Message`]s.
pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const WELCOME: u8 = 2;
    pub(crate) const BODY: u8 = 3;
    pub(crate) const END: u8 = 4;
    pub(crate) const CREDIT: u8 = 5;
    pub(crate) const REQUEST: u8 = 16;
    pub(crate) const CANCEL: u8 = 17;
    pub(crate) const FETCH: u8 = 18;
    pub(crate) const TAKE: u8 = 19;
    pub(crate) const RECALL: u8 = 20;
    pub(crate) const HELD_ACK: u8 = 21;
    pub(crate) const SETTLED: u8 = 22;
    pub(crate) const RELEASE: u8 = 23;
    pub(crate) const PING: u8 = 24;
    pub(crate) const RESPONSE: u8 = 32;
    pub(crate) const FAILED: u8 = 33;
    pub(crate) const OFFER: u8 = 34;
    pub(crate) const TAKEN: u8 = 35;
    pub(crate) const REFUSED: u8 = 36;
    pub(crate) const RETURN: u8 = 37;
    pub(crate) const CLOSED: u8 = 38;
    pub(crate) const HELD: u8 = 39;
    pub(crate) const HELD_END: u8 = 40;
    pub(crate) const PONG: u8 = 41;
}

/// What was wrong with bytes of the control protocol, or with a message that was to become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The length is less than a header's or more than any message's.
    Length(u32),
    /// No message is of this kind, or not from this side.
    Kind(u8),
    /// The MAC is another: the message was not sent by who has the key, or not here.
    Mac,
    /// A message of this kind has fewer bytes than its fields take.
    Short(u8),
    /// A message of this kind has bytes behind its fields.
    Behind(u8),
    /// A field has a value that means nothing; its name.
    Field(&'static str),
    /// A field is longer than it may be; its name.
    Oversized(&'static str),
    /// Two fields contradict each other; what they say.
    Contradictory(&'static str),
    /// The other side speaks another version of the protocol.
    Version(u16),
    /// The agent serves another protocol than was asked for.
    Protocol(u8),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "a message of the control protocol cannot be {length} bytes long")
            }
            Self::Kind(kind) => write!(f, "no message of kind {kind} can come from this side"),
            Self::Mac => {
                f.write_str("a message is not authentic: do both sides have the same key file?")
            }
            Self::Short(kind) => write!(f, "a message of kind {kind} is cut short"),
            Self::Behind(kind) => write!(f, "a message of kind {kind} has bytes behind its fields"),
            Self::Field(name) => write!(f, "the field `{name}` has a value that means nothing"),
            Self::Oversized(name) => write!(f, "the field `{name}` is longer than it may be"),
            Self::Contradictory(what) => f.write_str(what),
            Self::Version(version) => write!(
                f,
                "the other side speaks version {version} of the control protocol, this one {}: run the same release on both",
                crate::session::VERSION
            ),
            Self::Protocol(number) => {
                write!(
                    f,
                    "the agent serves protocol {number}, which is not the one asked for: see its `--protocol`"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
