//! A core's report on its locks and its fleet, for `/status`.

pub(crate) mod report;

use shunt_fleet::{Incarnation, Shown};

use crate::transactions::writes::attempts::Unmade;

/// Queues that are shown, of each core, and in the end of all.
pub(crate) const QUEUES_MAX: usize = 10;

/// Partitions with a row that cannot be read that are named, of each core, and in the end of all.
pub(crate) const UNREADABLE_MAX: usize = 10;

/// A lock, and the length of its queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Name of the lock.
    pub name: String,
    /// True for a lock whose grants are rows in Cassandra, false for one in memory.
    pub is_durable: bool,
    /// Owner of the lock, or the first of those who share it; `None` while it changes hands.
    pub owner: Option<String>,
    /// The holder shares it.
    pub is_shared: bool,
    /// The holder's token.
    pub fence: Option<i64>,
    /// Time left to the holder, in milliseconds.
    pub ttl_ms: Option<u32>,
    /// Number of waiting requests.
    pub waiters: u32,
}

/// The locks of one core, those with the longest queues first.
#[derive(Debug)]
pub struct CoreLockList {
    /// Number of the core.
    pub core: usize,
    /// Locks with their queues. None without a valid lease: others may have the locks by then.
    pub locks: Vec<Queue>,
    /// True if there may be more.
    pub is_cut: bool,
}

/// The fleet as core 0 knows it.
#[derive(Debug)]
pub struct FleetShown {
    /// This proxy.
    pub own: Incarnation,
    /// Number of times that shards have changed hands; -1 if it is unknown.
    pub epoch: i64,
    /// Time for which this proxy may grant locks without renewing its lease, in milliseconds.
    pub lease_left_ms: u64,
    /// The members, with this proxy.
    pub members: Vec<Shown>,
    /// Number of members that the list leaves out.
    pub others: usize,
}

/// The report of one core.
#[derive(Debug)]
pub struct CoreLocks {
    /// Number of the core.
    pub core: usize,
    /// The longest first. None without a valid lease: others may have the locks by then.
    pub queues: Vec<Queue>,
    /// The fleet, from core 0 while it has a membership.
    pub fleet: Option<FleetShown>,
    /// The reason why there is no membership, from core 0.
    pub not_a_member: Option<String>,
    /// Partitions whose locks are not served for a row that no proxy can have written, with the
    /// name in that; [`UNREADABLE_MAX`] at most.
    pub unreadable: Vec<(u16, String)>,
    /// Tables with writes of committed transactions that cannot be made; the oldest first.
    pub unmade: Vec<Unmade>,
}

/// Keeps the longest queues.
pub(crate) fn longest(queues: &mut Vec<Queue>) {
    queues.sort_by(|a, b| b.waiters.cmp(&a.waiters).then_with(|| a.name.cmp(&b.name)));
    queues.truncate(QUEUES_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_queues_are_kept_in_order() {
        let queue = |number: u32| Queue {
            name: format!("{number:02}"),
            is_durable: number.is_multiple_of(2),
            owner: None,
            is_shared: false,
            fence: None,
            ttl_ms: None,
            waiters: number / 2,
        };
        let mut queues: Vec<Queue> = (0..40).map(queue).collect();
        longest(&mut queues);
        let names: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
        assert_eq!(names, ["38", "39", "36", "37", "34", "35", "32", "33", "30", "31"]);
    }
}
