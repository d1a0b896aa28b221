//! Plans that a core keeps, by text and keyspace.

use std::collections::HashMap;
use std::sync::Arc;

use super::Plan;
use crate::SECOND_NS;

/// Plans that are kept; beyond that those that are too old go, or all.
const PLANS_MAX: usize = 1_024;
/// Bytes of them. One with tables that take more than a part of it is made each time.
const BYTES_MAX: usize = 64 << 20;
const BYTES_OF_ONE_MAX: usize = BYTES_MAX / 8;

/// How long a plan is used beyond its time, for as long as it is made anew.
const STALE_NS: u64 = 30 * SECOND_NS;

/// The key of a plan: the keyspace of the session, and the text.
pub type Key = (Arc<str>, Arc<str>);

/// What is known of a text.
pub enum Entry {
    /// It is being planned under this number.
    Planning(u64),
    /// It is used until then, and a little longer while it is made anew under this number.
    Ready { plan: Arc<Plan>, bytes: usize, until_ns: u64, renewal: Option<u64>, is_wanted: bool },
}

/// True of a plan that is not too old, and was wanted again: texts that come once make no room for
/// others like them.
fn is_used(entry: &Entry, now_ns: u64) -> bool {
    matches!(entry, Entry::Ready { until_ns, is_wanted: true, .. } if now_ns < *until_ns + STALE_NS)
}

/// Plans of a core.
#[derive(Default)]
pub struct Plans {
    pub by_text: HashMap<Key, Entry>,
}

impl Plans {
    /// Lets go of plans where there is no room for one more of so many bytes: of those that are too
    /// old, or were not wanted again; then of all.
    pub fn make_room(&mut self, bytes: usize, now_ns: u64) {
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
    pub fn keep(&mut self, key: Key, plan: &Arc<Plan>, until_ns: u64, now_ns: u64) {
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
    pub fn forget(&mut self, key: &Key) {
        if let Some(Entry::Ready { .. }) = self.by_text.get(key) {
            self.by_text.remove(key);
        }
    }

    /// No plan that was made before now is used.
    pub fn forget_all(&mut self) {
        self.by_text.retain(|_, entry| matches!(entry, Entry::Planning(_)));
    }

    /// The plan of a text, if there is one that may be used; and whether it is time to make it
    /// anew. What has changed since is found out when it is used: tables are looked up by their
    /// ids, and those that it writes to by their columns, others by what is read.
    pub fn usable(&mut self, key: &Key, now_ns: u64) -> Option<(&Arc<Plan>, bool)> {
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
