//! The state that a core keeps of one client connection, and everything about a client beside its
//! queries.
//!
//! | module | subject |
//! |---|---|
//! | [`clients`] | the clients of a core |
//! | [`login`], [`certificate`] | how a client gets into a pool: by a login or USE, or by its certificate |
//! | [`login_line`], [`account`] | logins that wait for room; the party to which a login counts |
//! | [`events`], [`announce`] | events about the schema and about the fleet |
//! | [`heavy`] | the order of requests that take long to read |
//! | [`deadlines`], [`closing`] | the end of a client |
//! | [`inbox`] | answers to the proxy itself, which acts as a client too |
//! | [`identity`], [`traffic`], [`times`], [`census`], [`departed`] | clients as operators see them |
//! | [`eviction`], [`selection`], [`final_errors`] | clients that an operator closes, and errors for their requests |
//! | [`departure`] | the order in which a draining proxy closes its clients |
//! | [`refused_logins`] | logins that failed |
//! | [`version`] | the protocol version of requests |

pub(crate) mod account;
pub(crate) mod announce;
pub mod census;
pub(crate) mod certificate;
pub(crate) mod clients;
pub(crate) mod closing;
pub(crate) mod deadlines;
pub(crate) mod departed;
pub(crate) mod departure;
pub(crate) mod events;
pub(crate) mod eviction;
pub(crate) mod final_errors;
pub(crate) mod heavy;
pub(crate) mod identity;
pub(crate) mod inbox;
pub(crate) mod login;
pub(crate) mod login_failures;
pub(crate) mod login_line;
mod pending_logins;
mod news;
pub mod refused_logins;
pub(crate) mod review;
pub mod selection;
pub(crate) mod times;
pub(crate) mod traffic;
pub(crate) mod version;

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_admin::Label as _;
use shunt_handover::Flow;
use shunt_reactor::{ClientAddress, ConnId};
use shunt_wire::cql::compression::{self, Algorithm, CompressionError};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::reader::EnvelopeReader;

use crate::client::identity::Driver;
use crate::client::login_line::HeldLogin;
use crate::client::traffic::Traffic;
use crate::config::Identity;
use crate::fault::Fault;
use crate::fleet::requests;
use crate::fleet::roster::Fleet;
use crate::ids::{PoolId, TenantKey};
use crate::limits;
use crate::metrics::StallReason;
use crate::rules::client::ClientRules;

/// Reasons for not reading from a client; it is read from only while there are none. The bits are
/// in the order of [`StallReason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stall(u16);

impl Stall {
    /// The ring is not known yet.
    pub(crate) const CLUSTER: Stall = Stall(1);
    /// No link of its pool is open.
    pub(crate) const POOL: Stall = Stall(2);
    /// The link its next query must take is full.
    pub(crate) const LINK: Stall = Stall(4);
    /// The client does not take its replies.
    pub(crate) const REPLIES: Stall = Stall(8);
    /// A login or USE is in progress; later requests depend on it.
    pub(crate) const SWITCH: Stall = Stall(16);
    /// The proxy is shutting down.
    pub(crate) const DRAIN: Stall = Stall(32);
    /// The proxy was paused, and does not know yet which tables take part in transactions.
    pub(crate) const MODES: Stall = Stall(64);
    /// The client's next request takes long to read, and others come first.
    pub(crate) const HEAVY: Stall = Stall(128);
    /// The client's tenant has reached a limit.
    pub(crate) const TENANT: Stall = Stall(256);

    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    pub(crate) fn has(self, reason: Stall) -> bool {
        self.0 & reason.0 != 0
    }

    /// True with a reason for which a client waits `node_silence_ms` at most.
    pub(crate) fn is_bounded(self) -> bool {
        self.0 & (Self::POOL.0 | Self::LINK.0 | Self::TENANT.0) != 0
    }

    pub(crate) fn set(&mut self, reason: Stall) {
        self.0 |= reason.0;
    }

    pub(crate) fn clear(&mut self, reason: Stall) {
        self.0 &= !reason.0;
    }

    /// The single reasons.
    pub(crate) fn reasons(self) -> impl Iterator<Item = StallReason> {
        StallReason::ALL.iter().copied().filter(move |reason| self.0 & (1 << reason.index()) != 0)
    }
}

/// Progress of a client's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Only OPTIONS and STARTUP are allowed.
    Startup,
    /// AUTHENTICATE was sent.
    Authenticating,
    /// Logged in; queries are taken.
    Ready,
    /// The client is beyond `clients_max`: its first request gets that answer.
    TurnedAway,
}

/// A login or USE, which the proxy must finish before it reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    /// The client's next pool.
    pub(crate) pool: PoolId,
    /// Stream id of the request to answer.
    pub(crate) stream: i16,
    /// True for a login, false for a USE.
    pub(crate) login: bool,
    /// Deadline, nanoseconds.
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
    /// True if the client registered for changes of the fleet.
    pub(crate) fn hosts(self) -> bool {
        self.topology || self.status
    }
}

/// One client connection.
pub(crate) struct Client {
    pub(crate) conn: ConnId,
    /// Never 0 and not reused soon: names the client in aggregated frames and detects replies for a
    /// departed client.
    pub(crate) id: u32,
    pub(crate) phase: Phase,
    /// Protocol version, set by STARTUP; 0 before.
    pub(crate) version: u8,
    /// v3/v4: compression that bodies may have.
    pub(crate) compression: Option<Algorithm>,
    /// v5: true once envelopes travel in segments (after the answer to STARTUP).
    pub(crate) segmented: bool,
    /// v5: true if segments are LZ4.
    pub(crate) lz4: bool,
    /// STARTUP option NO_COMPACT, which changes what tables look like.
    pub(crate) no_compact: bool,
    pub(crate) writer: SegmentWriter,
    /// v5: true if `writer` has a segment to finish this turn.
    pub(crate) dirty: bool,
    pub(crate) reader: EnvelopeReader,
    pub(crate) pool: Option<PoolId>,
    pub(crate) switch: Option<Switch>,
    /// The login that waits for room.
    pub(crate) held_login: Option<Box<HeldLogin>>,
    /// The events that it registered for.
    pub(crate) registered: Registered,
    /// The fleet in its last event, if it registered for events about hosts; `None`: it knows no
    /// other proxy.
    pub(crate) told: Option<Arc<Fleet>>,
    pub(crate) stalls: Stall,
    /// Start of the time that POOL, LINK or TENANT hold it, nanoseconds; 0: they do not.
    pub(crate) stalled_since_ns: u64,
    /// True if POOL, LINK or TENANT held it too long: the proxy refuses the next query instead of
    /// holding it.
    pub(crate) refuse_next: bool,
    pub(crate) in_flight: u32,
    pub(crate) tenant: TenantKey,
    /// True if it is in the line of its tenant.
    pub(crate) is_in_tenant_line: bool,
    /// True if its next request has passed the rates of its tenant already.
    pub(crate) is_tenant_paid: bool,
    /// The rules that it matches, if it has sent a query under rules.
    pub(crate) rules: Option<Box<ClientRules>>,
    pub(crate) traffic: Traffic,
    /// First of its requests for locks, if any.
    pub(crate) lock_requests: u32,
    /// OPTIONS that it sent before it logged in.
    pub(crate) early_options: u8,
    /// Number of the client among those that have not logged in.
    pub(crate) pending_login: u64,
    /// Address it connected to, which `system.local` shows.
    pub(crate) local: SocketAddr,
    /// The client as the acceptor knows it.
    pub(crate) peer: ClientAddress,
    /// Version of its TLS; `None`: clear text.
    pub(crate) tls: Option<&'static str>,
    /// The identity that its certificate gave it.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The driver that it named in STARTUP.
    pub(crate) driver: Option<Arc<Driver>>,
    /// True while its connection is with an agent, or on its way.
    pub(crate) is_away: bool,
    /// True if its connection may not leave, because an operator closes it.
    pub(crate) stays: bool,
    /// Deadline for READY, or for the answer to a client beyond `clients_max`, nanoseconds.
    pub(crate) handshake_deadline_ns: u64,
    /// Arrival of an incomplete request, nanoseconds; 0 if there is none.
    pub(crate) partial_since_ns: u64,
    /// Start of the time in which it took none of the replies that hold it back, nanoseconds.
    pub(crate) untaken_since_ns: u64,
    /// Writes to it that its kernel had taken at that time.
    pub(crate) writes_taken: u64,
    /// True if it has waited in line for a heavy request.
    pub(crate) may_be_heavy: bool,
}

impl Client {
    pub(crate) fn new(
        conn: ConnId,
        id: u32,
        local: SocketAddr,
        peer: ClientAddress,
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
            held_login: None,
            registered: Registered::default(),
            told: None,
            stalls: Stall::default(),
            stalled_since_ns: 0,
            refuse_next: false,
            in_flight: 0,
            tenant: TenantKey::NONE,
            is_in_tenant_line: false,
            is_tenant_paid: false,
            rules: None,
            traffic: Traffic::default(),
            lock_requests: requests::NONE,
            local,
            peer,
            tls: None,
            identity: None,
            driver: None,
            is_away: false,
            stays: false,
            handshake_deadline_ns: deadline_ns,
            partial_since_ns: 0,
            untaken_since_ns: 0,
            writes_taken: 0,
            may_be_heavy: false,
            early_options: 0,
            pending_login: 0,
        }
    }

    /// True while the client waits for the verdict on its login.
    pub(crate) fn awaits_login(&self) -> bool {
        self.held_login.is_some() || self.switch.is_some_and(|switch| switch.login)
    }

    /// The addresses of its connection; `None` without a TCP connection of its own.
    pub(crate) fn flow(&self) -> Option<Flow> {
        Some(Flow { local: self.local, peer: self.peer.direct()? })
    }

    /// Decompresses a body that is compressed as a whole, as in v3 and v4.
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
            Stall::TENANT,
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
