//! Requests of which nobody knows yet if they are allowed.

use std::collections::VecDeque;

use shunt_language::facade::Table;
use shunt_wire::cql::envelope::Header;

use crate::ids::ClientRef;

/// A request of which nobody knows yet if it is allowed.
pub(super) struct Waiting {
    pub(super) client: ClientRef,
    /// What it waits for a word on.
    pub(super) table: Table,
    pub(super) header: Header,
    pub(super) body: Box<[u8]>,
    pub(super) came_ns: u64,
}

/// All requests of a core that wait for a node's word.
#[derive(Default)]
pub(super) struct Judging {
    pub(super) waiting: VecDeque<Waiting>,
    /// Of their bodies.
    pub(super) bytes: usize,
    /// When they are looked at next.
    pub(super) look_ns: u64,
    /// Of the last question.
    pub(super) number: u64,
}
