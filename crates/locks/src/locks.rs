//! The locks of one core, and what they are made of.

use hashbrown::HashTable;
use std::hash::RandomState;

use crate::slab::Slab;
use crate::state::{
    Apart, Awaits, Bucket, Due, Freed, HoldRow, Lock, Neighbours, Queue, RoleUse, Shard, Timed,
};
use crate::text::{LongNames, Texts};
use crate::types::{
    BUCKETS, Counters, Handle, Lease, Limits, NotServed, Now, Outcome, SHARDS, Sink,
};
use crate::wheel::Wheel;

/// What may be due in one call of [`Locks::tick`]; the rest is left for the next.
const DUE_PER_TICK: usize = 4096;

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
    /// By the number of a role.
    pub(crate) uses: Vec<RoleUse>,
    /// Locks whose next holder could not be granted for want of a lease.
    pub(crate) stalled: Vec<u32>,
    /// Requests that wait for their partitions, and some that do not any more.
    pub(crate) deferred: usize,
    /// Bytes of the names and owners of all holds but those apart.
    pub(crate) text_bytes: u64,
    pub(crate) apart: Apart,
    pub(crate) hasher: RandomState,
    pub(crate) counters: Counters,
    /// Steps that a test leaves out.
    #[cfg(any(test, feature = "weakened"))]
    pub(crate) without: crate::weakened::Without,
}

impl Locks {
    /// None yet, and no shard.
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

    /// Does what is due. True: there is more, and it should be called again soon.
    pub fn tick(&mut self, now: Now, sink: &mut impl Sink) -> bool {
        for _ in 0..DUE_PER_TICK {
            let Some(id) = self.wheel.next_due(&mut self.timed, now.ms()) else { return false };
            match Due::of(id) {
                Due::Hold(hold) => self.end_hold(now, hold, Freed::Expired, sink),
                Due::Request(request) => self.wait_ended(now, request, sink),
                Due::Write(write) => self.redrive(now, write, sink),
            }
        }
        true
    }

    /// When [`Locks::tick`] has something to do next, by the milliseconds of [`Now::boot_ns`].
    pub fn next_due_ms(&self) -> Option<u64> {
        self.wheel.next_ms()
    }

    /// The client that made a request is gone, or takes it back: it gets no answer any more. A lock
    /// that is being granted to it is released. `false`: it was answered before.
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

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Locks that somebody holds or waits for.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// True if nobody holds a lock or waits for one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Holds of all locks.
    pub fn holds(&self) -> usize {
        self.timed.holds.len()
    }

    /// Requests that are not answered.
    pub fn requests(&self) -> usize {
        self.timed.requests.len()
    }

    /// Answers a request that waited, and forgets it.
    pub(crate) fn answer(&mut self, request: u32, outcome: Outcome<'_>, sink: &mut impl Sink) {
        sink.reply(self.timed.requests[request].ticket, outcome);
        self.counters.in_doubt += u64::from(outcome == Outcome::InDoubt);
        self.forget_request(request);
    }

    /// A request has waited long enough.
    fn wait_ended(&mut self, now: Now, request: u32, sink: &mut impl Sink) {
        match self.timed.requests[request].awaits {
            Awaits::Turn(lock) => {
                self.counters.wait_timeouts += 1;
                let ticket = self.timed.requests[request].ticket;
                self.forget_request(request);
                sink.reply(ticket, self.refused(now, lock));
                // Readers behind a writer that waits no longer may share the lock with those who
                // have it.
                self.hand_over(now, lock, sink);
                self.forget_unused(lock);
            }
            _ => self.answer(request, Outcome::NotServed(NotServed::Loading), sink),
        }
    }
}
