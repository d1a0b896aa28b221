//! Recovery of a shard: the logs of generations that are not sealed are read in order, and their
//! records' writes are made once more, with their timestamps. It is a part of [`crate::Opening`].
//!
//! A record is rewritten before its writes are made, because it may have been found on one replica
//! only. If this recovery stopped after some of the writes, the next could read the log from other
//! replicas and miss the record. The step from the record to its writes is taken only while the
//! member holds the shard: a later owner then finds the record as well, since only this member's
//! own seal can have covered it.
//!
//! A log is read from its low mark, partition by partition, up to the first empty one. The mark may
//! be old, because a former owner's last mark may still be on its way; when a quorum has that mark,
//! that owner deletes partitions below it. The mark is therefore read again at an empty partition:
//! a partition is deleted only after a later mark is readable.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use shunt_locks::{Now, Written};

use crate::engine::backoff::Pauses;
use crate::engine::commit::{Refused, last_of};
use crate::engine::log::{Generation, Place, Position};
use crate::engine::opening::{Failed, OpeningEffects, Page};

/// Writes under way at once.
const WRITES_MAX: usize = 256;
/// Unfinished records, beyond which no more are read; those of the last page come on top. Each may
/// have megabytes.
const RECORDS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Again {
    Read,
    Do(Task),
}

/// A write that recovery makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    /// A record.
    Record(Place),
    /// One of the writes of a record.
    Write(Place, u16),
}

/// The read under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The low mark; `is_second` because the partition at [`Recovery::from`] is empty.
    Low { is_second: bool },
    /// Records at [`Recovery::from`] and after.
    Page,
    /// The same page, once some earlier records are finished.
    PageLater,
    /// The is read.
    End,
}

/// A generation that was read to its end, and the partitions in which it had records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WasRead {
    pub(crate) generation: Generation,
    pub(crate) first_bucket: u64,
    pub(crate) end_bucket: u64,
}

/// The recovery of the generations of a shard up to the last.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Recovery {
    shard: u8,
    last: Generation,
    reading: Reading,
    /// The start of the next page.
    from: Place,
    /// No record of this partition has been seen.
    is_empty: bool,
    first_bucket: u64,
    was_read: Vec<WasRead>,
    /// Tasks that are not under way yet.
    waiting: Vec<Task>,
    in_flight: HashSet<Task>,
    /// Unfinished records, each with its number of outstanding writes.
    records: HashMap<Place, u16>,
    again: BinaryHeap<Reverse<(u64, Again)>>,
    /// Attempts in a row that failed.
    attempts: HashMap<Again, u32>,
    pauses: Pauses,
    last_timestamp_us: i64,
    refused: u64,
}

impl Recovery {
    /// Begins with the generation after `sealed`.
    pub(crate) fn begin(
        shard: u8,
        sealed: Generation,
        last: Generation,
        pauses: Pauses,
        effects: &mut impl OpeningEffects,
    ) -> Self {
        let mut recovery = Self {
            shard,
            last,
            reading: Reading::End,
            from: Place { generation: sealed, position: Position(0) },
            is_empty: true,
            first_bucket: 0,
            was_read: Vec::new(),
            waiting: Vec::new(),
            in_flight: HashSet::new(),
            records: HashMap::new(),
            again: BinaryHeap::new(),
            attempts: HashMap::new(),
            pauses,
            last_timestamp_us: i64::MIN,
            refused: 0,
        };
        recovery.read_next_generation(effects);
        recovery
    }

    /// True if everything is read and finished.
    pub(crate) fn is_done(&self) -> bool {
        self.reading == Reading::End && self.records.is_empty()
    }

    /// Writes that nodes refuse each time: their tables are gone.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The latest timestamp of all records that were found, microseconds.
    pub(crate) fn last_timestamp_us(&self) -> i64 {
        self.last_timestamp_us
    }

    /// Logs that were read, and are deleted once they are sealed.
    pub(crate) fn into_was_read(self) -> Vec<WasRead> {
        self.was_read
    }

    fn read_next_generation(&mut self, effects: &mut impl OpeningEffects) {
        if self.from.generation >= self.last {
            self.reading = Reading::End;
            return;
        }
        self.from = Place { generation: self.from.generation.next(), position: Position(0) };
        self.reading = Reading::Low { is_second: false };
        effects.read_low(self.shard, self.from.generation);
    }

    /// Begins at a low mark. A partition with the mark inside it is not empty: it has the record
    /// before the mark.
    fn read_from(&mut self, low: Position, effects: &mut impl OpeningEffects) {
        self.from.position = low;
        self.is_empty = low.is_start();
        self.first_bucket = low.bucket();
        self.read_page(effects);
    }

    fn read_page(&mut self, effects: &mut impl OpeningEffects) {
        if self.records.len() >= RECORDS_MAX {
            self.reading = Reading::PageLater;
            return;
        }
        self.reading = Reading::Page;
        effects.read(self.shard, self.from);
    }

    /// Takes in the low mark of a generation.
    pub(crate) fn low(
        &mut self,
        now: Now,
        generation: Generation,
        low: Result<Position, Failed>,
        effects: &mut impl OpeningEffects,
    ) {
        let Reading::Low { is_second } = self.reading else { return };
        if generation != self.from.generation {
            return;
        }
        if low.is_ok() {
            self.attempts.remove(&Again::Read);
        }
        match low {
            Err(Failed) => self.retry_later(now, Again::Read),
            Ok(low) if !is_second || low.bucket() > self.from.position.bucket() => {
                self.read_from(low, effects)
            }
            Ok(_) => {
                let (first_bucket, end_bucket) = (self.first_bucket, self.from.position.bucket());
                self.was_read.push(WasRead { generation, first_bucket, end_bucket });
                self.read_next_generation(effects);
            }
        }
    }

    /// Takes in a page of a partition of the log.
    pub(crate) fn page(
        &mut self,
        now: Now,
        from: Place,
        page: Result<Page<'_>, Failed>,
        effects: &mut impl OpeningEffects,
    ) {
        if self.reading != Reading::Page || from != self.from {
            return;
        }
        let page = match page {
            Ok(page) => page,
            Err(Failed) => return self.retry_later(now, Again::Read),
        };
        self.attempts.remove(&Again::Read);
        let bucket = from.position.bucket();
        for found in page.records.iter().filter(|found| found.position >= self.from.position) {
            debug_assert_eq!(found.position.bucket(), bucket, "records of one partition");
            let place = Place { generation: from.generation, position: found.position };
            self.last_timestamp_us =
                self.last_timestamp_us.max(last_of(found.timestamp_us, found.writes));
            self.records.insert(place, found.writes);
            self.waiting.push(Task::Record(place));
            self.is_empty = false;
        }
        let next =
            page.records.last().filter(|_| !page.is_last).map(|last| Position(last.position.0 + 1));
        match next.filter(|next| next.bucket() == bucket) {
            Some(next) => {
                self.from.position = next;
                self.read_page(effects);
            }
            None if self.is_empty => {
                self.reading = Reading::Low { is_second: true };
                effects.read_low(self.shard, from.generation);
            }
            None => {
                (self.from.position, self.is_empty) = (Position::start_of(bucket + 1), true);
                self.read_page(effects);
            }
        }
        self.send(effects);
    }

    /// Takes in the outcome of rewriting a record.
    pub(crate) fn appended(
        &mut self,
        now: Now,
        place: Place,
        written: Written,
        holds: bool,
        effects: &mut impl OpeningEffects,
    ) {
        if !self.in_flight.remove(&Task::Record(place)) {
            return;
        }
        if written == Written::Acknowledged && holds {
            self.attempts.remove(&Again::Do(Task::Record(place)));
            let writes = self.records.get(&place).copied().unwrap_or(0);
            self.waiting.extend((0..writes).map(|write| Task::Write(place, write)));
            if writes == 0 {
                self.finish(place, effects);
            }
        } else {
            self.retry_later(now, Again::Do(Task::Record(place)));
        }
        self.send(effects);
    }

    /// Takes in the outcome of a write.
    pub(crate) fn applied(
        &mut self,
        now: Now,
        place: Place,
        write: u16,
        written: Result<Written, Refused>,
        effects: &mut impl OpeningEffects,
    ) {
        let task = Task::Write(place, write);
        if !self.in_flight.remove(&task) {
            return;
        }
        if let Ok(Written::Unknown | Written::NotSent) | Err(Refused::ForNow) = written {
            self.retry_later(now, Again::Do(task));
        } else {
            self.attempts.remove(&Again::Do(task));
            self.refused += u64::from(written.is_err());
            let left = self.records.get_mut(&place).map_or(0, |left| {
                *left -= 1;
                *left
            });
            if left == 0 {
                self.finish(place, effects);
            }
        }
        self.send(effects);
    }

    fn finish(&mut self, place: Place, effects: &mut impl OpeningEffects) {
        self.records.remove(&place);
        effects.forget(self.shard, place);
        if self.reading == Reading::PageLater {
            self.read_page(effects);
        }
    }

    fn retry_later(&mut self, now: Now, what: Again) {
        let attempts = self.attempts.entry(what).or_default();
        *attempts += 1;
        let pause_ms = self.pauses.after(*attempts);
        self.again.push(Reverse((now.boot_ns / 1_000_000 + pause_ms, what)));
    }

    /// Repeats everything that waits for a pause.
    pub(crate) fn hurry(&mut self, now: Now, effects: &mut impl OpeningEffects) {
        self.attempts.clear();
        let waiting = std::mem::take(&mut self.again);
        self.again = waiting.into_iter().map(|Reverse((_, what))| Reverse((0, what))).collect();
        self.tick(now, effects);
    }

    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.again.peek().map(|again| again.0.0)
    }

    pub(crate) fn tick(&mut self, now: Now, effects: &mut impl OpeningEffects) {
        while let Some(Reverse((due_ms, again))) = self.again.peek().copied()
            && due_ms <= now.boot_ns / 1_000_000
        {
            self.again.pop();
            match (again, self.reading) {
                (Again::Do(task), _) => self.waiting.push(task),
                (Again::Read, Reading::Low { .. }) => {
                    effects.read_low(self.shard, self.from.generation)
                }
                (Again::Read, Reading::Page) => effects.read(self.shard, self.from),
                (Again::Read, Reading::PageLater | Reading::End) => {}
            }
        }
        self.send(effects);
    }

    fn send(&mut self, effects: &mut impl OpeningEffects) {
        while self.in_flight.len() < WRITES_MAX
            && let Some(task) = self.waiting.pop()
        {
            self.in_flight.insert(task);
            match task {
                Task::Record(place) => effects.append(self.shard, place),
                Task::Write(place, write) => effects.apply(self.shard, place, write),
            }
        }
    }
}
