//! The log of a shard in one generation: the places of records, up to which all are finished, and
//! which low mark a quorum has.

use std::collections::VecDeque;
use std::ops::Range;

use shunt_locks::Written;

/// Records of one partition of the log: more than may be under way at once, so that no partition is
/// skipped and a reader may stop at the first empty one.
#[cfg(not(test))]
pub const BUCKET_RECORDS: u64 = 4_096;
/// Few enough that random histories fill, delete and recover many partitions.
#[cfg(test)]
pub const BUCKET_RECORDS: u64 = 4;

/// One owner's time with a shard, counted from 1. Each generation has a log of its own, with one
/// writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The number of a record in its log, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The first place of a partition of the log.
    #[must_use]
    pub fn start_of(bucket: u64) -> Self {
        Self(bucket * BUCKET_RECORDS)
    }

    /// The partition of the log.
    #[must_use]
    pub fn bucket(self) -> u64 {
        self.0 / BUCKET_RECORDS
    }

    pub(crate) fn is_start(self) -> bool {
        self.0.is_multiple_of(BUCKET_RECORDS)
    }
}

/// The place of a record of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The log.
    pub generation: Generation,
    /// The position in the log.
    pub position: Position,
}

/// Places that are taken, and which of them are finished.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Log {
    /// The first unfinished place.
    low: u64,
    /// Whether each place from there on is finished.
    done: VecDeque<bool>,
    open: usize,
    /// Places without a record, which are taken again first: an empty partition could not be told
    /// from the end of the log.
    returned: Vec<Position>,
    /// The low mark that a quorum has.
    told: u64,
    /// A low mark is being written.
    is_telling: bool,
    /// Partitions below this one were deleted.
    deleted: u64,
}

impl Log {
    /// Takes the next place.
    pub(crate) fn next_position(&mut self) -> Position {
        self.open += 1;
        if let Some(position) = self.returned.pop() {
            return position;
        }
        self.done.push_back(false);
        Position(self.low + self.done.len() as u64 - 1)
    }

    /// True if another place may be taken without the risk of an empty partition.
    pub(crate) fn has_room(&self, open_max: usize) -> bool {
        // A place that is taken again goes no further ahead.
        self.open < open_max
            && (!self.returned.is_empty() || (self.done.len() as u64) < BUCKET_RECORDS - 1)
    }

    /// The first place that was never taken.
    pub(crate) fn end(&self) -> u64 {
        self.low + self.done.len() as u64
    }

    /// True if half of the places that may lie ahead of the first unfinished one are taken.
    pub(crate) fn is_long(&self) -> bool {
        self.done.len() as u64 >= BUCKET_RECORDS / 2
    }

    /// Returns a place that was not written.
    pub(crate) fn give_back(&mut self, position: Position) {
        self.open -= 1;
        self.returned.push(position);
    }

    /// Finishes a record.
    pub(crate) fn finish(&mut self, position: Position) {
        let Some(place) =
            position.0.checked_sub(self.low).and_then(|place| self.done.get_mut(place as usize))
        else {
            return;
        };
        if !std::mem::replace(place, true) {
            self.open -= 1;
        }
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.low += 1;
        }
    }

    /// The first unfinished place. No reader needs the records before it.
    pub(crate) fn low(&self) -> Position {
        Position(self.low)
    }

    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The low mark, if it has advanced and none is being written.
    pub(crate) fn next_low(&mut self) -> Option<Position> {
        let is_new = !self.is_telling && self.low > self.told;
        self.is_telling |= is_new;
        is_new.then_some(self.low())
    }

    /// Takes in the outcome of writing a low mark. Returns the partitions that may be deleted now,
    /// because a quorum knows that they are not needed.
    pub(crate) fn low_written(&mut self, low: Position, written: Written) -> Range<u64> {
        self.is_telling = false;
        if written == Written::Acknowledged {
            self.told = self.told.max(low.0.min(self.low));
        }
        let end = Position(self.told).bucket();
        std::mem::replace(&mut self.deleted, end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_mark_rises_to_the_first_unfinished_place() {
        let mut log = Log::default();
        let places: Vec<Position> = (0..5).map(|_| log.next_position()).collect();
        assert_eq!(places, [0, 1, 2, 3, 4].map(Position));
        for (finished, low) in [(3, 0), (0, 1), (1, 2), (1, 2), (2, 4), (4, 5)] {
            log.finish(Position(finished));
            assert_eq!(log.low(), Position(low), "{finished}");
        }
        assert_eq!((log.open(), log.next_position()), (0, Position(5)));
        log.finish(Position(9));
        assert_eq!(log.low(), Position(5), "nobody has that place");
    }

    #[test]
    fn no_place_is_taken_so_far_ahead_that_a_partition_could_stay_empty() {
        let mut log = Log::default();
        let first = log.next_position();
        let mut last = first;
        while log.has_room(usize::MAX) {
            last = log.next_position();
            log.finish(last);
        }
        assert!(last.0 - first.0 < BUCKET_RECORDS);
        log.finish(first);
        assert!(log.has_room(1) && log.low() == Position(last.0 + 1));
    }

    #[test]
    fn a_place_that_was_given_back_is_taken_again_however_far_ahead_the_others_are() {
        let mut log = Log::default();
        let first = log.next_position();
        while log.has_room(usize::MAX) {
            let next = log.next_position();
            log.finish(next);
        }
        log.give_back(first);
        assert!(log.has_room(1) && log.next_position() == first);
        log.finish(first);
        assert!(log.has_room(1));
    }

    /// A reader begins at the last mark that a quorum has; an empty partition there would be
    /// taken for the end of the log.
    #[test]
    fn a_partition_is_deleted_once_a_quorum_knows_that_all_before_its_end_is_done() {
        let mut log = Log::default();
        let advance = |log: &mut Log, to: u64| {
            while log.low().0 < to {
                let place = log.next_position();
                log.finish(place);
            }
        };
        assert_eq!(log.next_low(), None, "nobody needs to be told of the beginning");
        advance(&mut log, BUCKET_RECORDS + 1);
        let first = Position(BUCKET_RECORDS + 1);
        assert_eq!((log.next_low(), log.next_low()), (Some(first), None));
        advance(&mut log, 3 * BUCKET_RECORDS - 1);
        assert!(log.low_written(first, Written::Unknown).is_empty());
        let second = Position(3 * BUCKET_RECORDS - 1);
        assert_eq!(
            (log.next_low(), log.low_written(second, Written::Acknowledged)),
            (Some(second), 0..2)
        );
        assert_eq!((log.next_low(), log.low_written(first, Written::Acknowledged)), (None, 2..2));
    }

    #[test]
    fn a_place_at_which_nothing_was_written_is_taken_again_before_any_other() {
        let mut log = Log::default();
        let (first, second) = (log.next_position(), log.next_position());
        log.give_back(first);
        log.finish(second);
        assert_eq!((log.low(), log.open()), (first, 0));
        assert_eq!((log.next_position(), log.next_position()), (first, Position(2)));
        log.finish(first);
        assert_eq!((log.low(), log.open()), (Position(2), 1));
    }
}
