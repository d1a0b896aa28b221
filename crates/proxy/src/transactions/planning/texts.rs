//! Texts that are being planned, beside the plans that are kept.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Ticket;
use shunt_transactions::plan::cache::{Key, Plans};
use shunt_transactions::plan::schema::{Table, Types};
use shunt_transactions::plan::{Draft, Outline, PreparedText};

use crate::transactions::job::Failure;
use crate::transactions::planning::line::PlanningLine;

/// A waiter for a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Waiter {
    /// A transaction, by its number.
    Job(u64),
    /// A client that prepares the text as it has sent it.
    Prepare(Ticket, Arc<str>),
}

/// A text that is being planned.
pub(crate) struct Planning {
    pub(crate) key: Key,
    pub(crate) waiting: Vec<Waiter>,
    /// The client whose quota it counts against.
    pub(crate) who: Arc<str>,
    /// A client prepares it.
    pub(crate) is_prepare: bool,
    /// Moved into the draft once there is one.
    pub(crate) outline: Option<Outline>,
    pub(crate) types: Option<Types>,
    /// Modes by table; tables without a mode are missing.
    pub(crate) modes: HashMap<String, String>,
    pub(crate) unfit: Option<String>,
    pub(crate) tables: Vec<Option<Table>>,
    pub(crate) draft: Option<Draft>,
    pub(crate) shown: Vec<PreparedText>,
    /// Questions without an answer.
    pub(crate) open: usize,
    pub(crate) failed: Option<Failure>,
}

/// Plans of a core, and texts that are being planned.
#[derive(Default)]
pub(crate) struct Plannings {
    pub(crate) plans: Plans,
    pub(crate) planning: HashMap<u64, Planning>,
    pub(crate) number: u64,
    /// Transactions that wait until their texts may be planned.
    pub(super) line: PlanningLine,
    /// The line will be served: the effect is queued, or the timer is set.
    pub(super) is_line_due: bool,
}
