//! What a core knows of modes, and changes of them that are under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shunt_fleet::{Level, Shard};
use shunt_language::transaction::mode::TransactionalMode;
use shunt_locks::Ticket;

use crate::fleet::peers::Login;
use crate::ids::PoolId;
use shunt_transactions::catalogue::switching::{Full, Held};

/// A change of a table's mode that is under way.
pub(super) struct Change {
    pub(super) ticket: Ticket,
    /// Its client's, and the login of that: another may have its place by the time that it is
    /// asked.
    pub(super) pool: PoolId,
    pub(super) login: Login,
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(super) mode: TransactionalMode,
    /// What the table's comment is.
    pub(super) comment: String,
    pub(super) step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No node could be asked for the table yet, since this time: the core has just begun.
    Unasked(u64),
    /// The table is looked up.
    Table,
    /// It is looked at if it can have the mode.
    Columns,
    /// A node says if the client may change it.
    Allowed,
    /// What the fleet's row says is read.
    Current,
    /// The fleet's row is written.
    Row,
}

/// A core's knowledge of modes and rules from before it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Start {
    /// A quorum told of them, or this core has read them since.
    #[default]
    Known,
    /// One replica told of them, and no quorum. Statements on tables wait.
    InDoubt,
    /// Modes are in doubt still, and the wait is over: statements on tables are refused.
    Refuses,
}

/// A statement on a table with the mode `observe` that a node has answered otherwise than the
/// proxies would have.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) keyspace: Box<str>,
    pub(super) table: Box<str>,
    pub(super) statement: Arc<str>,
    pub(super) applied_by_node: Option<bool>,
    pub(super) applied_by_proxy: Option<bool>,
    /// When its answer came.
    pub(super) seen_ns: u64,
}

/// What a core knows of the modes.
#[derive(Default)]
pub(super) struct Modes {
    /// The shards of keyspaces that have a table with a mode.
    pub(super) shards: BTreeSet<Shard>,
    pub(super) next_ns: u64,
    pub(super) is_asked: bool,
    /// That of the fleet, as it was known last.
    pub(super) level: Option<Level>,
    pub(super) changes: HashMap<u64, Change>,
    pub(super) number: u64,
    /// When what is known was asked for, and what is asked now.
    pub(super) known_ns: Option<u64>,
    pub(super) asked_ns: u64,
    /// When time was last seen to pass, which is four times a second.
    pub(super) ticked_ns: u64,
    /// When this process went on after it had stood still: what was asked for before says nothing.
    pub(super) woke_ns: u64,
    /// The last answer of a node said that this proxy's role may not read the modes.
    pub(super) is_forbidden: bool,
    /// The knowledge with which this core began.
    pub(super) start: Start,
    /// From when on all proxies know which tables are observed.
    pub(super) compares_from_ns: u64,
    /// What counts if the tables' modes are still the same.
    pub(super) differences: Vec<Difference>,
    /// Tables between two modes.
    pub(super) held: Held,
    /// Tables that are read by transactions, and since when.
    pub(super) full: Full,
}
