//! Plans that a core keeps, by keyspace and text.

use std::collections::HashMap;
use std::sync::Arc;

use super::Plan;
use crate::SECOND_NS;

/// Plans that are kept. Beyond that, outdated plans and those that were not used again go first.
/// Then the role with the most loses the plan that it has not used for longest.
const PLANS_MAX: usize = 1_024;
/// Bytes of the plans that are kept.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of one plan; a larger plan is made each time.
const BYTES_OF_ONE_MAX: usize = BYTES_MAX / 8;

/// Time for which a plan is used beyond its time while it is being renewed.
const STALE_NS: u64 = 30 * SECOND_NS;

/// The key of a plan: the keyspace of the session, and the text.
pub type Key = (Arc<str>, Arc<str>);

/// The state of a text.
pub enum Entry {
    /// The text is being planned under this number.
    Planning(u64),
    /// The plan is used until `until_ns`, and a little longer while it is renewed under the number
    /// `renewal`.
    Ready {
        /// The plan.
        plan: Arc<Plan>,
        /// Approximate size of the plan.
        bytes: usize,
        /// End of its regular use.
        until_ns: u64,
        /// Number of the planning that renews it.
        renewal: Option<u64>,
        /// The plan was used again after it was made.
        is_wanted: bool,
        /// The role that had it made.
        who: Arc<str>,
        /// Time of its last use.
        used_ns: u64,
    },
}

/// True of a plan that is recent and was used again. Texts that come once make no room for others
/// like them.
fn is_used(entry: &Entry, now_ns: u64) -> bool {
    matches!(entry, Entry::Ready { until_ns, is_wanted: true, .. } if now_ns < *until_ns + STALE_NS)
}

/// Plans of a core.
#[derive(Default)]
pub struct Plans {
    /// Plans, and texts that are being planned.
    pub by_text: HashMap<Key, Entry>,
}

impl Plans {
    /// Makes room for a plan of so many bytes: drops plans that are outdated or were not used
    /// again, then those of the role with the most.
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
        while is_full(self) && self.push_one_out() {}
    }

    /// Drops the plan that the role with the most of them has not used for longest.
    fn push_one_out(&mut self) -> bool {
        let mut by_role: HashMap<&Arc<str>, (usize, u64, &Key)> = HashMap::new();
        let is_too_many = self.by_text.len() >= PLANS_MAX;
        for (key, entry) in &self.by_text {
            let Entry::Ready { bytes, who, used_ns, .. } = entry else { continue };
            let size = if is_too_many { 1 } else { *bytes };
            let (all, oldest_ns, oldest) = by_role.entry(who).or_insert((0, *used_ns, key));
            *all += size;
            if used_ns < oldest_ns {
                (*oldest_ns, *oldest) = (*used_ns, key);
            }
        }
        let most = by_role.into_values().max_by_key(|(all, ..)| *all);
        let Some(key) = most.map(|(_, _, oldest)| oldest.clone()) else { return false };
        self.by_text.remove(&key).is_some()
    }

    /// Keeps a plan that this role had made, unless it is too large.
    pub fn keep(
        &mut self,
        key: Key,
        plan: &Arc<Plan>,
        who: &Arc<str>,
        (until_ns, now_ns): (u64, u64),
    ) {
        let bytes = plan.bytes();
        let (who, is_wanted) = match self.by_text.remove(&key) {
            // A renewal.
            Some(Entry::Ready { who, .. }) => (who, true),
            _ => (Arc::clone(who), false),
        };
        if bytes <= BYTES_OF_ONE_MAX {
            self.make_room(bytes, now_ns);
            let (plan, renewal, used_ns) = (Arc::clone(plan), None, now_ns);
            let entry = Entry::Ready { plan, bytes, until_ns, renewal, is_wanted, who, used_ns };
            self.by_text.insert(key, entry);
        }
    }

    /// Drops a plan that is outdated.
    pub fn forget(&mut self, key: &Key) {
        if let Some(Entry::Ready { .. }) = self.by_text.get(key) {
            self.by_text.remove(key);
        }
    }

    /// Drops the plans for which this is true.
    pub fn forget_where(&mut self, is_outdated: impl Fn(&Plan) -> bool) {
        self.by_text
            .retain(|_, entry| !matches!(entry, Entry::Ready { plan, .. } if is_outdated(plan)));
    }

    /// Drops all plans.
    pub fn forget_all(&mut self) {
        self.by_text.retain(|_, entry| matches!(entry, Entry::Planning(_)));
    }

    /// The plan of a text, if there is one, and whether it is time to renew it. Changes of tables
    /// show when a plan is used: by the ids of its tables, the columns of those that it writes, and
    /// the rows that it reads.
    pub fn usable(&mut self, key: &Key, now_ns: u64) -> Option<(&Arc<Plan>, bool)> {
        match self.by_text.get_mut(key)? {
            Entry::Ready { plan, until_ns, renewal, is_wanted, used_ns, .. }
                if now_ns < *until_ns + STALE_NS =>
            {
                (*is_wanted, *used_ns) = (true, now_ns);
                Some((plan, now_ns >= *until_ns && renewal.is_none()))
            }
            _ => None,
        }
    }
}
