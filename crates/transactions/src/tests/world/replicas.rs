//! Content of a replica: the registers, and the log with its low marks.

use std::collections::BTreeSet;

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Mutation {
    Register(usize, Value),
    /// With the time of the write, as the timestamps of the row and of the deletion have it.
    Record(Place, i64, Writes),
    DeleteBucket(Generation, u64, i64),
    /// With its timestamp.
    Low(Generation, i64, Position),
    DeleteLow(Generation),
}

/// Rows of the log, with the times at which they were written, and partitions of it that were
/// deleted, with that time.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    rows: BTreeMap<Place, (i64, Writes)>,
    deleted: BTreeMap<(Generation, u64), i64>,
}

impl Log {
    /// Adds to `found` what is here of a partition, from a place on.
    pub(super) fn read(&self, from: Place, found: &mut Log) {
        let (generation, bucket) = (from.generation, from.position.bucket());
        let end = Place { generation, position: Position::start_of(bucket + 1) };
        for (place, (written_us, writes)) in self.rows.range(from..end) {
            found.put(*place, *written_us, writes.clone());
        }
        if let Some(deleted_us) = self.deleted.get(&(generation, bucket)) {
            found.delete(generation, bucket, *deleted_us);
        }
    }

    fn put(&mut self, place: Place, written_us: i64, writes: Writes) {
        let row = self.rows.entry(place).or_insert((written_us, Vec::new()));
        if written_us >= row.0 {
            *row = (written_us, writes);
        }
    }

    fn delete(&mut self, generation: Generation, bucket: u64, deleted_us: i64) {
        let last = self.deleted.entry((generation, bucket)).or_insert(deleted_us);
        *last = (*last).max(deleted_us);
    }

    /// Cells written later than they were deleted.
    pub(super) fn visible(self) -> BTreeMap<Position, Writes> {
        let Self { rows, deleted } = self;
        let is_visible = |place: &Place, written_us: i64| {
            deleted
                .get(&(place.generation, place.position.bucket()))
                .is_none_or(|deleted_us| written_us > *deleted_us)
        };
        let visible =
            rows.into_iter().filter(|(place, (written_us, _))| is_visible(place, *written_us));
        visible.map(|(place, (_, writes))| (place.position, writes)).collect()
    }
}

#[derive(Default)]
pub(super) struct Replica {
    pub(super) registers: [Value; KEYS],
    pub(super) log: Log,
    lows: BTreeMap<Generation, (i64, Position)>,
    lows_deleted: BTreeSet<Generation>,
}

impl Replica {
    pub(super) fn take(&mut self, mutation: Mutation) {
        match mutation {
            Mutation::Register(key, value) => self.registers[key] = self.registers[key].max(value),
            Mutation::Record(place, written_us, writes) => self.log.put(place, written_us, writes),
            Mutation::DeleteBucket(generation, bucket, deleted_us) => {
                self.log.delete(generation, bucket, deleted_us)
            }
            Mutation::Low(generation, timestamp, low) => {
                let last = self.lows.entry(generation).or_insert((timestamp, low));
                *last = (*last).max((timestamp, low));
            }
            Mutation::DeleteLow(generation) => {
                self.lows_deleted.insert(generation);
            }
        }
    }

    pub(super) fn low(&self, generation: Generation) -> Option<(i64, Position)> {
        self.lows.get(&generation).filter(|_| !self.lows_deleted.contains(&generation)).copied()
    }
}
