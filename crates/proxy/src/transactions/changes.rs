//! What a core knows of modes, and changes of them that are under way.

use std::collections::{BTreeSet, HashMap};

use shunt_fleet::Shard;
use shunt_language::transaction::mode::TransactionalMode;
use shunt_locks::Ticket;

use crate::hop::Login;
use crate::ids::PoolId;

/// A change of a table's mode that is under way.
pub(super) struct Change {
    pub(super) ticket: Ticket,
    /// Its client's, and the login of that: another may have its place by the time that it is asked.
    pub(super) pool: PoolId,
    pub(super) login: Login,
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(super) mode: TransactionalMode,
    pub(super) step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The table is looked up.
    Table,
    /// A node says if the client may change it.
    Allowed,
    /// The fleet's row is written.
    Row,
}

/// What a core knows of the modes.
#[derive(Default)]
pub(super) struct Modes {
    /// The shards of keyspaces that have a table with a mode.
    pub(super) shards: BTreeSet<Shard>,
    pub(super) next_ns: u64,
    pub(super) is_asked: bool,
    pub(super) changes: HashMap<u64, Change>,
    pub(super) number: u64,
}
