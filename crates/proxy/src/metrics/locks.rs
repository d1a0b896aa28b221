//! A core's counters of its locks.

use shunt_admin::{Family, Gauge, labels};
use shunt_locks::BUCKETS;

labels! {
    /// An event of a lock.
    pub enum LockEvent = "event" {
        /// Granted, at once or after a wait.
        Granted = "granted",
        /// Granted after a wait; counted as granted too.
        WaitedFor = "waited_for",
        /// A wait for it timed out.
        WaitTimedOut = "wait_timed_out",
        /// Renewed.
        Renewed = "renewed",
        /// Released by its owner.
        Released = "released",
        /// Expired.
        Expired = "expired",
        /// In doubt: the client does not know whether it was granted.
        InDoubt = "in_doubt",
        /// Loaded from a row of an earlier owner of its shard.
        Loaded = "loaded",
        /// Written once more, because the outcome of the first write was unknown.
        WrittenAgain = "written_again",
        /// Obsolete rows were deleted.
        RowsDeleted = "rows_deleted",
    }
}

labels! {
    /// The answer to the question whether a role may use the locks of a table.
    pub enum PermissionAnswer = "answer" {
        /// The role may use them.
        Allowed = "allowed",
        /// The role may not use them.
        Refused = "refused",
        /// The node did not say.
        Failed = "failed",
    }
}

/// Words with a bit for each partition.
const WORDS: usize = BUCKETS.div_ceil(64);

/// A set of partitions of durable locks.
#[derive(Debug)]
pub struct Partitions([Gauge; WORDS]);

impl Default for Partitions {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Gauge::default()))
    }
}

impl Partitions {
    /// Replaces the set.
    pub(crate) fn set(&self, partitions: impl Iterator<Item = u16>) {
        let mut words = [0_u64; WORDS];
        for partition in partitions {
            words[usize::from(partition) / 64 % WORDS] |= 1 << (partition % 64);
        }
        self.0.iter().zip(words).for_each(|(gauge, word)| gauge.set(word));
    }

    /// The partitions in rising order.
    pub fn all(&self) -> impl Iterator<Item = u16> {
        let has = |partition: &usize| self.0[partition / 64].get() >> (partition % 64) & 1 == 1;
        (0..BUCKETS).filter(has).map(|partition| partition as u16)
    }
}

/// A core's lock metrics. Its tick writes them, except `permissions` and `foreign`.
#[derive(Debug, Default)]
pub struct LockMetrics {
    /// Locks held now.
    pub held: Gauge,
    /// Requests that wait for a lock, or for its row, now.
    pub waiting: Gauge,
    /// Events of locks.
    pub events: Family<LockEvent, { LockEvent::COUNT }>,
    /// Nodes' answers about the permissions of roles.
    pub permissions: Family<PermissionAnswer, { PermissionAnswer::COUNT }>,
    /// Tables of locks with rows; core 0 knows.
    pub foreign: Gauge,
    /// Partitions of durable locks whose locks are not served because of a row that no proxy can
    /// have written.
    pub unreadable: Partitions,
    /// Shards of this proxy; core 0 knows.
    pub shards: Gauge,
    /// 1 while this proxy's lease is valid; core 0 knows.
    pub lease: Gauge,
    /// 1 once an operator has told this proxy to leave: the caller that runs the process drains it;
    /// core 0 knows.
    pub told_to_leave: Gauge,
    /// Dead members of the fleet whose work is not finished; core 0 knows.
    pub unsealed: Gauge,
    /// The format of the fleet's rows if this version does not know it, else 0; core 0 knows.
    pub unknown_format: Gauge,
}
