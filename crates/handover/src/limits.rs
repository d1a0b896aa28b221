//! Bounds of the control protocol and of both state machines. Full means that an answer is relayed.

/// Bytes that a message may have, but for those with the bytes of a body: a connection with full
/// queues, and what is around it.
pub const MESSAGE_BYTES_MAX: usize = FROZEN_BYTES_MAX + 64;
/// Bytes of a body in one message. They are passed on as they come, so that this bounds no buffer;
/// it keeps one exchange from holding up the others of a control connection.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Bytes of the head of a request or an answer.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of an entity tag; a longer one is left out by the agent.
pub const ETAG_BYTES_MAX: usize = 256;
/// Bytes of the text that says why an exchange failed.
pub const REASON_BYTES_MAX: usize = 512;
/// Bytes of each outgoing queue of a connection that moves: what was sent and is not acknowledged,
/// and what is not sent.
pub const QUEUE_BYTES_MAX: usize = 64 << 10;
/// What a kernel is told to take in of a client whose connection may be handed over at any time, as
/// that of many queries may.
pub const OWNER_RECEIVE_BYTES: usize = 64 << 10;
/// What a kernel is told to take in of a client whose connection is with an agent, which reads
/// nothing. It takes up to one packet more, which may be put together from many.
pub const RECEIVE_BYTES: usize = 128 << 10;
/// Bytes of a connection that moves which are not read: what was there when the first of them were
/// seen, and what came behind.
pub const UNREAD_BYTES_MAX: usize = 2 * (RECEIVE_BYTES + (64 << 10)) + (64 << 10);
/// Bytes of a whole connection that moves: three queues and its state.
pub const FROZEN_BYTES_MAX: usize = 2 * QUEUE_BYTES_MAX + UNREAD_BYTES_MAX + 128;
/// Bytes that a key has to have at least: fewer can be tried out.
pub const KEY_BYTES_MIN: usize = 16;
/// Bytes that a key may have; more are a wrong file.
pub const KEY_BYTES_MAX: usize = 4096;

const _: () = assert!(
    HEAD_BYTES_MAX + ETAG_BYTES_MAX < MESSAGE_BYTES_MAX && REASON_BYTES_MAX < MESSAGE_BYTES_MAX
);

/// Bytes of a body that either side may send before it is given credit by `CREDIT`.
pub const CREDIT_BYTES: u32 = 256 << 10;

/// Connections that an owner or agent has handed over, or is handing over, at a time.
pub const FLOWS_MAX: usize = 4_096;
/// Of an owner's, those on their way: each may have a copy of its queues, 144 MiB in all.
pub const MOVES_MAX: usize = 256;
/// Answers that an agent has offered and nobody has asked for yet.
pub const OFFERS_MAX: usize = 1_024;
/// Bytes of bodies that an agent keeps for offers in all.
pub const BUDGET_BYTES: u64 = 64 << 20;
/// Of these, bytes for one offer: as many as the owner may take while it decides.
pub const BUDGET_BYTES_EACH: u64 = 256 << 10;
/// Endings that an agent keeps until their owner has heard of them.
pub const ENDED_MAX: usize = 16_384;
/// Tries to take a connection out of a host whose bytes go on moving.
pub const FREEZES_MAX: u8 = 8;

/// How long a steering entry is good for without being renewed, milliseconds.
pub const LEASE_MS: u64 = 30_000;
/// For the answer to a `TAKE`, which may have to wait behind bodies on their way. The control
/// connection is ended when it is over, and all that it is used for.
pub const TAKEN_MS: u64 = 6_000;
/// How long an owner waits to hear if a connection was taken, once it has lost the agent.
pub const DOUBT_MS: u64 = 8_000;
/// How long an owner waits for an agent that it has lost, and that has connections.
pub const LOST_MS: u64 = 15_000;
/// How long an owner waits, after it has started, to be told of connections that its predecessor
/// handed over.
pub const PINNED_MS: u64 = 10_000;
/// Between two looks how far a client is whose agent is lost. Kernels answer what asks that twice a
/// second at most.
pub const LOOK_MS: u64 = 600;
/// Looks until it is given up.
pub const LOOKS_MAX: u8 = 20;
/// Farthest that a client's first acknowledgement is from the last one known, in bytes: as in
/// `bpf/handover.bpf.c`, which takes none that is farther from the one before.
pub(crate) const WINDOW_MAX: u32 = 32 << 20;
/// Bytes of requests that are kept of a connection which an agent has; with more it ends with its
/// agent.
pub const KEPT_BYTES_MAX: usize = 4 << 10;
/// How long an offer is good for.
pub const OFFER_MS: u64 = 10_000;
/// How long an agent keeps connections, returns and endings for an owner that it has lost.
pub const ORPHAN_MS: u64 = 15_000;
/// How long an agent keeps a connection whose client takes nothing.
pub const STALL_MS: u64 = 60_000;
/// How long an agent keeps a connection whose answer is out and whose client says nothing.
pub const IDLE_MS: u64 = 5_000;

// An ending is kept longer than any owner can be in doubt of its connection: else it would take
// what was forgotten for what never was.
const _: () = assert!(ORPHAN_MS > TAKEN_MS + DOUBT_MS);
// A connection that somebody waits for is steered until the wait is over.
const _: () = assert!(LEASE_MS * 2 / 3 > LOST_MS && LOST_MS >= ORPHAN_MS && MOVES_MAX <= FLOWS_MAX);
// Where a client was promised more room than there is, its packets are dropped, and Linux drops
// with them what they acknowledge (RFC 7323, section 2.4, has them taken): both sides stand still.
const _: () = assert!(OWNER_RECEIVE_BYTES * 2 <= RECEIVE_BYTES);
const _: () = assert!(BUDGET_BYTES_EACH * 16 <= BUDGET_BYTES);
