//! Every bound of the dispatcher, with compile-time checks of the relations between them.

use shunt_handover::limits::{CREDIT_BYTES, ETAG_BYTES_MAX, HEAD_BYTES_MAX};
use shunt_wire::http1::HeadLimits;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Requests in flight at one backend, from one event loop; further ones get 503. An address alone
/// gets half of them.
pub(crate) const IN_FLIGHT_MAX: usize = 8192;
/// Unsent bytes to a client up to which more of its answer is requested.
pub(crate) const CLIENT_BACKLOG_BYTES_LOW: usize = 128 << 10;
/// Bytes of all clients of an event loop: unsent output and unread input. Beyond it the clients
/// that have taken nothing for longest are cut off.
pub(crate) const CLIENTS_BYTES_MAX: usize = 512 << 20;
/// Smallest step in which an answer's sender gets credit.
pub(crate) const CREDIT_STEP_BYTES: u32 = CREDIT_BYTES / 4;
/// Interim answers (1xx) to one request of one backend; agents pass on no more.
pub(crate) const INTERIM_MAX: u32 = 64;
/// Unsent bytes on a control connection beyond which no body is read for it.
pub(crate) const LINK_BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Backlog at which bodies are read again.
pub(crate) const LINK_BACKLOG_BYTES_LOW: usize = LINK_BACKLOG_BYTES_MAX / 4;

/// Backlog beyond which no connection is sent to the agent: it would stall behind these bytes.
pub(crate) const LINK_BACKLOG_BYTES_FREE: usize = 256 << 10;

/// Limits of a request's head. Passing it on adds a blank to each field and [`ADDED_BYTES`]; the
/// result must fit a message.
pub(crate) const REQUEST_HEAD: HeadLimits =
    HeadLimits { head_bytes: 48 << 10, line_bytes: 16 << 10, fields: 128 };
/// Bytes added to a head for the client's address.
pub(crate) const ADDED_BYTES: usize = 128;
const REQUEST_HEAD_GROWN: usize = REQUEST_HEAD.head_bytes + 2 * REQUEST_HEAD.fields + ADDED_BYTES;

/// Smallest answer that is resumed: shorter ones are soon complete.
pub(crate) const RESUMED_BYTES_MIN: u64 = 64 << 10;
/// Longest head of a request that is kept for resuming its answer.
pub(crate) const RESUMED_REQUEST_BYTES_MAX: usize = 8 << 10;
/// Requests for the rest of one answer.
pub(crate) const RESUMES_MAX: u8 = 3;
/// Bytes that a request for a rest adds to the original.
const RESUMED_HEAD_BYTES: usize = 128 + ETAG_BYTES_MAX;

/// Interval at which deadlines are checked.
pub(crate) const TICK_NS: u64 = 100 * MS;
/// Time limit for a connection to an agent and its handshake.
pub(crate) const CONNECT_NS: u64 = 3 * SECOND;
/// First delay before a lost agent is tried again; each failure doubles it.
pub(crate) const BACK_OFF_NS_MIN: u64 = 50 * MS;
/// Longest delay between tries.
pub(crate) const BACK_OFF_NS_MAX: u64 = 2 * SECOND;
/// Time for which an agent must stay connected so that the shortest delay follows its loss.
pub(crate) const STEADY_NS: u64 = 10 * SECOND;
/// Interval between pings to an agent.
pub(crate) const PING_NS: u64 = 3 * SECOND;
/// Silence after which an agent counts as lost.
pub(crate) const SILENCE_NS: u64 = 10 * SECOND;

const _: () = assert!(REQUEST_HEAD_GROWN + RESUMED_HEAD_BYTES <= HEAD_BYTES_MAX);
const _: () = assert!(LINK_BACKLOG_BYTES_LOW > CREDIT_BYTES as usize);
const _: () = assert!(CREDIT_STEP_BYTES > 0 && BACK_OFF_NS_MIN < BACK_OFF_NS_MAX);
const _: () = assert!(3 * PING_NS < SILENCE_NS);
