//! Plans of a core, and texts that are being planned.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Ticket;

use super::failed::Failed;
use super::plan::{Draft, Outline, Plan, ShownText};
use super::schema::{Table, Types};

/// Who waits for a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Waiter {
    /// A transaction, by its number.
    Job(u64),
    /// A client that prepares it.
    Prepare(Ticket),
}

/// What is known of a text.
pub(super) enum Entry {
    /// It is being planned under this number.
    Planning(u64),
    Ready(Arc<Plan>, u64),
}

/// A text that is being planned.
pub(super) struct Planning {
    pub(super) key: (Arc<str>, Arc<str>),
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

pub(super) fn is_used(entry: &Entry, now_ns: u64) -> bool {
    matches!(entry, Entry::Ready(_, until_ns) if now_ns < *until_ns)
}

/// Plans of a core, and those in the making.
#[derive(Default)]
pub(super) struct Plans {
    pub(super) by_text: HashMap<(Arc<str>, Arc<str>), Entry>,
    pub(super) planning: HashMap<u64, Planning>,
    pub(super) number: u64,
}

impl Plans {
    /// A plan is not true any more.
    pub(super) fn forget(&mut self, key: &(Arc<str>, Arc<str>)) {
        if let Some(Entry::Ready(..)) = self.by_text.get(key) {
            self.by_text.remove(key);
        }
    }

    /// The plan of a text, if there is one that may be used.
    pub(super) fn ready(&self, key: &(Arc<str>, Arc<str>), now_ns: u64) -> Option<&Arc<Plan>> {
        match self.by_text.get(key)? {
            Entry::Ready(plan, until_ns) if now_ns < *until_ns => Some(plan),
            _ => None,
        }
    }
}
