//! The locks of one core, and their parts.

use hashbrown::HashTable;
use std::hash::RandomState;

use crate::slab::Slab;
use crate::state::{
    Apart, Awaits, Bucket, HoldRow, Lock, Neighbours, Queue, RoleUse, Shard, Timed,
};
use crate::text::{LongNames, Texts};
use crate::types::{BUCKETS, Counters, Handle, Lease, Limits, Now, Outcome, SHARDS, Sink};
use crate::wheel::Wheel;

/// The locks of one core.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Locks {
    pub(crate) limits: Limits,
    pub(crate) lease: Lease,
    pub(crate) shards: Vec<Shard>,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) locks: Slab<Lock>,
    pub(crate) queues: Slab<Queue>,
    pub(crate) long_names: LongNames,
    pub(crate) timed: Timed,
    pub(crate) neighbours: Slab<Neighbours>,
    pub(crate) hold_rows: Slab<HoldRow>,
    pub(crate) wheel: Wheel,
    /// Shared holds, by lock and owner.
    pub(crate) shared: HashTable<u32>,
    pub(crate) owners: Texts,
    pub(crate) roles: Texts,
    /// Use by each role, indexed by its number.
    pub(crate) uses: Vec<RoleUse>,
    /// Locks whose next holder could not be granted for lack of a lease.
    pub(crate) stalled: Vec<u32>,
    /// Requests that wait for their partitions, and some that no longer do.
    pub(crate) deferred: usize,
    /// Bytes of the names and owners of all holds except those apart.
    pub(crate) text_bytes: u64,
    pub(crate) apart: Apart,
    pub(crate) hasher: RandomState,
    pub(crate) counters: Counters,
    /// Steps that a test leaves out.
    #[cfg(any(test, feature = "weakened"))]
    pub(crate) without: crate::weakened::Without,
}

impl Locks {
    /// Creates a core without locks or shards.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            lease: Lease::default(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            locks: Slab::default(),
            queues: Slab::default(),
            long_names: LongNames::default(),
            timed: Timed::default(),
            neighbours: Slab::default(),
            hold_rows: Slab::default(),
            wheel: Wheel::default(),
            shared: HashTable::new(),
            owners: Texts::default(),
            roles: Texts::default(),
            uses: Vec::new(),
            stalled: Vec::new(),
            deferred: 0,
            text_bytes: 0,
            apart: Apart::default(),
            hasher: RandomState::new(),
            counters: Counters::default(),
            #[cfg(any(test, feature = "weakened"))]
            without: crate::weakened::Without::default(),
        }
    }

    /// Cancels a request whose client has gone or withdrawn it: it gets no answer. A lock that is
    /// being granted to it is released. `false` if it was answered before.
    pub fn cancel(&mut self, now: Now, handle: Handle, sink: &mut impl Sink) -> bool {
        let Some(request) = self.timed.requests.get(handle.index) else { return false };
        if request.generation != handle.generation {
            return false;
        }
        match request.awaits {
            Awaits::Turn(lock) => {
                self.forget_request(handle.index);
                self.hand_over(now, lock, sink);
                self.forget_unused(lock);
            }
            Awaits::Write(write) => {
                let abandoned = self.timed.writes[write].original == handle.index;
                self.forget_request(handle.index);
                self.timed.writes[write].abandoned |= abandoned;
            }
            Awaits::Load(_) | Awaits::Nothing => self.forget_request(handle.index),
        }
        true
    }

    /// Counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of locks with holders or waiting requests.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Number of places of locks, which [`Self::longest`] visits: in use, or once in use.
    pub fn places(&self) -> usize {
        self.locks.places()
    }

    /// True if no lock has a holder or waiting request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of holds of all locks.
    pub fn holds(&self) -> usize {
        self.timed.holds.len()
    }

    /// Number of unanswered requests.
    pub fn requests(&self) -> usize {
        self.timed.requests.len()
    }

    /// Answers a waiting request, and forgets it.
    pub(crate) fn answer(&mut self, request: u32, outcome: Outcome<'_>, sink: &mut impl Sink) {
        sink.reply(self.timed.requests[request].ticket, outcome);
        self.counters.in_doubt += u64::from(outcome == Outcome::InDoubt);
        self.forget_request(request);
    }
}
