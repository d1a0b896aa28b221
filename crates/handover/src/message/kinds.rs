//! The messages of the control protocol, their numbers and their parts.

use std::net::SocketAddr;

use shunt_reactor::moving::Frozen;

/// Version of the control protocol.
pub const VERSION: u16 = 1;
/// Bytes of a MAC.
pub const MAC_BYTES: usize = 16;
/// Bytes before a payload: length, kind and ticket.
pub const HEADER_BYTES: usize = 4 + AFTER_LENGTH_BYTES;
/// Bytes of a header that the length counts.
pub(crate) const AFTER_LENGTH_BYTES: usize = 1 + 8;

/// Framing of an offered CQL answer. The head of its `REQUEST` is the header for the client,
/// followed, if the answer goes in segments (v5), by this byte for uncompressed ones or by
/// [`SEGMENTS_LZ4`].
pub const SEGMENTS: u8 = 1;
/// Like [`SEGMENTS`], with LZ4 where that makes segments shorter.
pub const SEGMENTS_LZ4: u8 = 2;

/// One run of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(pub u64);

/// Identifies one exchange of one client connection. An owner never reuses one: the first is random
/// at the start of the process, and each next one is greater by one, across sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that clients connect to: the dispatcher or proxy.
    Owner,
    /// The side beside a backend.
    Agent,
}

/// Framing of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// No body.
    None,
    /// A body of this many bytes.
    Length(u64),
    /// A body in chunks.
    Chunked,
    /// A body that ends with the connection.
    UntilClose,
}

/// Reason why an agent did not take a connection. The owner has its state and restores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The ticket names no current offer.
    UnknownTicket,
    /// The agent does not serve this address or port.
    ForeignAddress,
    /// The agent has, or is restoring, a connection of the same addresses.
    Occupied,
    /// The agent's limit on connections is reached.
    Full,
    /// The kernel did not restore the connection.
    NotRestored,
}

/// Reason why a connection ended at an agent and does not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The client closed it, or it ended in order after its answer.
    Client,
    /// The client reset it.
    Reset,
    /// Timed out: the client takes nothing, or the owner is gone.
    TimedOut,
    /// The agent could not freeze it again.
    NotFrozen,
    /// The owner released it.
    Released,
}

/// One message. Those that an owner sends come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message<'a> {
    /// Request to be answered.
    Request {
        /// Head of the request.
        head: &'a [u8],
        /// `BODY` messages and `END` follow.
        has_body: bool,
        /// The request may be carried out twice.
        is_idempotent: bool,
    },
    /// Cancels the exchange.
    Cancel,
    /// Asks the agent to relay the offered answer.
    Fetch,
    /// Gives the agent this connection to send the offered answer on.
    Take {
        /// The connection.
        connection: Frozen,
        /// Bytes of the answer that the client has already been sent.
        answer_sent: u64,
    },
    /// Recalls the connection as soon as its answer is out.
    Recall,
    /// Acknowledges `HELD`: the connection still belongs to the sender, and the agent goes on.
    HeldAck,
    /// Acknowledges `RETURN` or `CLOSED`: the agent may forget the connection.
    Settled,
    /// Asks the agent to close the connection of this ticket without a packet to the client.
    Release,
    /// Asks for a `PONG`.
    Ping,
    /// Allows this many more bytes of a body; from either side.
    Credit {
        /// Bytes.
        bytes: u32,
    },
    /// Ends a body; from either side.
    End,
    /// Head of a relayed answer; `BODY` and `END` follow, unless it has no body.
    Response {
        /// The head.
        head: &'a [u8],
        /// Framing of the body.
        framing: Framing,
    },
    /// Reports that the exchange has failed.
    Failed {
        /// Status for the client.
        status: u16,
        /// Cause of the failure.
        reason: &'a str,
    },
    /// Offers a large answer, which may go over the client's own connection.
    Offer {
        /// Head of the answer.
        head: &'a [u8],
        /// Framing of the body.
        framing: Framing,
        /// Entity tag if it is a strong one; otherwise empty.
        etag: &'a [u8],
    },
    /// The connection is here and alive.
    Taken,
    /// The connection is not here and never will be under this ticket.
    Refused {
        /// The reason.
        reason: Refusal,
    },
    /// Returns the connection.
    Return {
        /// The connection.
        connection: Frozen,
        /// Bytes of the answer put into it, including those in its queues.
        answer_sent: u64,
        /// True if these bytes are the whole answer.
        is_complete: bool,
    },
    /// The connection has ended here.
    Closed {
        /// The reason.
        reason: Ending,
        /// Bytes of the answer put into it.
        answer_sent: u64,
        /// These bytes are the whole answer, and the client has acknowledged them.
        is_complete: bool,
    },
    /// After the handshake: the agent has this connection of the owner's.
    Held {
        /// The address that moves.
        local: SocketAddr,
        /// The client's address.
        peer: SocketAddr,
        /// The owner's process that sent it.
        from: Instance,
    },
    /// The agent has named all connections, returns and endings of this owner.
    HeldEnd {
        /// True if nothing was dropped for lack of room: a connection that was not named was never
        /// taken.
        is_complete: bool,
    },
    /// Answers `PING`.
    Pong,
}

/// Numbers of kinds. `BODY` and the handshake are not [`Message`]s.
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
