//! Every bound of the agent, with compile-time checks of the relations between them.

use shunt_handover::limits::{CREDIT_BYTES, HEAD_BYTES_MAX, LEASE_MS};
use shunt_wire::http1::HeadLimits;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Control connections at a time: the event loops of all dispatchers.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// Sessions that have not proved the key: other sessions keep room.
pub(crate) const HANDSHAKES_MAX: usize = SESSIONS_MAX / 2;
/// Such sessions of one host.
pub(crate) const HANDSHAKES_OF_HOST_MAX: usize = SESSIONS_MAX / 4;
/// Exchanges at a time; more are refused with 503.
pub(crate) const EXCHANGES_MAX: usize = 8192;
/// Unsent bytes on a control connection beyond which the agent reads no answer for it.
pub(crate) const SESSION_BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Backlog at which answers are read again.
pub(crate) const SESSION_BACKLOG_BYTES_LOW: usize = SESSION_BACKLOG_BYTES_MAX / 4;
/// Bytes of all requests that wait for a connection to the server; beyond it the largest are
/// refused with 503.
pub(crate) const WAITING_BYTES_MAX: usize = 128 << 20;
/// Unsent bytes of a request to the server up to which its sender gets more credit.
pub(crate) const UPSTREAM_BACKLOG_BYTES_LOW: usize = 64 << 10;

/// Bytes of large CQL answers taken in, offered, or going out on clients' own connections; beyond
/// it answers are passed on.
pub(crate) const KEPT_BYTES_MAX: usize = 128 << 20;
/// Unsent bytes on one side of a link beyond which the other side is not read.
pub(crate) const LINK_BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Backlog at which the other side is read again.
pub(crate) const LINK_BACKLOG_BYTES_LOW: usize = LINK_BACKLOG_BYTES_MAX / 4;
/// Delay before a client's connection goes back once its CQL answer is out, retried every sixteenth
/// of it. Milliseconds.
pub(crate) const CQL_IDLE_MS: u64 = 80;

/// Clients probed at a time so that they learn of their connections' end; others are not probed.
pub(crate) const ASKED_MAX: usize = 4_096;
/// Probes per client, the first at once: they outlast any steering entry that sends the client's
/// packets back here.
pub(crate) const ASKS_MAX: u8 = 8;
pub(crate) const ASK_NS: u64 = 5 * SECOND;
/// Clients probed in one tick.
pub(crate) const ASKS_AT_ONCE: usize = 128;
/// Time for which a probing connection may send. Milliseconds.
pub(crate) const ASK_MS: u64 = 1_000;
/// Interval at which entries past their leases are removed.
pub(crate) const TIDY_NS: u64 = 10 * SECOND;

/// Shortest and longest delay between checks for a client's last acknowledgement.
pub(crate) const LOOK_NS_MIN: u64 = MS / 5;
pub(crate) const LOOK_NS_MAX: u64 = 50 * MS;

/// Unsent bytes of an answer on a client's connection beyond which no more of it is read.
pub(crate) const DIRECT_BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Backlog at which the answer is read again.
pub(crate) const DIRECT_BACKLOG_BYTES_LOW: usize = DIRECT_BACKLOG_BYTES_MAX / 4;

/// Limits of an answer's head. Passing it on adds a blank to each field; the result must fit a
/// message.
pub(crate) const ANSWER_HEAD: HeadLimits =
    HeadLimits { head_bytes: 48 << 10, line_bytes: 16 << 10, fields: 128 };
/// Bytes of the longest head with its added blanks.
const ANSWER_HEAD_GROWN: usize = ANSWER_HEAD.head_bytes + 2 * ANSWER_HEAD.fields;

/// Interim answers (1xx) to one request; a server that sends more would never finish.
pub(crate) const INTERIM_MAX: u32 = 64;

/// An exchange is slow if its client, and not the server, caused it to move fewer than
/// [`PACE_BYTES_MIN`] bytes in this time. While requests wait for a connection to the server, slow
/// answers keep at most half of them, and slow exchanges of one client a part (`shares.rs`).
pub(crate) const PACE_INTERVAL_NS: u64 = 3 * SECOND;
pub(crate) const PACE_BYTES_MIN: u64 = 64 << 10;

/// Once a request has waited this long for a connection, exchanges that their clients hold up and
/// that move fewer than [`CROWD_BYTES_MIN`] bytes in [`PACE_INTERVAL_NS`] are slow too. Those of
/// all clients together keep a part of the connections then.
pub(crate) const LONG_WAIT_NS: u64 = 2 * PACE_INTERVAL_NS;
pub(crate) const CROWD_BYTES_MIN: u64 = 1 << 20;

/// Time for which a client is kept to its share of the connections after its slow exchanges kept
/// another waiting.
pub(crate) const LIMITED_NS: u64 = 30 * SECOND;

/// Time between two log lines of a kind that others can cause.
pub(crate) const LOG_INTERVAL_NS: u64 = SECOND;
/// Interval at which deadlines are checked.
pub(crate) const TICK_NS: u64 = 100 * MS;
/// Time from a control connection's start until both sides have proved that they have the key.
pub(crate) const HANDSHAKE_NS: u64 = 5 * SECOND;
/// A control connection silent for this long counts as lost; dispatchers send something each third
/// of it.
pub(crate) const SESSION_SILENCE_NS: u64 = 30 * SECOND;
/// Time limit for a connect to the server, which is on this host.
pub(crate) const CONNECT_NS: u64 = 3 * SECOND;
/// Validity of an offer.
pub(crate) const OFFER_NS: u64 = 30 * SECOND;
/// Idle time after which a connection to the server is closed; stock servers close after 60
/// to 75 s.
pub(crate) const IDLE_NS: u64 = 30 * SECOND;

const _: () = assert!((ASKS_MAX as u64 - 1) * ASK_NS > LEASE_MS * MS);
// A client never waits longer for its first probe than for the next one.
const _: () = assert!(ASKED_MAX.div_ceil(ASKS_AT_ONCE) as u64 * TICK_NS <= ASK_NS);
const _: () = assert!(ANSWER_HEAD_GROWN <= HEAD_BYTES_MAX);
const _: () = assert!(SESSION_BACKLOG_BYTES_LOW > CREDIT_BYTES as usize);
const _: () = assert!(HANDSHAKE_NS < SESSION_SILENCE_NS);
const _: () = assert!(PACE_BYTES_MIN < CROWD_BYTES_MIN);
