//! What a core counts of its locks.

use shunt_admin::{Family, Gauge, labels};

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
    }
}

/// Written at every tick of the core.
#[derive(Debug, Default)]
pub struct LockMetrics {
    /// Holds now.
    pub held: Gauge,
    /// Requests that wait for a lock, or for its row, now.
    pub waiting: Gauge,
    /// What happened to locks.
    pub events: Family<LockEvent, { LockEvent::COUNT }>,
    /// Shards of this proxy; core 0 knows.
    pub shards: Gauge,
    /// 1 while this proxy's lease is valid; core 0 knows.
    pub lease: Gauge,
    /// Dead members of the fleet whose work is not done; core 0 knows.
    pub unsealed: Gauge,
}
