//! Shards that are to be handed over.

use shunt_fleet::Shard;

/// A shard that is handed over when nothing of it is under way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draining {
    pub(crate) shard: Shard,
    pub(crate) number: u64,
    /// The highest token of its locks, microseconds.
    pub(crate) last_token_us: i64,
    pub(crate) memory_empty: bool,
}
