//! Texts that are being planned, beside the plans that are kept.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Ticket;
use shunt_transactions::plan::cache::{Key, Plans};
use shunt_transactions::plan::schema::{Table, Types};
use shunt_transactions::plan::{Draft, Outline, ShownText};

use super::failed::Failed;

/// Who waits for a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Waiter {
    /// A transaction, by its number.
    Job(u64),
    /// A client that prepares it, with the text as it has sent it.
    Prepare(Ticket, Arc<str>),
}

/// A text that is being planned.
pub(super) struct Planning {
    pub(super) key: Key,
    pub(super) waiting: Vec<Waiter>,
    /// Whose share it counts to.
    pub(super) who: Arc<str>,
    /// A client prepares it.
    pub(super) is_prepare: bool,
    /// Taken when there is a draft.
    pub(super) outline: Option<Outline>,
    pub(super) types: Option<Types>,
    /// By table; those that are not there have none.
    pub(super) modes: HashMap<String, String>,
    pub(super) unfit: Option<String>,
    pub(super) tables: Vec<Option<Table>>,
    pub(super) draft: Option<Draft>,
    pub(super) shown: Vec<ShownText>,
    /// Questions that are not answered yet.
    pub(super) open: usize,
    pub(super) failed: Option<Failed>,
}

/// Plans of a core, and those in the making.
#[derive(Default)]
pub(super) struct Plannings {
    pub(super) plans: Plans,
    pub(super) planning: HashMap<u64, Planning>,
    pub(super) number: u64,
}
