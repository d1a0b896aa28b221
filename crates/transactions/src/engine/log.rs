//! The log of a shard in one generation: where records lie, up to which of them everything is done,
//! and who has been told so.

use std::collections::VecDeque;
use std::ops::Range;

use shunt_locks::Written;

/// Records of one partition of the log. More than may be under way at once, so that no partition is
/// skipped: whoever reads the log may end at the first empty one.
#[cfg(not(test))]
pub const BUCKET_RECORDS: u64 = 4_096;
/// So few that random histories fill, delete and recover many partitions.
#[cfg(test)]
pub const BUCKET_RECORDS: u64 = 4;

/// One owner's time with a shard, counted from 1; each has a log of its own, and no two owners
/// write to one.
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

/// Where a record of a shard lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// In which of the shard's logs.
    pub generation: Generation,
    /// Where in it.
    pub position: Position,
}

/// Which places are taken, and which of them are done with.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Log {
    /// The first that is not done with.
    low: u64,
    /// From there on: whether it is done with.
    done: VecDeque<bool>,
    open: usize,
    /// Places at which nothing was written. They are taken again first: a partition of the log of
    /// which none was written could not be told from its end.
    returned: Vec<Position>,
    /// The low mark that a quorum has.
    told: u64,
    /// One is on its way.
    is_telling: bool,
    /// Partitions below were deleted.
    deleted: u64,
}

impl Log {
    /// Takes the next place.
    pub(crate) fn take(&mut self) -> Position {
        self.open += 1;
        if let Some(position) = self.returned.pop() {
            return position;
        }
        self.done.push_back(false);
        Position(self.low + self.done.len() as u64 - 1)
    }

    /// True if another place may be taken: not so far ahead that a partition of the log could be
    /// left empty.
    pub(crate) fn has_room(&self, open_max: usize) -> bool {
        // A place that is taken again goes no further ahead.
        self.open < open_max
            && (!self.returned.is_empty() || (self.done.len() as u64) < BUCKET_RECORDS - 1)
    }

    /// The first place that was never taken.
    pub(crate) fn end(&self) -> u64 {
        self.low + self.done.len() as u64
    }

    /// True if half of the places that may be taken beyond the first that is not done with are.
    pub(crate) fn is_long(&self) -> bool {
        self.done.len() as u64 >= BUCKET_RECORDS / 2
    }

    /// Nothing was written at this place.
    pub(crate) fn give_back(&mut self, position: Position) {
        self.open -= 1;
        self.returned.push(position);
    }

    /// All that the record says is done.
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

    /// The first place that is not done with: what lies before it need not be read by anybody.
    pub(crate) fn low(&self) -> Position {
        Position(self.low)
    }

    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The low mark, if it is to be written: it has advanced since, and none is on its way.
    pub(crate) fn tell(&mut self) -> Option<Position> {
        let is_new = !self.is_telling && self.low > self.told;
        self.is_telling |= is_new;
        is_new.then_some(self.low())
    }

    /// What has become of writing a low mark. The partitions that may be deleted now: a quorum
    /// knows that nobody needs them.
    pub(crate) fn told(&mut self, low: Position, written: Written) -> Range<u64> {
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
    fn what_is_done_with_in_any_order_is_done_with_up_to_the_first_that_is_not() {
        let mut log = Log::default();
        let places: Vec<Position> = (0..5).map(|_| log.take()).collect();
        assert_eq!(places, [0, 1, 2, 3, 4].map(Position));
        for (finished, low) in [(3, 0), (0, 1), (1, 2), (1, 2), (2, 4), (4, 5)] {
            log.finish(Position(finished));
            assert_eq!(log.low(), Position(low), "{finished}");
        }
        assert_eq!((log.open(), log.take()), (0, Position(5)));
        log.finish(Position(9));
        assert_eq!(log.low(), Position(5), "nobody has that place");
    }

    #[test]
    fn no_place_is_taken_so_far_ahead_that_a_partition_could_stay_empty() {
        let mut log = Log::default();
        let first = log.take();
        let mut last = first;
        while log.has_room(usize::MAX) {
            last = log.take();
            log.finish(last);
        }
        assert!(last.0 - first.0 < BUCKET_RECORDS);
        log.finish(first);
        assert!(log.has_room(1) && log.low() == Position(last.0 + 1));
    }

    #[test]
    fn a_place_that_was_given_back_is_taken_again_however_far_ahead_the_others_are() {
        let mut log = Log::default();
        let first = log.take();
        while log.has_room(usize::MAX) {
            let next = log.take();
            log.finish(next);
        }
        log.give_back(first);
        assert!(log.has_room(1) && log.take() == first);
        log.finish(first);
        assert!(log.has_room(1));
    }

    /// Whoever reads begins at the last mark that a quorum has; an empty partition there would be
    /// taken for the end of the log.
    #[test]
    fn a_partition_is_deleted_once_a_quorum_knows_that_all_before_its_end_is_done() {
        let mut log = Log::default();
        let advance = |log: &mut Log, to: u64| {
            while log.low().0 < to {
                let place = log.take();
                log.finish(place);
            }
        };
        assert_eq!(log.tell(), None, "nobody needs to be told of the beginning");
        advance(&mut log, BUCKET_RECORDS + 1);
        let first = Position(BUCKET_RECORDS + 1);
        assert_eq!((log.tell(), log.tell()), (Some(first), None));
        advance(&mut log, 3 * BUCKET_RECORDS - 1);
        assert!(log.told(first, Written::Unknown).is_empty());
        let second = Position(3 * BUCKET_RECORDS - 1);
        assert_eq!((log.tell(), log.told(second, Written::Acknowledged)), (Some(second), 0..2));
        assert_eq!((log.tell(), log.told(first, Written::Acknowledged)), (None, 2..2));
    }

    #[test]
    fn a_place_at_which_nothing_was_written_is_taken_again_before_any_other() {
        let mut log = Log::default();
        let (first, second) = (log.take(), log.take());
        log.give_back(first);
        log.finish(second);
        assert_eq!((log.low(), log.open()), (first, 0));
        assert_eq!((log.take(), log.take()), (first, Position(2)));
        log.finish(first);
        assert_eq!((log.low(), log.open()), (Position(2), 1));
    }
}
