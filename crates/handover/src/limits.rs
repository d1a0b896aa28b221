//! Bounds of the control protocol and of both state machines. An answer that would exceed one is
//! relayed.

/// Bytes of a message, except those that carry a body: a connection with full queues, and the
/// fields around it.
pub const MESSAGE_BYTES_MAX: usize = FROZEN_BYTES_MAX + 64;
/// Bytes of a body in one message. Bodies pass through as they come, so this bounds no buffer; it
/// keeps one exchange from holding up the others of a control connection.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Bytes of the head of a request or an answer.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of an entity tag; the agent leaves out a longer one.
pub const ETAG_BYTES_MAX: usize = 256;
/// Bytes of the text that says why an exchange failed.
pub const REASON_BYTES_MAX: usize = 512;
/// Bytes of each outgoing queue of a moving connection: sent and unacknowledged, and unsent.
pub const QUEUE_BYTES_MAX: usize = 64 << 10;
/// Receive buffer set for a client whose connection may be handed over at any time, perhaps with
/// many queries pending.
pub const OWNER_RECEIVE_BYTES: usize = 64 << 10;
/// Receive buffer set for a client whose connection is with an agent, which reads nothing. The
/// kernel takes in up to one more packet, which may be merged from many.
pub const RECEIVE_BYTES: usize = 128 << 10;
/// Unread bytes of a moving connection: those seen at first, and those that came behind.
pub const UNREAD_BYTES_MAX: usize = 2 * (RECEIVE_BYTES + (64 << 10)) + (64 << 10);
/// Bytes of a whole moving connection: three queues and its state.
pub const FROZEN_BYTES_MAX: usize = 2 * QUEUE_BYTES_MAX + UNREAD_BYTES_MAX + 128;
/// Shortest key; shorter ones can be guessed.
pub const KEY_BYTES_MIN: usize = 16;
/// Longest key; a longer one must be a wrong file.
pub const KEY_BYTES_MAX: usize = 4096;

const _: () = assert!(
    HEAD_BYTES_MAX + ETAG_BYTES_MAX < MESSAGE_BYTES_MAX && REASON_BYTES_MAX < MESSAGE_BYTES_MAX
);

/// Bytes of a body that either side may send before its first `CREDIT`.
pub const CREDIT_BYTES: u32 = 256 << 10;

/// Connections that an owner or agent has handed over, or is handing over, at a time.
pub const FLOWS_MAX: usize = 4_096;
/// An owner's connections on their way: each may have a copy of its queues, 144 MiB in all.
pub const MOVES_MAX: usize = 256;
/// Offered answers that no owner has requested yet.
pub const OFFERS_MAX: usize = 1_024;
/// Bytes of bodies that an agent keeps for all offers.
pub const BUDGET_BYTES: u64 = 64 << 20;
/// Bytes kept for one offer: those that may arrive while the owner decides.
pub const BUDGET_BYTES_EACH: u64 = 256 << 10;
/// Endings that an agent keeps until their owners have confirmed them.
pub const ENDED_MAX: usize = 16_384;
/// Tries to freeze a connection whose bytes keep moving.
pub const FREEZES_MAX: u8 = 8;

/// Lifetime of a steering entry without renewal, milliseconds.
pub const LEASE_MS: u64 = 30_000;
/// Time limit for the answer to a `TAKE`, which may queue behind bodies. When it passes, the
/// control connection ends with everything on it.
pub const TAKEN_MS: u64 = 6_000;
/// Time for which an owner that has lost an agent waits to learn whether a connection was taken.
pub const DOUBT_MS: u64 = 8_000;
/// Time for which an owner waits for a lost agent that has connections.
pub const LOST_MS: u64 = 15_000;
/// Time after its start for which an owner waits for agents to report connections that its
/// predecessor handed over.
pub const PINNED_MS: u64 = 10_000;
/// Interval between checks of a client's progress after its agent was lost. Kernels answer probes
/// at most twice a second.
pub const LOOK_MS: u64 = 600;
/// Checks before the connection is given up.
pub const LOOKS_MAX: u8 = 20;
/// Farthest that a client's first acknowledgement may be from the last one known, in bytes: as in
/// `bpf/handover.bpf.c`, which ignores one that is farther from the one before.
pub(crate) const WINDOW_MAX: u32 = 32 << 20;
/// Bytes of requests kept for a connection that an agent has; with more it ends if the agent is
/// lost.
pub const KEPT_BYTES_MAX: usize = 4 << 10;
/// Validity of an offer, milliseconds.
pub const OFFER_MS: u64 = 10_000;
/// Time for which an agent keeps connections, returns and endings of a lost owner, milliseconds.
pub const ORPHAN_MS: u64 = 15_000;
/// Time for which an agent keeps a connection whose client takes nothing, milliseconds.
pub const STALL_MS: u64 = 60_000;
/// Time for which an agent lets its end of a connection out whose client has ended it,
/// milliseconds.
pub const END_MS: u64 = 5_000;
/// Time for which an agent keeps a connection whose answer is out and whose client is silent,
/// milliseconds.
pub const IDLE_MS: u64 = 5_000;

// An ending outlives any owner's doubt about its connection: otherwise the owner would take a
// forgotten connection for one never taken.
const _: () = assert!(ORPHAN_MS > TAKEN_MS + DOUBT_MS);
// A connection is steered for as long as an owner or agent waits for it.
const _: () = assert!(LEASE_MS * 2 / 3 > LOST_MS && LOST_MS >= ORPHAN_MS && MOVES_MAX <= FLOWS_MAX);
// If a client was promised more room than there is, Linux drops its packets together with the
// acknowledgements in them (RFC 7323, section 2.4, wants these accepted): both sides stall.
const _: () = assert!(OWNER_RECEIVE_BYTES * 2 <= RECEIVE_BYTES);
const _: () = assert!(BUDGET_BYTES_EACH * 16 <= BUDGET_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    /// A dispatcher takes a client's number for right that the program let in, and no other.
    #[test]
    fn the_window_is_that_of_the_packet_program() {
        let program = include_str!("../../../bpf/handover.bpf.c");
        let line = program.lines().find_map(|line| line.strip_prefix("#define WINDOW_MAX "));
        let (bytes, shift) = line
            .and_then(|value| value.trim_matches(['(', ')']).split_once(" << "))
            .expect("a number that is shifted");
        let window = bytes.parse::<u32>().expect("a number") << shift.parse::<u32>().expect("one");
        assert_eq!(window, WINDOW_MAX);
    }
}
