//! The transactions of a core, and the state that their steps share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shunt_locks::{Lease, Now, SHARDS};

use crate::engine::log::{Generation, Log, Place};
use crate::engine::opening::Claim;
use crate::engine::partitions::Partitions;
use crate::engine::types::{
    Counters, Effects, Limits, Mode, NotExecuted, Outcome, Partition, Ticket, TransactionId,
};
#[cfg(any(test, feature = "weakened"))]
use crate::engine::weakened::Without;

/// Progress of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is free.
    Free,
    /// Waits for its shard to open.
    Queued,
    /// Waits for the partition at [`Transaction::locked`]; those before are locked.
    Waiting,
    /// The partitions are locked, and its caller reads.
    Deciding,
    /// The record is being written, or is to be written again.
    Recording,
    /// The record was written, but this member had no valid lease when it learned so. A renewed
    /// lease commits the transaction; if the shard has another owner by then, that one's recovery
    /// decides.
    Undecided,
    /// Is committed, and its writes are being made.
    Applying,
    /// The only write is being made, without a record.
    Unlogged,
}

/// State of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apply {
    /// Is under way.
    Sent,
    /// Is repeated later.
    Again,
    /// A quorum has it, or nodes refuse it for good.
    Done,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Transaction {
    pub(crate) state: State,
    pub(crate) generation: u32,
    /// The client's ticket, until it is answered.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) shard: u8,
    /// Partitions in order, each once.
    pub(crate) partitions: Vec<(Partition, Mode)>,
    /// Number of locked partitions.
    pub(crate) locked: usize,
    pub(crate) deadline_ms: u64,
    pub(crate) timestamp_us: i64,
    /// Order of arrival among all transactions.
    pub(crate) arrival: u64,
    pub(crate) place: Place,
    /// Has a place in the log.
    pub(crate) has_record: bool,
    /// The record is being written.
    pub(crate) is_sent: bool,
    /// An attempt of unknown outcome may have written the record.
    pub(crate) may_be_there: bool,
    /// The place further on in the log where its record is being rewritten.
    pub(crate) next_place: Option<Place>,
    pub(crate) writes: Vec<Apply>,
    /// Attempts of unknown outcome in a row.
    pub(crate) attempts: u32,
    /// Nodes refused one of its writes at least once.
    pub(crate) is_doubtful: bool,
    /// Nodes refused one of its writes for good.
    pub(crate) is_refused: bool,
    /// The client may be answered before the writes are made.
    pub(crate) tells_early: bool,
    /// Number of its writes, if the client was answered early.
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
            is_doubtful: false,
            is_refused: false,
            tells_early: false,
            told_early: 0,
        }
    }
}

/// A core's state of a shard.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Shard {
    pub(crate) is_owned: bool,
    /// The opening that lets it serve.
    pub(crate) claim: Claim,
    /// Former owners' work is finished; transactions are carried out.
    pub(crate) is_open: bool,
    /// Accepts no transactions, because it is being handed over.
    pub(crate) is_closing: bool,
    /// Generation of the log in use.
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
    /// Unfinished records, including those of lost shards.
    pub(crate) records: usize,
    /// Writes of transactions whose clients were answered early.
    pub(crate) told_early: usize,
    /// Transactions that were accepted since the start.
    pub(crate) arrivals: u64,
    pub(crate) lease: Lease,
    pub(crate) limits: Limits,
    /// Times at which transactions are due, earliest first. Outdated entries are skipped.
    pub(crate) due: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub(crate) counters: Counters,
    /// A lease says nothing about earlier answers.
    pub(crate) confirms: bool,
    #[cfg(any(test, feature = "weakened"))]
    pub(crate) without: Option<Without>,
}

impl Transactions {
    /// Creates the table, without a lease and without shards.
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

    /// Sets whether the caller proves for each answer that the shard was this member's when it
    /// came, and passes [`no_lease`] as the time where it was not. A lease, which depends on the
    /// clock, then settles no undecided transaction.
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

    /// Unfinished records.
    #[must_use]
    pub fn open_records(&self) -> usize {
        self.records
    }

    /// A transaction, if its id is still valid.
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

    /// The reason why no transaction of this shard is carried out now.
    pub(crate) fn refusal(&self, now: Now, shard: u8) -> Option<NotExecuted> {
        match self.shards.get(usize::from(shard)) {
            Some(shard) if shard.is_owned && !shard.is_closing => {}
            _ => return Some(NotExecuted::Elsewhere),
        }
        (!self.is_valid(now)).then_some(NotExecuted::LeaseOver)
    }

    /// Answers the client, unless that was done before.
    pub(crate) fn answer(
        &mut self,
        id: TransactionId,
        outcome: Outcome,
        effects: &mut impl Effects,
    ) {
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
        effects.reply(ticket, outcome);
    }

    /// Ends a transaction that is answered, and lets in those that wait for its partitions.
    pub(crate) fn end(&mut self, id: TransactionId, effects: &mut impl Effects) {
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
        effects.forget(id);
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
            self.go_on(who, effects);
        }
    }
}

/// A time at which no lease is valid: for answers that a member received while it may have been
/// dead.
#[must_use]
pub fn no_lease(now: Now) -> Now {
    Now { boot_ns: u64::MAX, ..now }
}
