//! State shared by all users of a cache and its SSD thread.

use tracing::warn;

use super::key::{Keys, Probe};
use super::locks::lock;
use super::row::CachedRow;
use super::shard::{Shard, ShardState};
use super::ssd::{Log, SsdTier};

pub(super) struct Shared {
    pub(super) keys: Keys,
    /// A power of two in number.
    pub(super) shards: Box<[Shard]>,
    pub(super) ssd: Option<SsdTier>,
}

impl Shared {
    pub(super) fn probe<'a>(&self, key: &'a [u8]) -> Probe<'a> {
        self.keys.probe(key)
    }

    /// Bits 32 to 37 choose the shard: buckets, tags and the hash table use other bits.
    pub(super) fn shard(&self, hash: u64) -> &Shard {
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }

    pub(super) fn log(&self) -> Option<&Log> {
        self.ssd.as_ref().map(|ssd| &ssd.log)
    }

    /// Inserts a row into memory under the given lock, and sends evicted rows to SSD after
    /// releasing it.
    pub(super) fn admit(
        &self,
        shard: &Shard,
        mut state: impl std::ops::DerefMut<Target = ShardState>,
        probe: &Probe<'_>,
        row: CachedRow,
        warm: bool,
    ) -> bool {
        let all_to_ssd = self.ssd.as_ref().is_some_and(|ssd| ssd.admit_all);
        let (admitted, evicted) = state.admit(probe, row, warm, &self.keys, all_to_ssd);
        drop(state);
        shard.counters.memory_evictions.add(evicted.rows);
        if let Some(ssd) = &self.ssd {
            for spill in evicted.spills {
                if !ssd.is_on() || !ssd.queue.push(spill) {
                    ssd.counters.rows_dropped.increment();
                }
            }
        }
        admitted
    }

    /// Turns the SSD tier off: first it accepts no more rows, then its index entries are removed.
    pub(super) fn turn_ssd_off(&self, why: &str) {
        let Some(ssd) = &self.ssd else { return };
        if !ssd.set_off() {
            return;
        }
        warn!(why, "the row cache goes on without its SSD tier until the process is started again");
        self.forget_ssd(ssd);
    }

    /// Empties the log and the indexes, and turns the tier on.
    pub(super) fn turn_ssd_on(&self, ssd: &SsdTier) -> std::io::Result<()> {
        let mut appender = lock(&ssd.appender);
        if ssd.is_on() {
            return Ok(());
        }
        // Another thread may still be turning the tier off.
        self.forget_ssd(ssd);
        ssd.set_on(&mut appender)
    }

    fn forget_ssd(&self, ssd: &SsdTier) {
        for shard in &self.shards {
            shard.write().forget_pages(0..u32::MAX, &ssd.log);
        }
    }
}
