//! Progress of the sweep of rows of locks ([`super`]).

use std::collections::BTreeMap;

use shunt_locks::{BUCKETS, LoadId};
use slab::Slab;

use crate::limits::SECOND_NS;

/// Deletions in one partition within [`Pace::window_ns`]. A read skips two ends of each, for two
/// windows, and nodes warn at 1,000.
const DELETIONS_PER_PARTITION_MAX: u16 = 200;

/// Pages of one partition before another's turn.
const PAGES_PER_TURN: u32 = 16;

/// Speed of the sweep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Between the beginnings of two rounds through all partitions, at most: it is not longer than
    /// rows are kept.
    pub(crate) round_ns: u64,
    /// Between two pages.
    pub(crate) page_ns: u64,
    /// Unneeded rows of a shared lock that is held are deleted if there are this many.
    pub(crate) shares_min: usize,
    /// After an answer that says that a deletion would not reach all replicas now.
    pub(crate) rest_ns: u64,
    /// For so long at least replicas remember a deletion: `gc_grace_seconds` of the table.
    pub(crate) window_ns: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            round_ns: 3_600 * SECOND_NS,
            page_ns: SECOND_NS,
            shares_min: 32,
            rest_ns: 600 * SECOND_NS,
            window_ns: 14_400 * SECOND_NS,
        }
    }
}

/// A deletion under way.
pub(super) struct Deleting {
    pub(super) bucket: u16,
    pub(super) name: Box<[u8]>,
    /// See [`shunt_locks::Unneeded::free_us`].
    pub(super) free_us: i64,
}

/// Progress of the sweep through a core's partitions.
#[derive(Default)]
pub(crate) struct Sweep {
    pub(crate) pace: Pace,
    /// The partition that is read next, or is being read.
    pub(super) bucket: u16,
    /// Knowledge of that partition, and the end of its last page.
    pub(super) page: Option<Place>,
    pub(super) is_reading: bool,
    /// Pages of it since its turn began.
    pages: u32,
    /// Positions in partitions whose turn ended before their rows did.
    places: BTreeMap<u16, Place>,
    /// Only those have turns, until the next round begins.
    is_between_rounds: bool,
    pub(super) ahead: Ahead,
    pub(super) deleting: Slab<Deleting>,
    /// Time of the next page.
    pub(super) next_ns: u64,
    /// Time of the next round.
    pub(super) round_ns: u64,
    /// Deletions by partition, until the window ends.
    deleted: Vec<u16>,
    window_until_ns: u64,
}

/// Knowledge of a partition, and the end of a page.
pub(super) type Place = (LoadId, Box<[u8]>);

impl Sweep {
    /// The partition that is read next, of those that have rows by `with_rows_from`. None: the
    /// round is over.
    pub(super) fn next(
        &mut self,
        now_ns: u64,
        with_rows_from: impl Fn(u16) -> Option<u16>,
    ) -> Option<u16> {
        self.begin_window(now_ns);
        let mut from = self.bucket;
        loop {
            let next = match self.is_between_rounds {
                // Its turn has begun.
                true if self.page.is_some() && from == self.bucket => Some(from),
                true => self.places.range(from..).next().map(|(bucket, _)| *bucket),
                false => with_rows_from(from),
            };
            match next {
                Some(full) if self.is_full(full) => from = full + 1,
                Some(next) => {
                    if next != self.bucket {
                        (self.page, self.pages) = (None, 0);
                    }
                    self.bucket = next;
                    self.page = self.page.take().or_else(|| self.places.remove(&next));
                    return Some(next);
                }
                None => return None,
            }
        }
    }

    /// Ends the turns of all partitions. Until the next round, only partitions with more rows have
    /// turns.
    pub(super) fn end_round(&mut self, now_ns: u64, kept_ns: u64) {
        (self.bucket, self.page, self.pages) = (0, None, 0);
        let has_more = self.places.keys().any(|bucket| !self.is_full(*bucket));
        self.next_ns = now_ns + self.pace.page_ns;
        self.is_between_rounds = has_more && now_ns < self.round_ns;
        if !self.is_between_rounds {
            self.next_ns = self.round_ns.max(now_ns) + self.pace.page_ns;
            self.round_ns = now_ns + self.pace.round_ns.min(kept_ns);
        }
    }

    /// A page was read, and there are more behind it: they are the next, or another partition's
    /// turn comes.
    pub(super) fn read_page(&mut self, place: Place) {
        self.pages += 1;
        if self.pages < PAGES_PER_TURN {
            self.page = Some(place);
        } else {
            self.places.insert(place.0.bucket, place);
            self.go_on();
        }
    }

    /// The partition has no room for more deletions: it is left until it has, at this page.
    pub(super) fn leave(&mut self, bucket: u16, place: Option<Place>) {
        self.places.remove(&bucket);
        self.places.extend(place.map(|place| (bucket, place)));
        if self.bucket == bucket {
            self.go_on();
        }
    }

    /// The partition's end was reached, or it is left alone.
    pub(super) fn go_on(&mut self) {
        (self.page, self.pages) = (None, 0);
        self.bucket += 1;
    }

    /// Takes a place among the deletions of a partition.
    pub(super) fn has_room(&mut self, now_ns: u64, bucket: u16) -> bool {
        self.begin_window(now_ns);
        let count = &mut self.deleted[usize::from(bucket)];
        *count = count.saturating_add(1);
        *count <= DELETIONS_PER_PARTITION_MAX
    }

    /// True if there may be no more deletions until the window ends.
    fn is_full(&self, bucket: u16) -> bool {
        self.deleted
            .get(usize::from(bucket))
            .is_some_and(|count| *count >= DELETIONS_PER_PARTITION_MAX)
    }

    fn begin_window(&mut self, now_ns: u64) {
        if now_ns >= self.window_until_ns {
            self.window_until_ns = now_ns + self.pace.window_ns;
            self.deleted.clear();
            self.deleted.resize(BUCKETS, 0);
        }
    }
}

/// Progress of the reading of partitions that nobody has asked for.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// From which partition on they are looked for, and when.
    pub(super) from: u16,
    pub(super) at_ns: u64,
    /// The one that was begun.
    pub(super) begun: Option<LoadId>,
    /// Partitions that could not be read: how long they were left alone, and until when they are.
    failed: BTreeMap<u16, (u64, u64)>,
}

impl Ahead {
    /// Ends the reading of a partition. A partition that failed is left alone, for twice as long
    /// each time.
    pub(super) fn ended(&mut self, bucket: u16, is_read: bool, now_ns: u64, pause_ns: (u64, u64)) {
        self.begun = None;
        if is_read {
            self.failed.remove(&bucket);
            return;
        }
        let (first_ns, most_ns) = pause_ns;
        let pause_ns =
            self.failed.get(&bucket).map_or(first_ns, |(pause_ns, _)| pause_ns * 2).min(most_ns);
        self.failed.insert(bucket, (pause_ns, now_ns + pause_ns));
    }

    /// The next partition, of those that nobody has asked for by `unread_from`.
    pub(super) fn next(
        &self,
        now_ns: u64,
        unread_from: impl Fn(u16) -> Option<u16>,
    ) -> Option<u16> {
        let mut from = self.from;
        loop {
            let next = unread_from(from)?;
            if self.failed.get(&next).is_none_or(|(_, until_ns)| now_ns >= *until_ns) {
                return Some(next);
            }
            from = next + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_NS: u64 = SECOND_NS;

    /// Plays pages: `pages` has how many each partition has left. Which partition each was of.
    fn play(
        sweep: &mut Sweep,
        load: impl Fn(u16) -> LoadId,
        pages: &mut [u32],
        until_ns: u64,
    ) -> Vec<u16> {
        let (mut read, mut now_ns) = (Vec::new(), 0);
        while now_ns < until_ns {
            now_ns += PAGE_NS;
            if now_ns < sweep.next_ns {
                continue;
            }
            let has_rows =
                |from: u16| (usize::from(from)..pages.len()).map(|bucket| bucket as u16).next();
            let Some(bucket) = sweep.next(now_ns, has_rows) else {
                sweep.end_round(now_ns, u64::MAX);
                continue;
            };
            sweep.next_ns = now_ns + PAGE_NS;
            read.push(bucket);
            let left = &mut pages[usize::from(bucket)];
            *left = left.saturating_sub(1);
            if *left > 0 {
                sweep.read_page((load(bucket), Box::from(&[0][..])));
            } else {
                sweep.go_on();
            }
        }
        read
    }

    fn load(bucket: u16) -> LoadId {
        let mut locks = shunt_locks::Locks::new(shunt_locks::Limits::default());
        struct Nobody;
        impl shunt_locks::Sink for Nobody {
            fn reply(&mut self, _: shunt_locks::Ticket, _: shunt_locks::Outcome<'_>) {}
            fn write(&mut self, _: shunt_locks::Write<'_>) {}
            fn load(&mut self, _: LoadId) {}
        }
        let now = shunt_locks::Now { boot_ns: 1, wall_us: 1 };
        let lease = shunt_locks::Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX };
        locks.set_lease(now, lease, &mut Nobody);
        locks.gain(now, shunt_locks::shard_of_bucket(bucket), 0, 0, &mut Nobody);
        locks.read_ahead(now, bucket, &mut Nobody).expect("it can be read")
    }

    #[test]
    fn a_partition_with_very_many_rows_does_not_keep_others_from_having_their_turns() {
        let mut sweep = Sweep::default();
        let mut pages = [10_000, 1, 1];
        let read = play(&mut sweep, load, &mut pages, 60 * SECOND_NS);
        assert!(read[..16].iter().all(|bucket| *bucket == 0) && read[16..18] == [1, 2], "{read:?}");
        let read = play(&mut sweep, load, &mut pages, 3_000 * SECOND_NS);
        let long = read.iter().filter(|bucket| **bucket == 0).count();
        assert!(long > 2_000, "between rounds it goes on by itself: {long}");
        assert!(
            read.len() - long < 10,
            "and the others are not read again before it is time: {read:?}"
        );
    }

    #[test]
    fn a_partition_that_has_no_room_for_deletions_is_left_until_it_has() {
        let mut sweep = Sweep::default();
        let all = |from: u16| (from < 3).then_some(from);
        assert_eq!(sweep.next(1, all), Some(0));
        while sweep.has_room(1, 0) {}
        sweep.leave(0, Some((load(0), Box::from(&[7][..]))));
        for expected in [Some(1), Some(2), None] {
            assert_eq!(sweep.next(1, all), expected);
            if expected.is_some() {
                sweep.go_on();
            }
        }
        sweep.end_round(1, u64::MAX);
        assert_eq!(sweep.next(2, all), Some(1));
        let later_ns = sweep.window_until_ns;
        sweep.end_round(later_ns, u64::MAX);
        assert_eq!(sweep.next(later_ns, all), Some(0));
        assert_eq!(sweep.page.as_ref().map(|(_, at)| &at[..]), Some(&[7][..]), "where it was left");
    }

    #[test]
    fn a_partition_that_cannot_be_read_is_left_alone_for_twice_as_long_each_time() {
        let mut ahead = Ahead::default();
        let both = |from: u16| (from < 2).then_some(from);
        let mut now_ns = 0;
        for pause_ns in [10, 20, 40, 50, 50] {
            assert_eq!(ahead.next(now_ns, both), Some(0));
            ahead.ended(0, false, now_ns, (10, 50));
            assert_eq!(ahead.next(now_ns + pause_ns - 1, both), Some(1), "after {pause_ns}");
            now_ns += pause_ns;
        }
        ahead.ended(0, true, now_ns, (10, 50));
        ahead.ended(0, false, now_ns, (10, 50));
        assert_eq!(ahead.next(now_ns + 10, both), Some(0), "it was read meanwhile");
    }
}
