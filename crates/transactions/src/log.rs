//! The log of a core: where records lie, and up to which of them everything is done.

use std::collections::VecDeque;

/// Records of one partition of the log. More than may be under way at once, so that no partition is skipped: whoever reads the log may
/// end at the first empty one.
pub const BUCKET_RECORDS: u64 = 4_096;

/// The place of a record in the log of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The partition of the log.
    #[must_use]
    pub fn bucket(self) -> u64 {
        self.0 / BUCKET_RECORDS
    }
}

/// Which places are taken, and which of them are done with.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The first that is not done with.
    low: u64,
    /// From there on: whether it is done with.
    done: VecDeque<bool>,
    open: usize,
    /// Places at which nothing was written. They are taken again first: a partition of the log of which none was written could not be
    /// told from its end.
    returned: Vec<Position>,
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

    /// True if another place may be taken: not so far ahead that a partition of the log could be left empty.
    pub(crate) fn has_room(&self, open_max: usize) -> bool {
        // A place that is taken again goes no further ahead.
        self.open < open_max && (!self.returned.is_empty() || (self.done.len() as u64) < BUCKET_RECORDS - 1)
    }

    /// Nothing was written at this place.
    pub(crate) fn give_back(&mut self, position: Position) {
        self.open -= 1;
        self.returned.push(position);
    }

    /// All that the record says is done.
    pub(crate) fn finish(&mut self, position: Position) {
        let Some(place) = position.0.checked_sub(self.low).and_then(|place| self.done.get_mut(place as usize)) else {
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

    pub(crate) fn open(&self) -> usize {
        self.open
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
