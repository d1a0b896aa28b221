//! What a dead member left undone is done: its log is read, and what the records say is written once more, with their timestamps.
//!
//! A record that is found is written again before its writes are: it may have been found on one replica only. Were this recovery broken off after
//! some of its writes, the next could read the log from the other replicas and know nothing of it.
//!
//! Whoever recovers a member seals it afterwards, and serves its shards only then. It is one member's task at a time: two that read the log from
//! different replicas may find different records. Another takes it over only from a dead one, and begins anew. One that stood still past its
//! own lease may have been taken for dead, and the member may be sealed without a record that it has found: so it goes from a record to
//! its writes only with a lease that is valid when it hears that the record is there. A record that nobody reads here was not acknowledged by a quorum when the member
//! was declared dead, so the member can never have begun its writes; after the seal it means nothing.
//!
//! The log of each core of the member is read from its first record that was not done with, partition by partition, up to the first that
//! is empty.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use shunt_locks::{Now, Written};

use crate::commit::Refused;
use crate::log::Position;

/// Before a statement that failed is repeated.
const AGAIN_MS: u64 = 200;
/// Writes under way at once.
const WRITES_MAX: usize = 256;

/// A record of a core of the dead member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The core.
    pub core: u16,
    /// Where in its log.
    pub position: Position,
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where in the log.
    pub position: Position,
    /// How many writes it has.
    pub writes: u16,
}

/// Where statements go.
pub trait RecoverySink {
    /// All records of a partition of the log are to be read at QUORUM; [`Recovery::read`] or [`Recovery::failed`] is to be called later.
    fn read(&mut self, core: u16, bucket: u64);
    /// A record that was read is to be written again at QUORUM, as it was; [`Recovery::appended`] is to be called later.
    fn append(&mut self, place: Place);
    /// A write of a record is to be made at QUORUM, with the timestamp of the record; [`Recovery::applied`] is to be called later.
    fn apply(&mut self, place: Place, write: u16);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Again {
    Read(u16),
    Do(Task),
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    /// A record with so many writes.
    Record(Place, u16),
    /// One of the writes of a record.
    Write(Place, u16),
}

/// The log of one core, as far as it was read.
#[derive(Debug)]
struct Lane {
    low: Position,
    /// The partition that is being read.
    bucket: u64,
    is_read: bool,
}

/// The recovery of one member.
#[derive(Debug)]
pub struct Recovery {
    lanes: HashMap<u16, Lane>,
    /// What is not under way yet.
    waiting: Vec<Task>,
    in_flight: HashSet<Task>,
    /// Of records that are being written again, how many writes they have.
    records: HashMap<Place, u16>,
    again: BinaryHeap<Reverse<(u64, Again)>>,
    /// Records and writes that are not acknowledged.
    open: usize,
    /// Writes that nodes have refused for good.
    refused: u64,
}

impl Recovery {
    /// Begins, with the logs of these cores from the first record that was not done with.
    pub fn begin(lows: impl IntoIterator<Item = (u16, Position)>, sink: &mut impl RecoverySink) -> Self {
        let lane = |low: Position| Lane { low, bucket: low.bucket(), is_read: false };
        let lanes: HashMap<u16, Lane> = lows.into_iter().map(|(core, low)| (core, lane(low))).collect();
        let mut cores: Vec<(u16, u64)> = lanes.iter().map(|(core, lane)| (*core, lane.bucket)).collect();
        cores.sort_unstable();
        for (core, bucket) in cores {
            sink.read(core, bucket);
        }
        Self {
            lanes,
            waiting: Vec::new(),
            in_flight: HashSet::new(),
            records: HashMap::new(),
            again: BinaryHeap::new(),
            open: 0,
            refused: 0,
        }
    }

    /// True when nothing is left undone: the member may be sealed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.open == 0 && self.lanes.values().all(|lane| lane.is_read)
    }

    /// Writes that nodes have refused, and will each time: their tables are gone.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A partition of the log was read, with all its records.
    pub fn read(&mut self, core: u16, bucket: u64, records: &[Found], sink: &mut impl RecoverySink) {
        let Some(lane) = self.lanes.get_mut(&core).filter(|lane| lane.bucket == bucket && !lane.is_read) else {
            return;
        };
        if records.is_empty() {
            lane.is_read = true;
            return;
        }
        for record in records.iter().filter(|record| record.position >= lane.low) {
            let place = Place { core, position: record.position };
            self.waiting.push(Task::Record(place, record.writes));
            self.open += 1;
        }
        lane.bucket += 1;
        sink.read(core, lane.bucket);
        self.send(sink);
    }

    /// The partition that is being read of this core could not be read.
    pub fn failed(&mut self, now: Now, core: u16) {
        self.again(now, Again::Read(core));
    }

    /// What has become of an attempt to write a record again. `is_valid`: this member has a valid lease now, by a clock that was read anew;
    /// without one the recovery goes no further, and its outcome is another's affair if the lease is not renewed.
    pub fn appended(&mut self, now: Now, place: Place, written: Written, is_valid: bool, sink: &mut impl RecoverySink) {
        let Some(&writes) = self.records.get(&place) else { return };
        let task = Task::Record(place, writes);
        if !self.in_flight.remove(&task) {
            return;
        }
        if written == Written::Acknowledged && is_valid {
            self.records.remove(&place);
            self.waiting.extend((0..writes).map(|write| Task::Write(place, write)));
            self.open += usize::from(writes);
            self.open -= 1;
        } else {
            self.again(now, Again::Do(task));
        }
        self.send(sink);
    }

    /// What has become of an attempt to make a write.
    pub fn applied(
        &mut self,
        now: Now,
        place: Place,
        write: u16,
        written: Result<Written, Refused>,
        sink: &mut impl RecoverySink,
    ) {
        let task = Task::Write(place, write);
        if !self.in_flight.remove(&task) {
            return;
        }
        match written {
            Ok(Written::Acknowledged) => self.open -= 1,
            Ok(Written::Unknown | Written::NotSent) => self.again(now, Again::Do(task)),
            Err(Refused) => {
                self.open -= 1;
                self.refused += 1;
            }
        }
        self.send(sink);
    }

    fn again(&mut self, now: Now, what: Again) {
        self.again.push(Reverse((now.boot_ns / 1_000_000 + AGAIN_MS, what)));
    }

    /// When [`Recovery::tick`] is to be called next, by the boot-time clock, milliseconds.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        self.again.peek().map(|again| again.0.0)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now, sink: &mut impl RecoverySink) {
        while let Some(Reverse((due_ms, again))) = self.again.peek().copied()
            && due_ms <= now.boot_ns / 1_000_000
        {
            self.again.pop();
            match again {
                Again::Read(core) => {
                    if let Some(lane) = self.lanes.get(&core).filter(|lane| !lane.is_read) {
                        sink.read(core, lane.bucket);
                    }
                }
                Again::Do(task) => self.waiting.push(task),
            }
        }
        self.send(sink);
    }

    fn send(&mut self, sink: &mut impl RecoverySink) {
        while self.in_flight.len() < WRITES_MAX
            && let Some(task) = self.waiting.pop()
        {
            self.in_flight.insert(task);
            match task {
                Task::Record(place, writes) => {
                    self.records.insert(place, writes);
                    sink.append(place);
                }
                Task::Write(place, write) => sink.apply(place, write),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Wanted {
        reads: Vec<(u16, u64)>,
        appends: Vec<Place>,
        applies: Vec<(Place, u16)>,
    }

    impl RecoverySink for Wanted {
        fn read(&mut self, core: u16, bucket: u64) {
            self.reads.push((core, bucket));
        }
        fn append(&mut self, place: Place) {
            self.appends.push(place);
        }
        fn apply(&mut self, place: Place, write: u16) {
            self.applies.push((place, write));
        }
    }

    fn at(ms: u64) -> Now {
        Now { boot_ns: ms * 1_000_000, wall_us: 0 }
    }

    /// A recovery of one core whose log has one record of two writes from the third place on, and its place.
    fn begun(wanted: &mut Wanted) -> (Recovery, Place) {
        let mut recovery = Recovery::begin([(4, Position(3))], wanted);
        let found = [2, 3].map(|number| Found { position: Position(number), writes: 2 });
        recovery.read(4, 0, &found, wanted);
        recovery.read(4, 1, &[], wanted);
        assert_eq!(wanted.reads, [(4, 0), (4, 1)]);
        (recovery, Place { core: 4, position: Position(3) })
    }

    /// It may have been taken for dead, and another may have sealed the member without the record.
    #[test]
    fn without_a_valid_lease_no_write_of_a_record_is_made() {
        let mut wanted = Wanted::default();
        let (mut recovery, place) = begun(&mut wanted);
        assert_eq!(wanted.appends, [place], "the one before was done with");
        recovery.appended(at(0), place, Written::Acknowledged, false, &mut wanted);
        assert!(wanted.applies.is_empty() && !recovery.is_done());
        recovery.tick(at(AGAIN_MS), &mut wanted);
        assert_eq!(wanted.appends, [place, place], "it looks again when it may");
        recovery.appended(at(AGAIN_MS), place, Written::Acknowledged, true, &mut wanted);
        assert_eq!(wanted.applies.len(), 2);
    }

    #[test]
    fn it_is_done_when_each_write_is_acknowledged_or_refused_whatever_was_unknown_before() {
        let mut wanted = Wanted::default();
        let (mut recovery, place) = begun(&mut wanted);
        recovery.appended(at(0), place, Written::Unknown, true, &mut wanted);
        recovery.tick(at(AGAIN_MS), &mut wanted);
        recovery.appended(at(AGAIN_MS), place, Written::Acknowledged, true, &mut wanted);
        recovery.applied(at(AGAIN_MS), place, 0, Ok(Written::NotSent), &mut wanted);
        recovery.applied(at(AGAIN_MS), place, 1, Ok(Written::Acknowledged), &mut wanted);
        recovery.applied(at(AGAIN_MS), place, 1, Ok(Written::Acknowledged), &mut wanted);
        assert!(!recovery.is_done());
        recovery.tick(at(2 * AGAIN_MS), &mut wanted);
        recovery.applied(at(2 * AGAIN_MS), place, 0, Err(Refused), &mut wanted);
        assert_eq!((recovery.is_done(), recovery.refused(), recovery.next_due_ms()), (true, 1, None));
    }

    #[test]
    fn a_log_that_cannot_be_read_is_read_again() {
        let mut wanted = Wanted::default();
        let mut recovery = Recovery::begin([(0, Position(0))], &mut wanted);
        recovery.failed(at(5), 0);
        assert_eq!(recovery.next_due_ms(), Some(5 + AGAIN_MS));
        recovery.tick(at(5 + AGAIN_MS), &mut wanted);
        assert_eq!(wanted.reads, [(0, 0), (0, 0)]);
        recovery.read(0, 0, &[], &mut wanted);
        assert!(recovery.is_done());
    }
}
