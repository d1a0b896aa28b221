//! A core's state of tables' modes, and changes of modes that are under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shunt_fleet::{Level, Shard};
use shunt_language::transaction::mode::TransactionalMode;
use shunt_locks::Ticket;
use shunt_transactions::catalogue::switching::{Full, Held};

use crate::fleet::forwarding::Login;
use crate::ids::PoolId;
use crate::transactions::modes::polling::Polling;

/// A change of a table's mode.
pub(crate) struct Change {
    pub(crate) ticket: Ticket,
    /// The client's pool and the pool's login. Another login may have the pool by the time that a
    /// node is asked.
    pub(crate) pool: PoolId,
    pub(crate) login: Login,
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) mode: TransactionalMode,
    pub(crate) step: Step,
}

/// Steps of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// No node could be asked for the table yet, since this time: the core has just begun.
    Unasked(u64),
    /// The table is looked up.
    Table,
    /// The table's columns are checked against the mode.
    Columns,
    /// A node says whether the client may change the table.
    Allowed,
    /// The fleet's row is read.
    Current,
    /// The fleet's row is written.
    Row,
}

/// A node's answer on a table with the mode `observe` that differs from the proxies'.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) keyspace: Box<str>,
    pub(crate) table: Box<str>,
    pub(crate) statement: Arc<str>,
    pub(crate) applied_by_node: Option<bool>,
    pub(crate) applied_by_proxy: Option<bool>,
    /// Time of the answer.
    pub(crate) seen_ns: u64,
}

/// A core's state of modes.
#[derive(Default)]
pub(crate) struct Modes {
    /// Shards of keyspaces that have a table with a mode.
    pub(crate) shards: BTreeSet<Shard>,
    /// Questions for the modes.
    pub(crate) polling: Polling,
    /// The fleet's level, as last known.
    pub(crate) level: Option<Level>,
    pub(crate) changes: HashMap<u64, Change>,
    pub(crate) number: u64,
    /// Time of the last tick; there are four a second.
    pub(crate) ticked_ns: u64,
    /// The end of this process's last pause: answers to earlier questions are void.
    pub(crate) woke_ns: u64,
    /// The time of the control plane's question for the modes with which this core began; none: it
    /// has not begun.
    pub(crate) began_ns: Option<u64>,
    /// This core has known modes and rules: it began with young ones that a quorum told, or has
    /// read them since, or there are no tables of them.
    pub(crate) has_known: bool,
    /// Modes are in doubt still, and the wait is over: statements on tables are refused.
    pub(crate) refuses: bool,
    /// From this time on, every proxy knows which tables are observed.
    pub(crate) compares_from_ns: u64,
    /// Differences that count if the tables' modes are still the same.
    pub(crate) differences: Vec<Difference>,
    /// Tables between two modes.
    pub(crate) held: Held,
    /// Tables that transactions read, and since when.
    pub(crate) full: Full,
}

/// Polling state of the rules table.
#[derive(Debug, Default)]
pub(crate) struct RulesPolling {
    /// Questions for the rules.
    pub(crate) polling: Polling,
    /// Rows that are rules of no table.
    pub(crate) unread: Vec<Box<str>>,
    /// More rules may exist than are read.
    pub(crate) is_full: bool,
}
