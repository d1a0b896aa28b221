//! What former owners of a shard left undone is done: the logs of its generations that are not
//! sealed are read, one after the other, and what their records say is written once more, with
//! their timestamps. A part of [`crate::Opening`].
//!
//! A record that is found is written again before its writes are: it may have been found on one
//! replica only. Were this recovery broken off after some of its writes, the next could read the
//! log from the other replicas and know nothing of it. From the record to its writes it goes only
//! while it holds the shard: whoever gains it later then finds the record as well, for no seal but
//! its own can have covered it.
//!
//! A log is read from its low mark on, partition by partition, up to the first that is empty. The
//! mark that was read may be old, for a former owner's last one may still be on its way; when a
//! quorum has it, that owner deletes partitions below. So the mark is read again where a partition
//! is empty: one was deleted only after a later mark was there to be read.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use shunt_locks::{Now, Written};

use crate::engine::commit::{Refused, last_of};
use crate::engine::log::{Generation, Place, Position};
use crate::engine::opening::{Failed, OpeningSink, Page};
use crate::engine::pauses::Pauses;

/// Writes under way at once.
const WRITES_MAX: usize = 256;
/// Records that are not done with, beyond which no more are read; those of the last page come on
/// top. Each may have megabytes.
const RECORDS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Again {
    Read,
    Do(Task),
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    /// A record.
    Record(Place),
    /// One of the writes of a record.
    Write(Place, u16),
}

/// What is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The low mark; the second time because the partition at [`Recovery::from`] is empty.
    Low { is_second: bool },
    /// Records at [`Recovery::from`] and after.
    Page,
    /// The same, as soon as some of those before are done with.
    PageLater,
    /// Nothing is left.
    End,
}

/// A generation that was read to its end, and in which partitions records lay.
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
    /// Where the next page begins, and in which generation.
    from: Place,
    /// No record of this partition has been seen.
    is_empty: bool,
    first_bucket: u64,
    was_read: Vec<WasRead>,
    /// What is not under way yet.
    waiting: Vec<Task>,
    in_flight: HashSet<Task>,
    /// Of records that are not done with: how many of their writes are not.
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
        sink: &mut impl OpeningSink,
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
        recovery.read_next_generation(sink);
        recovery
    }

    /// True when nothing is left undone.
    pub(crate) fn is_done(&self) -> bool {
        self.reading == Reading::End && self.records.is_empty()
    }

    /// Writes that nodes have refused, and will each time: their tables are gone.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The latest timestamp of all records that were found, microseconds.
    pub(crate) fn last_timestamp_us(&self) -> i64 {
        self.last_timestamp_us
    }

    /// What was read, and need not be kept once it is sealed.
    pub(crate) fn into_was_read(self) -> Vec<WasRead> {
        self.was_read
    }

    fn read_next_generation(&mut self, sink: &mut impl OpeningSink) {
        if self.from.generation >= self.last {
            self.reading = Reading::End;
            return;
        }
        self.from = Place { generation: self.from.generation.next(), position: Position(0) };
        self.reading = Reading::Low { is_second: false };
        sink.read_low(self.shard, self.from.generation);
    }

    /// Begins at a low mark. Where that is within a partition the partition is not empty: the
    /// record before it was there, and is.
    fn read_from(&mut self, low: Position, sink: &mut impl OpeningSink) {
        self.from.position = low;
        self.is_empty = low.is_start();
        self.first_bucket = low.bucket();
        self.read_page(sink);
    }

    fn read_page(&mut self, sink: &mut impl OpeningSink) {
        if self.records.len() >= RECORDS_MAX {
            self.reading = Reading::PageLater;
            return;
        }
        self.reading = Reading::Page;
        sink.read(self.shard, self.from);
    }

    /// The low mark of a generation was read.
    pub(crate) fn low(
        &mut self,
        now: Now,
        generation: Generation,
        low: Result<Position, Failed>,
        sink: &mut impl OpeningSink,
    ) {
        let Reading::Low { is_second } = self.reading else { return };
        if generation != self.from.generation {
            return;
        }
        if low.is_ok() {
            self.attempts.remove(&Again::Read);
        }
        match low {
            Err(Failed) => self.again(now, Again::Read),
            Ok(low) if !is_second || low.bucket() > self.from.position.bucket() => {
                self.read_from(low, sink)
            }
            Ok(_) => {
                let (first_bucket, end_bucket) = (self.first_bucket, self.from.position.bucket());
                self.was_read.push(WasRead { generation, first_bucket, end_bucket });
                self.read_next_generation(sink);
            }
        }
    }

    /// A page of a partition of the log was read.
    pub(crate) fn page(
        &mut self,
        now: Now,
        from: Place,
        page: Result<Page<'_>, Failed>,
        sink: &mut impl OpeningSink,
    ) {
        if self.reading != Reading::Page || from != self.from {
            return;
        }
        let page = match page {
            Ok(page) => page,
            Err(Failed) => return self.again(now, Again::Read),
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
                self.read_page(sink);
            }
            None if self.is_empty => {
                self.reading = Reading::Low { is_second: true };
                sink.read_low(self.shard, from.generation);
            }
            None => {
                (self.from.position, self.is_empty) = (Position::start_of(bucket + 1), true);
                self.read_page(sink);
            }
        }
        self.send(sink);
    }

    /// What has become of an attempt to write a record again.
    pub(crate) fn appended(
        &mut self,
        now: Now,
        place: Place,
        written: Written,
        holds: bool,
        sink: &mut impl OpeningSink,
    ) {
        if !self.in_flight.remove(&Task::Record(place)) {
            return;
        }
        if written == Written::Acknowledged && holds {
            self.attempts.remove(&Again::Do(Task::Record(place)));
            let writes = self.records.get(&place).copied().unwrap_or(0);
            self.waiting.extend((0..writes).map(|write| Task::Write(place, write)));
            if writes == 0 {
                self.finish(place, sink);
            }
        } else {
            self.again(now, Again::Do(Task::Record(place)));
        }
        self.send(sink);
    }

    /// What has become of an attempt to make a write.
    pub(crate) fn applied(
        &mut self,
        now: Now,
        place: Place,
        write: u16,
        written: Result<Written, Refused>,
        sink: &mut impl OpeningSink,
    ) {
        let task = Task::Write(place, write);
        if !self.in_flight.remove(&task) {
            return;
        }
        if let Ok(Written::Unknown | Written::NotSent) = written {
            self.again(now, Again::Do(task));
        } else {
            self.attempts.remove(&Again::Do(task));
            self.refused += u64::from(written.is_err());
            let left = self.records.get_mut(&place).map_or(0, |left| {
                *left -= 1;
                *left
            });
            if left == 0 {
                self.finish(place, sink);
            }
        }
        self.send(sink);
    }

    fn finish(&mut self, place: Place, sink: &mut impl OpeningSink) {
        self.records.remove(&place);
        sink.forget(self.shard, place);
        if self.reading == Reading::PageLater {
            self.read_page(sink);
        }
    }

    fn again(&mut self, now: Now, what: Again) {
        let attempts = self.attempts.entry(what).or_default();
        *attempts += 1;
        let pause_ms = self.pauses.after(*attempts);
        self.again.push(Reverse((now.boot_ns / 1_000_000 + pause_ms, what)));
    }

    /// What waits to be tried again is tried now.
    pub(crate) fn hurry(&mut self, now: Now, sink: &mut impl OpeningSink) {
        self.attempts.clear();
        let waiting = std::mem::take(&mut self.again);
        self.again = waiting.into_iter().map(|Reverse((_, what))| Reverse((0, what))).collect();
        self.tick(now, sink);
    }

    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.again.peek().map(|again| again.0.0)
    }

    pub(crate) fn tick(&mut self, now: Now, sink: &mut impl OpeningSink) {
        while let Some(Reverse((due_ms, again))) = self.again.peek().copied()
            && due_ms <= now.boot_ns / 1_000_000
        {
            self.again.pop();
            match (again, self.reading) {
                (Again::Do(task), _) => self.waiting.push(task),
                (Again::Read, Reading::Low { .. }) => {
                    sink.read_low(self.shard, self.from.generation)
                }
                (Again::Read, Reading::Page) => sink.read(self.shard, self.from),
                (Again::Read, Reading::PageLater | Reading::End) => {}
            }
        }
        self.send(sink);
    }

    fn send(&mut self, sink: &mut impl OpeningSink) {
        while self.in_flight.len() < WRITES_MAX
            && let Some(task) = self.waiting.pop()
        {
            self.in_flight.insert(task);
            match task {
                Task::Record(place) => sink.append(self.shard, place),
                Task::Write(place, write) => sink.apply(self.shard, place, write),
            }
        }
    }
}
