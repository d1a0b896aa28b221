//! Partitions in which a row lies that no proxy can have written. None of their locks is served
//! until somebody has deleted it, so an operator has to be told, for as long as that lasts.

use std::collections::BTreeMap;

use shunt_fleet::Shard;
use shunt_locks::shard_of_bucket;

use crate::metrics::Partitions;

/// Those of a core, and of each the name in the first such row, as it may be shown.
#[derive(Debug, Default)]
pub(super) struct Unreadable(BTreeMap<u16, String>);

impl Unreadable {
    pub(super) fn add(&mut self, bucket: u16, name: String) {
        self.0.insert(bucket, name);
    }

    /// It was read to its end.
    pub(super) fn remove(&mut self, bucket: u16) {
        self.0.remove(&bucket);
    }

    /// A shard is this core's no more: its next owner reads the rows.
    pub(super) fn lose(&mut self, shard: Shard) {
        self.0.retain(|bucket, _| shard_of_bucket(*bucket) != shard);
    }

    /// So many at most.
    pub(super) fn shown(&self, most: usize) -> Vec<(u16, String)> {
        self.0.iter().take(most).map(|(bucket, name)| (*bucket, name.clone())).collect()
    }

    /// Shows which there are.
    pub(super) fn count(&self, metrics: &Partitions) {
        metrics.set(self.0.keys().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_told_of_until_it_was_read_or_its_shard_is_lost() {
        let (mut unreadable, metrics) = (Unreadable::default(), Partitions::default());
        let shown = |unreadable: &Unreadable| {
            unreadable.count(&metrics);
            let shown = unreadable.shown(9);
            assert_eq!(
                metrics.all().collect::<Vec<_>>(),
                shown.iter().map(|(bucket, _)| *bucket).collect::<Vec<_>>()
            );
            shown.into_iter().map(|(bucket, name)| format!("{bucket} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(shown(&unreadable), [""; 0]);
        for (bucket, name) in [(1_023, "z"), (15, "a"), (16, "b"), (31, "c"), (15, "other")] {
            unreadable.add(bucket, name.to_owned());
        }
        assert_eq!(shown(&unreadable), ["15 other", "16 b", "31 c", "1023 z"]);
        unreadable.remove(31);
        unreadable.lose(0);
        assert_eq!(shown(&unreadable), ["16 b", "1023 z"]);
        assert_eq!(unreadable.shown(1).len(), 1);
        (1..64).for_each(|shard| unreadable.lose(shard));
        assert_eq!(shown(&unreadable), [""; 0]);
    }
}
