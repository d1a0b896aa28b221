//! Every bound of the agent, with the relations between them checked when it is compiled.

use shunt_handover::limits::{CREDIT_BYTES, HEAD_BYTES_MAX, LEASE_MS};
use shunt_wire::http1::HeadLimits;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Control connections at a time: the event loops of all dispatchers.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// Exchanges at a time; more are refused with 503.
pub(crate) const EXCHANGES_MAX: usize = 8192;
/// Bytes written to a control connection and not taken by the kernel beyond which no answer is read
/// for it.
pub(crate) const SESSION_BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Answers are read again when that has fallen to this.
pub(crate) const SESSION_BACKLOG_BYTES_LOW: usize = SESSION_BACKLOG_BYTES_MAX / 4;
/// Bytes of requests that wait for a connection to the server, over all; with more, those with the
/// most are refused with 503.
pub(crate) const WAITING_BYTES_MAX: usize = 128 << 20;
/// Bytes of a request written to the server and not taken by the kernel up to which its sender is
/// given more credit.
pub(crate) const UPSTREAM_BACKLOG_BYTES_LOW: usize = 64 << 10;

/// Bytes of large CQL answers that are taken in, offered, or on their way to clients on their own
/// connections; beyond it answers are passed on.
pub(crate) const KEPT_BYTES_MAX: usize = 128 << 20;
/// Bytes written to one side of a link and not taken by the kernel beyond which the other is not
/// read.
pub(crate) const LINK_BACKLOG_BYTES_MAX: usize = 1 << 20;
/// It is read again when that has fallen to this.
pub(crate) const LINK_BACKLOG_BYTES_LOW: usize = LINK_BACKLOG_BYTES_MAX / 4;
/// How soon a client's connection is given back once its CQL answer is out, tried again every
/// sixteenth of it. Milliseconds.
pub(crate) const CQL_IDLE_MS: u64 = 80;

/// How long a connection that its client has ended may still send: its own end leaves with what is
/// queued before it. Milliseconds.
pub(crate) const END_MS: u64 = 5_000;
/// Clients that are asked something so that they hear that their connections are nobody's. More are
/// not.
pub(crate) const ASKED_MAX: usize = 4_096;
/// How often such a client is asked, the first time at once: longer than any owner's steering entry
/// lasts that sends the answer back here.
pub(crate) const ASKS_MAX: u8 = 8;
pub(crate) const ASK_NS: u64 = 5 * SECOND;
/// How many are asked in one tick.
pub(crate) const ASKS_AT_ONCE: usize = 128;
/// How long what asks may send.
pub(crate) const ASK_MS: u64 = 1_000;
/// How often entries that are past their leases are removed.
pub(crate) const TIDY_NS: u64 = 10 * SECOND;

/// How soon, and how late at most, it is looked again if a client has all of its answer.
pub(crate) const LOOK_NS_MIN: u64 = MS / 5;
pub(crate) const LOOK_NS_MAX: u64 = 50 * MS;

/// Bytes of an answer put into a client's connection and not taken by the kernel beyond which no
/// more of it is read.
pub(crate) const DIRECT_BACKLOG_BYTES_MAX: usize = 1 << 20;
/// More is read when that has fallen to this.
pub(crate) const DIRECT_BACKLOG_BYTES_LOW: usize = DIRECT_BACKLOG_BYTES_MAX / 4;

/// The head of an answer. It grows by a blank in each field when it is passed on, and has to fit a
/// message then.
pub(crate) const ANSWER_HEAD: HeadLimits =
    HeadLimits { head_bytes: 48 << 10, line_bytes: 16 << 10, fields: 128 };
/// A head with the blanks that it gets.
const ANSWER_HEAD_GROWN: usize = ANSWER_HEAD.head_bytes + 2 * ANSWER_HEAD.fields;

/// Interim answers (1xx) to one request; a server that sends more never comes to an end.
pub(crate) const INTERIM_MAX: u32 = 64;

/// An answer is slow if its client, and not the server, is the reason that it moved fewer than
/// [`PACE_BYTES_MIN`] bytes in this time. While requests wait for a connection to the server, slow
/// answers keep at most half of them.
pub(crate) const PACE_INTERVAL_NS: u64 = 3 * SECOND;
pub(crate) const PACE_BYTES_MIN: u64 = 64 << 10;

/// How often deadlines are looked at.
pub(crate) const TICK_NS: u64 = 100 * MS;
/// From a control connection's begin until both sides have shown that they have the key.
pub(crate) const HANDSHAKE_NS: u64 = 5 * SECOND;
/// A control connection on which nothing has come for so long is taken for lost; dispatchers send
/// something each third of it.
pub(crate) const SESSION_SILENCE_NS: u64 = 30 * SECOND;
/// For a connection to the server, which is on this host.
pub(crate) const CONNECT_NS: u64 = 3 * SECOND;
/// How long an offer stands.
pub(crate) const OFFER_NS: u64 = 30 * SECOND;
/// A connection to the server that has nothing to do for so long is closed; stock servers do so
/// after 60 to 75 s.
pub(crate) const IDLE_NS: u64 = 30 * SECOND;

const _: () = assert!((ASKS_MAX as u64 - 1) * ASK_NS > LEASE_MS * MS);
// Nobody waits for the first time longer than for the next.
const _: () = assert!(ASKED_MAX.div_ceil(ASKS_AT_ONCE) as u64 * TICK_NS <= ASK_NS);
const _: () = assert!(ANSWER_HEAD_GROWN <= HEAD_BYTES_MAX);
const _: () = assert!(SESSION_BACKLOG_BYTES_LOW > CREDIT_BYTES as usize);
const _: () = assert!(HANDSHAKE_NS < SESSION_SILENCE_NS);
