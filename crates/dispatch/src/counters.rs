//! What a dispatcher has done since its start.

/// Counts of one event loop.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Clients that have connected.
    pub clients: u64,
    /// Requests sent to a backend, each once.
    pub requests: u64,
    /// Answers that went out whole.
    pub answers: u64,
    /// Bytes of bodies of answers that passed through here.
    pub answer_bytes: u64,
    /// Answers that agents have offered to send themselves.
    pub offers: u64,
    /// Hand-overs that were begun.
    pub handed_over: u64,
    /// Of these, those of which the answer was relayed, or asked for elsewhere, after all.
    pub not_handed_over: u64,
    /// Of these, connections that came back with the whole answer.
    pub returned: u64,
    /// Of these, connections that ended before their answer was out.
    pub gone: u64,
    /// Requests sent to a second backend because the first had failed.
    pub repeated: u64,
    /// Errors answered here.
    pub errors: u64,
    /// Clients cut off within an answer, because the rest of it could not be had.
    pub cut: u64,
}
