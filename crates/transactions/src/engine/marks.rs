//! Low marks: up to which record of a shard's log everything is finished. A recovery begins there,
//! and partitions below are deleted once a quorum knows the mark.

use shunt_locks::Written;

use crate::engine::log::{Generation, Position};
use crate::engine::transactions::Transactions;
use crate::engine::types::Effects;
#[cfg(any(test, feature = "weakened"))]
use crate::engine::weakened::Without;

impl Transactions {
    /// Calls [`Effects::write_low`] for each shard whose mark has advanced, unless one is being
    /// written. The caller's interval is that of the marks; the call visits all shards. An old mark
    /// costs the next recovery time. It must not become older than `gc_grace_seconds` of the
    /// tables, since writes of records above it are repeated.
    pub fn tell_lows(&mut self, effects: &mut impl Effects) {
        for (number, shard) in (0u8..).zip(&mut self.shards).filter(|(_, shard)| shard.is_open) {
            if let Some(low) = shard.log.next_low() {
                effects.write_low(number, shard.generation, low);
                #[cfg(any(test, feature = "weakened"))]
                if self.without == Some(Without::AcknowledgedLow) {
                    let buckets = shard.log.low_written(low, Written::Acknowledged);
                    buckets
                        .for_each(|bucket| effects.delete_bucket(number, shard.generation, bucket));
                }
            }
        }
    }

    /// Takes in the outcome of writing a low mark. A log that is no longer this core's is ignored.
    pub fn low_written(
        &mut self,
        shard: u8,
        generation: Generation,
        low: Position,
        written: Written,
        effects: &mut impl Effects,
    ) {
        let Some(of) = self.shards.get_mut(usize::from(shard)) else { return };
        if of.is_open && of.generation == generation {
            for bucket in of.log.low_written(low, written) {
                effects.delete_bucket(shard, generation, bucket);
            }
        }
    }
}
