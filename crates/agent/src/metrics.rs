//! Metrics of an agent: counts since its start, and current levels. Each event loop writes its own;
//! the admin thread reads them.

use shunt_admin::{Counter, Family, Gauge, Histogram, labels};
use shunt_handover::message::{Message, Refusal};

labels! {
    /// Path of an answer to its client.
    pub enum Way = "way" {
        /// Through the dispatcher.
        Relayed = "relayed",
        /// On the client's own connection.
        Direct = "direct",
    }
}

labels! {
    /// Why an answer that is or might be large was relayed.
    pub enum Why = "reason" {
        /// The dispatcher or proxy wanted the offered answer relayed; it counts the reason itself.
        Fetched = "fetched",
        /// A limit on offers, kept bytes or connections is reached.
        NoRoom = "no_room",
        /// The answer came in chunks and did not prove large in time.
        HoldOver = "hold_over",
        /// CQL: the proxy has no control connection for the offer.
        NoOwner = "no_owner",
        /// CQL: the proxy of an offered answer was lost, gave it up, or did not reply in time.
        Unsettled = "unsettled",
    }
}

labels! {
    /// Outcome of a connection that a dispatcher has sent.
    pub enum Taken = "outcome" {
        /// The connection is here.
        Taken = "taken",
        /// The ticket names no current offer.
        UnknownTicket = "unknown_ticket",
        /// The address is none of `--vip`.
        ForeignAddress = "foreign_address",
        /// A connection of the same addresses is here.
        Occupied = "occupied",
        /// The limit on connections is reached.
        Full = "full",
        /// The kernel did not restore the connection.
        NotRestored = "not_restored",
    }
}

labels! {
    /// End of a connection's stay.
    pub enum Left = "outcome" {
        /// Returned to its dispatcher.
        Returned = "returned",
        /// Closed by its client.
        Client = "client",
        /// Reset by its client.
        Reset = "reset",
        /// Closed here: the server broke the answer off, time ran out, or the dispatcher asked for
        /// it.
        Closed = "closed",
    }
}

/// Counts and times of one event loop.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Turns of the loop; liveness is judged by this counter.
    pub turns: Counter,
    /// Control connections.
    pub sessions: Gauge,
    /// Requests under way, including those that wait for a connection.
    pub exchanges: Gauge,
    /// Requests that wait for a connection to the server.
    pub waiting: Gauge,
    /// Connections to the server.
    pub upstreams: Gauge,
    /// Clients' connections that are here or on their way.
    pub flows: Gauge,
    /// Requests of dispatchers.
    pub requests: Counter,
    /// Answers that were sent whole.
    pub answers: Family<Way, { Way::COUNT }>,
    /// Bytes of bodies; for answers on clients' connections also of heads.
    pub answer_bytes: Family<Way, { Way::COUNT }>,
    /// Requests that failed here: a server error, or no room.
    pub failed: Counter,
    /// Answers offered to dispatchers.
    pub offers: Counter,
    /// Why large answers were relayed.
    pub relayed: Family<Why, { Why::COUNT }>,
    /// Answers currently offered.
    pub offered: Gauge,
    /// Bytes of large CQL answers held here.
    pub kept_bytes: Gauge,
    /// Outcomes of connections that dispatchers have sent.
    pub taken: Family<Taken, { Taken::COUNT }>,
    /// Connections that left, by outcome.
    pub left: Family<Left, { Left::COUNT }>,
    /// Time from an offer until the connection given for it is here.
    pub restore: Histogram,
    /// Time from a connection's arrival until it is restored: the last part of `restore`.
    pub arrival: Histogram,
    /// Time from a request until the first bytes of its answer are in the client's connection. HTTP
    /// only: the agent does not read CQL requests.
    pub first_byte: Histogram,
    /// Time from the first attempt to freeze a connection until the kernel has let it go.
    pub freeze: Histogram,
    /// Time from the kernel taking an answer's last byte until the owner confirms that it has the
    /// connection back.
    pub giving_back: Histogram,
}

impl Metrics {
    /// Counts the outcome that a message reports for a client's connection.
    pub(crate) fn count(&self, message: &Message<'_>) {
        let outcome = match message {
            Message::Taken => Taken::Taken,
            Message::Refused { reason: Refusal::UnknownTicket } => Taken::UnknownTicket,
            Message::Refused { reason: Refusal::ForeignAddress } => Taken::ForeignAddress,
            Message::Refused { reason: Refusal::Occupied } => Taken::Occupied,
            Message::Refused { reason: Refusal::Full } => Taken::Full,
            Message::Refused { reason: Refusal::NotRestored } => Taken::NotRestored,
            _ => return,
        };
        self.taken.of(outcome).add(1);
    }
}
