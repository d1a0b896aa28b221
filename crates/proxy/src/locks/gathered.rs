//! Questions to all cores, while they are under way.

use shunt_locks::Ticket;

use crate::locks::outbox::Verdict;

/// A question to all cores.
pub(super) struct Gathered {
    /// The client's request.
    pub(super) ticket: Ticket,
    /// Answers that have not come.
    pub(super) left: usize,
    /// What has come, as [`super::listing`] writes it.
    pub(super) list: Vec<u8>,
    /// Why a core does not tell.
    pub(super) refused: Option<Verdict>,
}

/// What a core saw of its locks.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) at_ns: u64,
    pub(super) most: u32,
    pub(super) list: Vec<u8>,
}
