//! What a core counts of its locks.

use shunt_admin::{Family, Gauge, labels};
use shunt_locks::BUCKETS;

labels! {
    /// What happened to a lock.
    pub enum LockEvent = "event" {
        /// It was granted, at once or after a wait.
        Granted = "granted",
        /// Of these, after a wait.
        WaitedFor = "waited_for",
        /// A wait for it ended without it.
        WaitTimedOut = "wait_timed_out",
        /// It was renewed.
        Renewed = "renewed",
        /// Its owner released it.
        Released = "released",
        /// Its time ran out.
        Expired = "expired",
        /// Its client was told that nobody knows if it was granted.
        InDoubt = "in_doubt",
        /// Its holder was read from a row of an earlier owner of its shard.
        Loaded = "loaded",
        /// Its row was written once more, because nobody knew if it had been.
        WrittenAgain = "written_again",
        /// Rows that said nothing any more were deleted.
        RowsDeleted = "rows_deleted",
    }
}

labels! {
    /// What came of asking a node if a role may use the locks of a table.
    pub enum PermissionAnswer = "answer" {
        /// It may.
        Allowed = "allowed",
        /// It may not.
        Refused = "refused",
        /// The node did not say.
        Failed = "failed",
    }
}

/// A bit for each.
const WORDS: usize = BUCKETS.div_ceil(64);

/// Some of the partitions that durable locks are kept in.
#[derive(Debug)]
pub struct Partitions([Gauge; WORDS]);

impl Default for Partitions {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Gauge::default()))
    }
}

impl Partitions {
    /// From now on these.
    pub(crate) fn set(&self, partitions: impl Iterator<Item = u16>) {
        let mut words = [0_u64; WORDS];
        for partition in partitions {
            words[usize::from(partition) / 64 % WORDS] |= 1 << (partition % 64);
        }
        self.0.iter().zip(words).for_each(|(gauge, word)| gauge.set(word));
    }

    /// In rising order.
    pub fn all(&self) -> impl Iterator<Item = u16> {
        let has = |partition: &usize| self.0[partition / 64].get() >> (partition % 64) & 1 == 1;
        (0..BUCKETS).filter(has).map(|partition| partition as u16)
    }
}

/// Written at every tick of the core, but for `permissions` and `foreign`.
#[derive(Debug, Default)]
pub struct LockMetrics {
    /// Holds now.
    pub held: Gauge,
    /// Requests that wait for a lock, or for its row, now.
    pub waiting: Gauge,
    /// What happened to locks.
    pub events: Family<LockEvent, { LockEvent::COUNT }>,
    /// What nodes said of the permissions of roles.
    pub permissions: Family<PermissionAnswer, { PermissionAnswer::COUNT }>,
    /// Tables of locks in which a row was found; core 0 knows.
    pub foreign: Gauge,
    /// Partitions of durable locks whose locks are not served for a row that no proxy can have
    /// written.
    pub unreadable: Partitions,
    /// Shards of this proxy; core 0 knows.
    pub shards: Gauge,
    /// 1 while this proxy's lease is valid; core 0 knows.
    pub lease: Gauge,
    /// 1 when an operator has told this proxy to leave: whoever runs the process drains it; core 0
    /// knows.
    pub told_to_leave: Gauge,
    /// Dead members of the fleet whose work is not done; core 0 knows.
    pub unsealed: Gauge,
    /// The format of the fleet's rows where it is one that this version does not know, else 0; core
    /// 0 knows.
    pub unknown_format: Gauge,
}
