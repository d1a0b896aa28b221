//! Plans of a core, and texts that are being planned.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Ticket;

use super::failed::Failed;
use super::plan::{Draft, Outline, Plan, ShownText};
use super::schema::{Table, Types};
use crate::limits::SECOND_NS;

/// Who waits for a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Waiter {
    /// A transaction, by its number.
    Job(u64),
    /// A client that prepares it, with the text as it has sent it.
    Prepare(Ticket, Arc<str>),
}

/// Plans that are kept; beyond that those that are too old go, or all.
const PLANS_MAX: usize = 1_024;
/// Bytes of them. One with tables that take more than a part of it is made each time.
const BYTES_MAX: usize = 64 << 20;
const BYTES_OF_ONE_MAX: usize = BYTES_MAX / 8;

/// How long a plan is used beyond its time, for as long as it is made anew.
const STALE_NS: u64 = 30 * SECOND_NS;

/// What is known of a text.
pub(super) enum Entry {
    /// It is being planned under this number.
    Planning(u64),
    /// It is used until then, and a little longer while it is made anew under this number.
    Ready { plan: Arc<Plan>, bytes: usize, until_ns: u64, renewal: Option<u64>, is_wanted: bool },
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

/// True of a plan that is not too old, and was wanted again: texts that come once make no room for
/// others like them.
pub(super) fn is_used(entry: &Entry, now_ns: u64) -> bool {
    matches!(entry, Entry::Ready { until_ns, is_wanted: true, .. } if now_ns < *until_ns + STALE_NS)
}

/// Plans of a core, and those in the making.
#[derive(Default)]
pub(super) struct Plans {
    pub(super) by_text: HashMap<(Arc<str>, Arc<str>), Entry>,
    pub(super) planning: HashMap<u64, Planning>,
    pub(super) number: u64,
}

impl Plans {
    /// Lets go of plans where there is no room for one more of so many bytes: of those that are too
    /// old, or were not wanted again; then of all.
    pub(super) fn make_room(&mut self, bytes: usize, now_ns: u64) {
        let kept = |entry: &Entry| if let Entry::Ready { bytes, .. } = entry { *bytes } else { 0 };
        let is_full = |plans: &Plans| {
            plans.by_text.len() >= PLANS_MAX
                || plans.by_text.values().map(kept).sum::<usize>() + bytes > BYTES_MAX
        };
        if is_full(self) {
            self.by_text
                .retain(|_, entry| matches!(entry, Entry::Planning(_)) || is_used(entry, now_ns));
        }
        if is_full(self) {
            self.by_text.retain(|_, entry| matches!(entry, Entry::Planning(_)));
        }
    }

    /// Keeps a plan in the place of what there is of its text, unless it takes too much.
    pub(super) fn keep(
        &mut self,
        key: (Arc<str>, Arc<str>),
        plan: &Arc<Plan>,
        until_ns: u64,
        now_ns: u64,
    ) {
        let (bytes, is_wanted) =
            (plan.bytes(), matches!(self.by_text.get(&key), Some(Entry::Ready { .. })));
        self.by_text.remove(&key);
        if bytes <= BYTES_OF_ONE_MAX {
            self.make_room(bytes, now_ns);
            let entry =
                Entry::Ready { plan: Arc::clone(plan), bytes, until_ns, renewal: None, is_wanted };
            self.by_text.insert(key, entry);
        }
    }

    /// A plan is not true any more.
    pub(super) fn forget(&mut self, key: &(Arc<str>, Arc<str>)) {
        if let Some(Entry::Ready { .. }) = self.by_text.get(key) {
            self.by_text.remove(key);
        }
    }

    /// No plan that was made before now is used.
    pub(super) fn forget_all(&mut self) {
        self.by_text.retain(|_, entry| matches!(entry, Entry::Planning(_)));
    }

    /// The plan of a text, if there is one that may be used; and whether it is time to make it
    /// anew. What has changed since is found out when it is used: tables are looked up by their
    /// ids, and those that it writes to by their columns, others by what is read.
    pub(super) fn usable(
        &mut self,
        key: &(Arc<str>, Arc<str>),
        now_ns: u64,
    ) -> Option<(&Arc<Plan>, bool)> {
        match self.by_text.get_mut(key)? {
            Entry::Ready { plan, until_ns, renewal, is_wanted, .. }
                if now_ns < *until_ns + STALE_NS =>
            {
                *is_wanted = true;
                Some((plan, now_ns >= *until_ns && renewal.is_none()))
            }
            _ => None,
        }
    }
}
