//! Every bound of the dispatcher, with the relations between them checked when it is compiled.

use shunt_handover::limits::{CREDIT_BYTES, ETAG_BYTES_MAX, HEAD_BYTES_MAX};
use shunt_wire::http1::HeadLimits;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Requests in flight at one backend, from one event loop; more are answered with 503.
pub(crate) const IN_FLIGHT_MAX: usize = 4096;
/// Bytes written to a client and not taken by the kernel up to which more of its answer is asked
/// for.
pub(crate) const CLIENT_BACKLOG_BYTES_LOW: usize = 128 << 10;
/// Bytes that all clients of an event loop take up together: what they have not taken, and what was
/// not read of them. With more, those that have taken nothing for longest are cut off.
pub(crate) const CLIENTS_BYTES_MAX: usize = 512 << 20;
/// An answer's sender is given credit in parts of at least so many bytes.
pub(crate) const CREDIT_STEP_BYTES: u32 = CREDIT_BYTES / 4;
/// Interim answers (1xx) to one request of one backend. Its agent passes on no more.
pub(crate) const INTERIM_MAX: u32 = 64;
/// Bytes written to a control connection and not taken by the kernel beyond which no body is read
/// for it.
pub(crate) const LINK_BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Bodies are read again when that has fallen to this.
pub(crate) const LINK_BACKLOG_BYTES_LOW: usize = LINK_BACKLOG_BYTES_MAX / 4;

/// Beyond this no connection is sent to the agent: it would stand still until that is through.
pub(crate) const LINK_BACKLOG_BYTES_FREE: usize = 256 << 10;

/// The head of a request. It grows by a blank in each field, and by [`ADDED_BYTES`], when it is
/// passed on, and has to fit a message then.
pub(crate) const REQUEST_HEAD: HeadLimits =
    HeadLimits { head_bytes: 48 << 10, line_bytes: 16 << 10, fields: 128 };
/// What is added to a head: the client's address.
pub(crate) const ADDED_BYTES: usize = 128;
const REQUEST_HEAD_GROWN: usize = REQUEST_HEAD.head_bytes + 2 * REQUEST_HEAD.fields + ADDED_BYTES;

/// An answer of fewer bytes is soon there as a whole, and its rest is not worth a thought.
pub(crate) const RESUMED_BYTES_MIN: u64 = 64 << 10;
/// The head of a request that is kept for that while its answer is on its way.
pub(crate) const RESUMED_REQUEST_BYTES_MAX: usize = 8 << 10;
/// How often the rest of an answer is asked for.
pub(crate) const RESUMES_MAX: u8 = 3;
/// What a request for a rest has more than that for the whole.
const RESUMED_HEAD_BYTES: usize = 128 + ETAG_BYTES_MAX;

/// How often deadlines are looked at.
pub(crate) const TICK_NS: u64 = 100 * MS;
/// For a connection to an agent and the handshake on it.
pub(crate) const CONNECT_NS: u64 = 3 * SECOND;
/// A lost agent is tried again after this time first, and after twice the time each time it cannot
/// be reached.
pub(crate) const BACK_OFF_NS_MIN: u64 = 50 * MS;
/// No longer than this.
pub(crate) const BACK_OFF_NS_MAX: u64 = 2 * SECOND;
/// An agent is asked so often whether it is there.
pub(crate) const PING_NS: u64 = 3 * SECOND;
/// An agent of which nothing has come for so long is taken for lost.
pub(crate) const SILENCE_NS: u64 = 10 * SECOND;

const _: () = assert!(REQUEST_HEAD_GROWN + RESUMED_HEAD_BYTES <= HEAD_BYTES_MAX);
const _: () = assert!(LINK_BACKLOG_BYTES_LOW > CREDIT_BYTES as usize);
const _: () = assert!(CREDIT_STEP_BYTES > 0 && BACK_OFF_NS_MIN < BACK_OFF_NS_MAX);
const _: () = assert!(3 * PING_NS < SILENCE_NS);
