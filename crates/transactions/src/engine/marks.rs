//! Low marks: up to which record of a shard's log everything is done. Whoever recovers the log
//! begins there, and partitions of it that lie below are deleted, once a quorum knows the mark.

use shunt_locks::Written;

use crate::engine::log::{Generation, Position};
use crate::engine::transactions::Transactions;
use crate::engine::types::Sink;
#[cfg(any(test, feature = "weakened"))]
use crate::engine::weakened::Without;

impl Transactions {
    /// Asks [`Sink::write_low`] for each shard whose mark has advanced and none of whose is on its
    /// way. How often it is called is how often marks are written; it looks at all shards. An old
    /// mark costs whoever recovers the shard time, and is never older than the shortest time for
    /// which tables keep what was deleted (`gc_grace_seconds`): writes of records above it are made
    /// again.
    pub fn tell_lows(&mut self, sink: &mut impl Sink) {
        for (number, shard) in (0u8..).zip(&mut self.shards).filter(|(_, shard)| shard.is_open) {
            if let Some(low) = shard.log.tell() {
                sink.write_low(number, shard.generation, low);
                #[cfg(any(test, feature = "weakened"))]
                if self.without == Some(Without::AcknowledgedLow) {
                    let buckets = shard.log.told(low, Written::Acknowledged);
                    buckets.for_each(|bucket| sink.delete_bucket(number, shard.generation, bucket));
                }
            }
        }
    }

    /// What has become of writing a low mark. Of a log that is not this core's any more it means
    /// nothing.
    pub fn low_written(
        &mut self,
        shard: u8,
        generation: Generation,
        low: Position,
        written: Written,
        sink: &mut impl Sink,
    ) {
        let Some(of) = self.shards.get_mut(usize::from(shard)) else { return };
        if of.is_open && of.generation == generation {
            for bucket in of.log.told(low, written) {
                sink.delete_bucket(shard, generation, bucket);
            }
        }
    }
}
