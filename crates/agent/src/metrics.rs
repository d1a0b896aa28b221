//! What an agent has done since its start, and what it has now. Each event loop writes its own; the
//! admin thread reads them.

use shunt_admin::{Counter, Family, Gauge, Histogram, labels};
use shunt_handover::message::{Message, Refusal};

labels! {
    /// Which way an answer went to its client.
    pub enum Way = "way" {
        /// To the dispatcher.
        Relayed = "relayed",
        /// On the client's own connection.
        Direct = "direct",
    }
}

labels! {
    /// Why an answer was relayed that is large, or might have been.
    pub enum Why = "reason" {
        /// It was offered, and its dispatcher or proxy wanted it relayed, which counts why.
        Fetched = "fetched",
        /// As many offers, bytes kept for them, or connections are here as may be.
        NoRoom = "no_room",
        /// It came in chunks, and had not shown in time that it is large.
        HoldOver = "hold_over",
        /// CQL: there is no control connection of the proxy's to offer it by.
        NoOwner = "no_owner",
        /// CQL: it was offered, and the proxy was lost, gave it up, or has said nothing in time.
        Unsettled = "unsettled",
    }
}

labels! {
    /// What became of a connection that a dispatcher has sent.
    pub enum Taken = "outcome" {
        /// It is here.
        Taken = "taken",
        /// There is no such offer, or none any more.
        UnknownTicket = "unknown_ticket",
        /// Its address is none of `--vip`.
        ForeignAddress = "foreign_address",
        /// There is one of the same addresses.
        Occupied = "occupied",
        /// There are as many as may be.
        Full = "full",
        /// This host did not let it in.
        NotRestored = "not_restored",
    }
}

labels! {
    /// How a connection left.
    pub enum Left = "outcome" {
        /// It went back to its dispatcher.
        Returned = "returned",
        /// Its client closed it.
        Client = "client",
        /// Its client reset it.
        Reset = "reset",
        /// It was closed here: the server broke its answer off, its time was over, or its
        /// dispatcher said so.
        Closed = "closed",
    }
}

/// Counts and times of one event loop.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Counts up by one per turn of the loop; liveness is judged by it.
    pub turns: Counter,
    /// Control connections.
    pub sessions: Gauge,
    /// Requests being carried out, those that wait for a connection too.
    pub exchanges: Gauge,
    /// Of these, those that wait for a connection to the server.
    pub waiting: Gauge,
    /// Connections to the server.
    pub upstreams: Gauge,
    /// Clients' connections that are here, or on their way.
    pub flows: Gauge,
    /// Requests of dispatchers.
    pub requests: Counter,
    /// Answers that were sent whole.
    pub answers: Family<Way, { Way::COUNT }>,
    /// Bytes of bodies; of answers on clients' connections heads too.
    pub answer_bytes: Family<Way, { Way::COUNT }>,
    /// Requests that came to nothing here: the server failed, or there was no room.
    pub failed: Counter,
    /// Answers that dispatchers were asked about.
    pub offers: Counter,
    /// Why large answers were relayed.
    pub relayed: Family<Why, { Why::COUNT }>,
    /// Answers that are offered now.
    pub offered: Gauge,
    /// Bytes of large CQL answers that are here.
    pub kept_bytes: Gauge,
    /// What became of connections that dispatchers have sent.
    pub taken: Family<Taken, { Taken::COUNT }>,
    /// How connections left.
    pub left: Family<Left, { Left::COUNT }>,
    /// From an offer until the connection that was given for it is here.
    pub restore: Histogram,
    /// From a connection's arrival until it is here: the last part of that.
    pub arrival: Histogram,
    /// From a request until the first bytes of its answer are put into its client's connection.
    /// HTTP alone: requests of CQL are not looked at.
    pub first_byte: Histogram,
    /// From when a connection is to go back until the kernel has let go of it, however often that
    /// is tried.
    pub freeze: Histogram,
    /// From when the kernel has the last byte of an answer until the connection's owner has said
    /// that it has it again.
    pub giving_back: Histogram,
}

impl Metrics {
    /// Counts what a message says of a client's connection.
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
