//! The state that a core keeps of one client connection, and all that happens to it beside its
//! queries.
//!
//! [`login`] lets it into a pool (logging in and USE), [`events`] tells it of changes of the schema
//! and [`announce`] of those of the fleet, [`deadlines`] and [`closing`] end it, [`heavy`] says
//! whose large requests are read first, [`inbox`] is that of the proxy itself, which is a client
//! too, [`who`] and [`census`] show it to operators. [`clients`] holds them all.

pub(crate) mod announce;
pub mod census;
pub(crate) mod clients;
pub(crate) mod closing;
pub(crate) mod deadlines;
pub(crate) mod events;
pub(crate) mod heavy;
pub(crate) mod inbox;
pub(crate) mod login;
mod news;
pub(crate) mod who;

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_admin::Label as _;
use shunt_reactor::ConnId;
use shunt_wire::cql::compression::{self, Algorithm, CompressionError};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::reader::EnvelopeReader;

use crate::client::who::Driver;
use crate::fault::Fault;
use crate::fleet::roster::Fleet;
use crate::ids::PoolId;
use crate::limits;
use crate::locks::requests;
use crate::metrics::StallReason;

/// Reasons for not reading from a client; it is read from only while there are none. The bits are
/// in the order of [`StallReason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stall(u8);

impl Stall {
    /// The ring is not known yet.
    pub(crate) const CLUSTER: Stall = Stall(1);
    /// No link of its pool is open.
    pub(crate) const POOL: Stall = Stall(2);
    /// The link its next query must take is full.
    pub(crate) const LINK: Stall = Stall(4);
    /// It does not take its replies.
    pub(crate) const REPLIES: Stall = Stall(8);
    /// A login or USE is under way; what comes after it depends on it.
    pub(crate) const SWITCH: Stall = Stall(16);
    /// The proxy is shutting down.
    pub(crate) const DRAIN: Stall = Stall(32);
    /// The proxy stood still, and does not know yet which tables take part in transactions.
    pub(crate) const MODES: Stall = Stall(64);
    /// Its next request takes long to read, and others come first.
    pub(crate) const HEAVY: Stall = Stall(128);

    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    pub(crate) fn has(self, reason: Stall) -> bool {
        self.0 & reason.0 != 0
    }

    pub(crate) fn set(&mut self, reason: Stall) {
        self.0 |= reason.0;
    }

    pub(crate) fn clear(&mut self, reason: Stall) {
        self.0 &= !reason.0;
    }

    /// Each reason by itself.
    pub(crate) fn reasons(self) -> impl Iterator<Item = StallReason> {
        StallReason::ALL.iter().copied().filter(move |reason| self.0 & (1 << reason.index()) != 0)
    }
}

/// How far a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing but OPTIONS and STARTUP is allowed.
    Startup,
    /// AUTHENTICATE was sent.
    Authenticating,
    /// Logged in; queries are taken.
    Ready,
    /// There is no room for it: whatever it asks for first is answered with that.
    TurnedAway,
}

/// A client that asked for something the proxy must finish before it reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    /// The pool it will belong to.
    pub(crate) pool: PoolId,
    /// Stream id of the request to answer.
    pub(crate) stream: i16,
    /// True for a login, false for a USE.
    pub(crate) login: bool,
    /// When it is given up, nanoseconds.
    pub(crate) deadline_ns: u64,
}

/// The kinds of events that a client asked for (REGISTER).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registered {
    pub(crate) schema: bool,
    pub(crate) topology: bool,
    pub(crate) status: bool,
}

impl Registered {
    /// True if changes of the fleet are events to it.
    pub(crate) fn hosts(self) -> bool {
        self.topology || self.status
    }
}

/// One client connection.
pub(crate) struct Client {
    pub(crate) conn: ConnId,
    /// Never 0 and never reused soon: names the client in aggregated frames and detects replies for
    /// a client gone.
    pub(crate) id: u32,
    pub(crate) phase: Phase,
    /// Set by STARTUP; 0 before.
    pub(crate) version: u8,
    /// v3/v4: bodies may be compressed with this.
    pub(crate) compression: Option<Algorithm>,
    /// v5: envelopes travel in segments (after the answer to STARTUP).
    pub(crate) segmented: bool,
    /// v5: segments are LZ4.
    pub(crate) lz4: bool,
    /// STARTUP option NO_COMPACT, which changes what tables look like.
    pub(crate) no_compact: bool,
    pub(crate) writer: SegmentWriter,
    /// v5: whether `writer` has a segment to finish this turn.
    pub(crate) dirty: bool,
    pub(crate) reader: EnvelopeReader,
    pub(crate) pool: Option<PoolId>,
    pub(crate) switch: Option<Switch>,
    /// The events that it asked for.
    pub(crate) registered: Registered,
    /// The fleet that it was told of last, if it asked for events about hosts; `None`: it was told
    /// of no other proxy.
    pub(crate) told: Option<Arc<Fleet>>,
    pub(crate) stalls: Stall,
    /// Since when POOL or LINK hold it, nanoseconds; 0: they do not.
    pub(crate) stalled_since_ns: u64,
    /// POOL or LINK held it too long: the next query is refused instead of held.
    pub(crate) refuse_next: bool,
    pub(crate) in_flight: u32,
    /// The first of its requests for locks, if there is any.
    pub(crate) lock_requests: u32,
    /// Address it connected to, which is what `system.local` shows.
    pub(crate) local: SocketAddr,
    /// Address it connected from.
    pub(crate) peer: SocketAddr,
    /// The driver that it named in STARTUP.
    pub(crate) driver: Option<Arc<Driver>>,
    /// Its connection is with an agent, or on its way.
    pub(crate) is_away: bool,
    /// When it must be READY, or have been told that there is no room for it, nanoseconds.
    pub(crate) handshake_deadline_ns: u64,
    /// Since when an incomplete request is waiting for its rest; 0: none is.
    pub(crate) partial_since_ns: u64,
    /// Since when it has taken none of the replies it is held back for, nanoseconds.
    pub(crate) untaken_since_ns: u64,
    /// Writes to it that its kernel had taken by then.
    pub(crate) writes_taken: u64,
    /// It has waited for its turn to have a heavy request read.
    pub(crate) may_be_heavy: bool,
}

impl Client {
    pub(crate) fn new(
        conn: ConnId,
        id: u32,
        local: SocketAddr,
        peer: SocketAddr,
        deadline_ns: u64,
    ) -> Self {
        Self {
            conn,
            id,
            phase: Phase::Startup,
            version: 0,
            compression: None,
            segmented: false,
            lz4: false,
            no_compact: false,
            writer: SegmentWriter::new(false),
            dirty: false,
            reader: EnvelopeReader::default(),
            pool: None,
            switch: None,
            registered: Registered::default(),
            told: None,
            stalls: Stall::default(),
            stalled_since_ns: 0,
            refuse_next: false,
            in_flight: 0,
            lock_requests: requests::NONE,
            local,
            peer,
            driver: None,
            is_away: false,
            handshake_deadline_ns: deadline_ns,
            partial_since_ns: 0,
            untaken_since_ns: 0,
            writes_taken: 0,
            may_be_heavy: false,
        }
    }

    /// Reads a body that is compressed as a whole, as v3 and v4 do.
    pub(crate) fn decompress(&self, body: &[u8], plain: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(algorithm) = self.compression else {
            return Err(Fault::protocol(
                "a body is flagged as compressed, but STARTUP asked for no compression",
            ));
        };
        plain.clear();
        let bytes_max = match self.phase {
            Phase::Ready => limits::REQUEST_BYTES_MAX,
            _ => limits::HANDSHAKE_BYTES_MAX,
        };
        compression::decompress(algorithm, body, bytes_max, plain).map_err(|error| match error {
            CompressionError::TooLarge { .. } => Fault::invalid(error.to_string()),
            _ => Fault::protocol(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stall_has_its_own_reason() {
        let stalls = [
            Stall::CLUSTER,
            Stall::POOL,
            Stall::LINK,
            Stall::REPLIES,
            Stall::SWITCH,
            Stall::DRAIN,
            Stall::MODES,
            Stall::HEAVY,
        ];
        let reasons: Vec<StallReason> = stalls.into_iter().flat_map(Stall::reasons).collect();
        assert_eq!(reasons, StallReason::ALL);
        let both = Stall(Stall::POOL.0 | Stall::DRAIN.0);
        assert_eq!(
            both.reasons().collect::<Vec<_>>(),
            [StallReason::NoLink, StallReason::Draining]
        );
    }
}
