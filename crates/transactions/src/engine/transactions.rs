//! All transactions of a core, and what its steps share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shunt_locks::{Lease, Now, SHARDS};

use crate::engine::log::{Generation, Log, Place};
use crate::engine::opening::Claim;
use crate::engine::partitions::Partitions;
use crate::engine::types::{
    Counters, Limits, Mode, NotExecuted, Outcome, Partition, Sink, Ticket, TransactionId,
};
#[cfg(any(test, feature = "weakened"))]
use crate::engine::weakened::Without;

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is there.
    Free,
    /// It waits for its shard to be open.
    Queued,
    /// It waits for the partition at [`Transaction::locked`]; those before are locked.
    Waiting,
    /// All are locked, and its caller reads.
    Deciding,
    /// Its record is being written, or is to be written again.
    Recording,
    /// Its record is there, but this member had no valid lease when it heard so. If the lease is
    /// renewed, it is committed; if the shard is another's by now, that one's recovery decides.
    Undecided,
    /// It is committed, and its writes are being made.
    Applying,
    /// Its only write is being made, without a record.
    Alone,
}

/// One of the writes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apply {
    /// It is under way.
    Sent,
    /// It is made again at the next time.
    Again,
    /// A quorum has it, or it was refused for good.
    Done,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Transaction {
    pub(crate) state: State,
    pub(crate) generation: u32,
    /// Until it is answered.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) shard: u8,
    /// In order, each once.
    pub(crate) partitions: Vec<(Partition, Mode)>,
    /// How many of them are locked.
    pub(crate) locked: usize,
    pub(crate) deadline_ms: u64,
    pub(crate) timestamp_us: i64,
    /// When it came, among the others.
    pub(crate) arrival: u64,
    pub(crate) place: Place,
    /// It has a place in the log.
    pub(crate) has_record: bool,
    /// The record is under way.
    pub(crate) is_sent: bool,
    /// It may have been written by an attempt that nobody knows of.
    pub(crate) may_be_there: bool,
    /// Where its record is being written again, further on in the log.
    pub(crate) next_place: Option<Place>,
    pub(crate) writes: Vec<Apply>,
    /// Attempts in a row of which nobody knows.
    pub(crate) attempts: u32,
    /// One of its writes was refused for good.
    pub(crate) is_refused: bool,
    /// Whoever asked may be told before the writes are there.
    pub(crate) tells_early: bool,
    /// Its writes, if that was done.
    pub(crate) told_early: usize,
}

impl Transaction {
    fn free() -> Self {
        Self {
            state: State::Free,
            generation: 0,
            ticket: None,
            shard: 0,
            partitions: Vec::new(),
            locked: 0,
            deadline_ms: 0,
            timestamp_us: 0,
            arrival: 0,
            place: Place::default(),
            has_record: false,
            is_sent: false,
            may_be_there: false,
            next_place: None,
            writes: Vec::new(),
            attempts: 0,
            is_refused: false,
            tells_early: false,
            told_early: 0,
        }
    }
}

/// What this core has of a shard.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Shard {
    pub(crate) is_owned: bool,
    /// The opening that lets it serve.
    pub(crate) claim: Claim,
    /// What former owners left undone is done; transactions are carried out.
    pub(crate) is_open: bool,
    /// It takes on no new transactions, for it is about to be another's.
    pub(crate) is_closing: bool,
    /// Of the log that its records go to while it is open.
    pub(crate) generation: Generation,
    pub(crate) log: Log,
    pub(crate) last_timestamp_us: i64,
    /// Transactions under way.
    pub(crate) open: usize,
}

/// The transactions of one core.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Transactions {
    pub(crate) all: Vec<Transaction>,
    pub(crate) free: Vec<u32>,
    pub(crate) partitions: Partitions,
    pub(crate) shards: [Shard; SHARDS],
    /// Records that are not done with, of lost shards too.
    pub(crate) records: usize,
    /// Transactions that were told early and are not done with.
    pub(crate) told_early: usize,
    /// Transactions that were taken on since the start.
    pub(crate) arrivals: u64,
    pub(crate) lease: Lease,
    pub(crate) limits: Limits,
    /// When which is to be looked at, the earliest first. Entries of what has changed since are
    /// passed over.
    pub(crate) due: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub(crate) counters: Counters,
    /// A lease says nothing of what was heard before it.
    pub(crate) confirms: bool,
    #[cfg(any(test, feature = "weakened"))]
    pub(crate) without: Option<Without>,
}

impl Transactions {
    /// Without a lease and without shards.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            all: Vec::new(),
            free: Vec::new(),
            partitions: Partitions::default(),
            shards: std::array::from_fn(|_| Shard::default()),
            records: 0,
            told_early: 0,
            arrivals: 0,
            lease: Lease::default(),
            limits,
            due: BinaryHeap::new(),
            counters: Counters::default(),
            confirms: false,
            #[cfg(any(test, feature = "weakened"))]
            without: None,
        }
    }

    /// Whether the caller finds out by itself, for each answer, if the shard was this member's when
    /// it came, and says so by the time that it tells with it: [`no_lease`] where it was not. A
    /// lease, which hangs on the clock, then settles nothing that was undecided.
    pub fn confirm(&mut self, confirms: bool) {
        self.confirms = confirms;
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Transactions under way.
    #[must_use]
    pub fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Records that are not done with.
    #[must_use]
    pub fn open_records(&self) -> usize {
        self.records
    }

    /// A transaction, if it still is what its id says.
    pub(crate) fn find(&mut self, id: TransactionId) -> Option<&mut Transaction> {
        let found = self.all.get_mut(id.index as usize)?;
        (found.generation == id.generation && found.state != State::Free).then_some(found)
    }

    pub(crate) fn insert(&mut self) -> TransactionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Transaction::free());
            self.all.len() as u32 - 1
        });
        TransactionId { index, generation: self.all[index as usize].generation }
    }

    pub(crate) fn id_of(&self, index: u32) -> TransactionId {
        TransactionId { index, generation: self.all[index as usize].generation }
    }

    pub(crate) fn is_valid(&self, now: Now) -> bool {
        now.boot_ns < self.lease.valid_until_ns
    }

    /// Why no transaction of this shard is carried out now.
    pub(crate) fn refusal(&self, now: Now, shard: u8) -> Option<NotExecuted> {
        match self.shards.get(usize::from(shard)) {
            Some(shard) if shard.is_owned && !shard.is_closing => {}
            _ => return Some(NotExecuted::Elsewhere),
        }
        (!self.is_valid(now)).then_some(NotExecuted::LeaseOver)
    }

    /// Answers whoever asked, unless that was done before.
    pub(crate) fn answer(&mut self, id: TransactionId, outcome: Outcome, sink: &mut impl Sink) {
        let Some(ticket) = self.find(id).and_then(|transaction| transaction.ticket.take()) else {
            return;
        };
        let count = match outcome {
            Outcome::Committed { .. } => &mut self.counters.committed,
            Outcome::Read { .. } => &mut self.counters.read,
            Outcome::NotExecuted(_) => &mut self.counters.not_executed,
            Outcome::InDoubt => &mut self.counters.in_doubt,
        };
        *count += 1;
        sink.reply(ticket, outcome);
    }

    /// Ends a transaction that has been answered, and lets those in that wait for its partitions.
    pub(crate) fn end(&mut self, id: TransactionId, sink: &mut impl Sink) {
        let Some(transaction) = self.find(id) else { return };
        let (state, locked) = (transaction.state, transaction.locked);
        transaction.state = State::Free;
        transaction.generation = transaction.generation.wrapping_add(1);
        let partitions = std::mem::take(&mut transaction.partitions);
        let shard = usize::from(transaction.shard);
        transaction.writes.clear();
        let (has_record, told_early) = (transaction.has_record, transaction.told_early);
        (transaction.has_record, transaction.told_early) = (false, 0);
        self.records -= usize::from(has_record);
        self.told_early -= told_early;
        self.shards[shard].open -= 1;
        self.free.push(id.index);
        sink.forget(id);
        let mut granted = Vec::new();
        let Self { partitions: all_partitions, all, .. } = self;
        let is_waiting = |who: TransactionId| {
            let other = &all[who.index as usize];
            other.generation == who.generation && other.state == State::Waiting
        };
        for (place, (partition, _)) in partitions.iter().enumerate() {
            match place.cmp(&locked) {
                std::cmp::Ordering::Less => {
                    all_partitions.unlock(*partition, is_waiting, &mut granted)
                }
                std::cmp::Ordering::Equal if state == State::Waiting => {
                    all_partitions.give_up(*partition, is_waiting, &mut granted);
                }
                _ => break,
            }
        }
        for who in granted {
            self.go_on(who, sink);
        }
    }
}

/// A time at which no lease is valid: what is told with it was heard by a member that may be dead.
#[must_use]
pub fn no_lease(now: Now) -> Now {
    Now { boot_ns: u64::MAX, ..now }
}
