//! What nodes have said of the rights of logins, and who waits for what they will say.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Ticket;

use super::known::Known;
use crate::hop::Login;

/// A right: of a login, on a table, to write if it says so.
pub(super) type Right = (Login, Box<str>, bool);

/// What nodes said, and who waits for what they will say.
#[derive(Default)]
pub(super) struct Allowed {
    /// Until when it counts for requests that come.
    pub(super) verdicts: HashMap<Right, u64>,
    pub(super) waiting: HashMap<u64, Waiting>,
    pub(super) bytes: usize,
    pub(super) number: u64,
}

pub(super) struct Waiting {
    /// Whose it is, and whether another proxy has forwarded it.
    pub(super) ticket: (Ticket, bool),
    pub(super) known: Arc<Known>,
    /// It names a lock; of `shunt.fast_locks`, if it says so.
    pub(super) guard: Option<bool>,
    pub(super) message: Vec<u8>,
    pub(super) came_ns: u64,
    /// What is being asked, and since when.
    pub(super) right: Right,
    pub(super) asked_ns: u64,
}
