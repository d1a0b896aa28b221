//! Partitions in which a row lies that no proxy can have written. None of their locks is served
//! until somebody has deleted it, so an operator has to be told, for as long as that lasts.

use std::collections::BTreeMap;

use shunt_fleet::Shard;
use shunt_locks::shard_of_bucket;

use crate::metrics::Partitions;

/// Damaged partitions of a core, each with the name in its first such row, printable.
#[derive(Debug, Default)]
pub(in crate::locks) struct DamagedPartitions(BTreeMap<u16, String>);

impl DamagedPartitions {
    pub(in crate::locks) fn add(&mut self, bucket: u16, name: String) {
        self.0.insert(bucket, name);
    }

    /// Removes a partition that was read to its end.
    pub(in crate::locks) fn remove(&mut self, bucket: u16) {
        self.0.remove(&bucket);
    }

    /// A shard is this core's no more: its next owner reads the rows.
    pub(in crate::locks) fn lose(&mut self, shard: Shard) {
        self.0.retain(|bucket, _| shard_of_bucket(*bucket) != shard);
    }

    /// The first `most` partitions.
    pub(in crate::locks) fn shown(&self, most: usize) -> Vec<(u16, String)> {
        self.0.iter().take(most).map(|(bucket, name)| (*bucket, name.clone())).collect()
    }

    /// Shows which there are.
    pub(in crate::locks) fn count(&self, metrics: &Partitions) {
        metrics.set(self.0.keys().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_told_of_until_it_was_read_or_its_shard_is_lost() {
        let (mut damaged, metrics) = (DamagedPartitions::default(), Partitions::default());
        let shown = |damaged: &DamagedPartitions| {
            damaged.count(&metrics);
            let shown = damaged.shown(9);
            assert_eq!(
                metrics.all().collect::<Vec<_>>(),
                shown.iter().map(|(bucket, _)| *bucket).collect::<Vec<_>>()
            );
            shown.into_iter().map(|(bucket, name)| format!("{bucket} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(shown(&damaged), [""; 0]);
        for (bucket, name) in [(1_023, "z"), (15, "a"), (16, "b"), (31, "c"), (15, "other")] {
            damaged.add(bucket, name.to_owned());
        }
        assert_eq!(shown(&damaged), ["15 other", "16 b", "31 c", "1023 z"]);
        damaged.remove(31);
        damaged.lose(0);
        assert_eq!(shown(&damaged), ["16 b", "1023 z"]);
        assert_eq!(damaged.shown(1).len(), 1);
        (1..64).for_each(|shard| damaged.lose(shard));
        assert_eq!(shown(&damaged), [""; 0]);
    }
}
