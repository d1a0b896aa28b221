//! Changes by the fleet: the lease, and shards.

use crate::locks::Locks;
use crate::slab::NIL;
use crate::state::BucketState;
use crate::types::{BUCKETS_PER_SHARD, Lease, Namespace, NotServed, Now, Outcome, Sink};

/// Smallest distance between fences of one lock: a holder that writes past the proxy may use those
/// in between as timestamps.
pub(crate) const TOKEN_STEP: i64 = 64;

impl Locks {
    /// Replaces the lease. Requests for locks that could not be granted without one are served.
    pub fn set_lease(&mut self, now: Now, lease: Lease, sink: &mut impl Sink) {
        self.lease = lease;
        self.serve_stalled(now, sink);
    }

    /// Gains a shard for this core: its fences are above `ts_floor_us`, and none of its memory
    /// locks is granted before `memory_grace_until_ns`.
    pub fn gain(
        &mut self,
        now: Now,
        shard: u8,
        ts_floor_us: i64,
        memory_grace_until_ns: u64,
        sink: &mut impl Sink,
    ) {
        let shard = &mut self.shards[usize::from(shard)];
        shard.owned = true;
        shard.last_token = shard.last_token.max(ts_floor_us);
        shard.memory_grace_until_ns = shard.memory_grace_until_ns.max(memory_grace_until_ns);
        self.serve_stalled(now, sink);
    }

    /// Loses a shard: forgets its holds, and answers all waiting requests.
    pub fn lose(&mut self, shard: u8, sink: &mut impl Sink) {
        self.shards[usize::from(shard)].owned = false;
        let locks: Vec<u32> = self.shards[usize::from(shard)].index.iter().copied().collect();
        for lock in locks {
            while self.first_waiter(lock) != NIL {
                let waiter = self.first_waiter(lock);
                self.answer(waiter, Outcome::NotServed(NotServed::Elsewhere), sink);
            }
            while self.locks[lock].first_hold != NIL {
                let hold = self.locks[lock].first_hold;
                self.doubt(hold, sink);
                self.remove_hold(hold);
            }
            self.locks[lock].stalled = false;
            self.forget_unused(lock);
        }
        let Self { locks, stalled, .. } = &mut *self;
        stalled.retain(|&lock| locks[lock].stalled);
        let first = usize::from(shard) * BUCKETS_PER_SHARD;
        for bucket in first..first + BUCKETS_PER_SHARD {
            self.buckets[bucket].state = BucketState::Unknown;
            self.refuse_deferred(bucket as u16, NotServed::Elsewhere, sink);
        }
    }

    /// Latest token of all shards, microseconds: the fleet's next limit must be above it.
    pub fn last_token_us(&self) -> i64 {
        self.shards
            .iter()
            .filter(|shard| shard.owned)
            .map(|shard| shard.last_token)
            .max()
            .unwrap_or(0)
    }

    /// True if no lock of this shard is held in memory, by the record of this core or of an earlier
    /// owner: its next owner need not wait for the longest TTL.
    pub fn is_memory_free(&self, now: Now, shard: u8) -> bool {
        !self.is_in_grace(now, shard) && self.has_no_memory_holds(shard)
    }

    /// True if this core has no record of a memory lock of this shard.
    pub fn has_no_memory_holds(&self, shard: u8) -> bool {
        let index = &self.shards[usize::from(shard)].index;
        !index.iter().any(|&lock| {
            self.locks[lock].namespace == Namespace::Memory && self.locks[lock].first_hold != NIL
        })
    }

    pub(crate) fn has_lease(&self, now: Now) -> bool {
        now.boot_ns < self.lease.valid_until_ns
    }

    /// Checks whether this core may report on the locks of a shard now.
    #[inline]
    pub(crate) fn serves(&self, now: Now, shard: u8) -> Result<(), NotServed> {
        if !self.shards[usize::from(shard)].owned {
            Err(NotServed::Elsewhere)
        } else if !self.has_lease(now) {
            Err(NotServed::LeaseOver)
        } else {
            Ok(())
        }
    }

    /// True while memory locks of this shard may be held that only its former owner knew.
    pub(crate) fn is_in_grace(&self, now: Now, shard: u8) -> bool {
        #[cfg(any(test, feature = "weakened"))]
        if self.without.grace {
            return false;
        }
        now.boot_ns < self.shards[usize::from(shard)].memory_grace_until_ns
    }

    /// The next token of a shard: above all earlier ones, near the wall clock, and below the
    /// lease's limit; `None` if that is reached.
    pub(crate) fn next_token(&mut self, now: Now, shard: u8) -> Option<i64> {
        let state = &mut self.shards[usize::from(shard)];
        let token = state.last_token.checked_add(TOKEN_STEP)?.max(now.wall_us);
        let limit_us = self.lease.ts_limit_us;
        #[cfg(any(test, feature = "weakened"))]
        let limit_us = if self.without.limit { i64::MAX } else { limit_us };
        if token >= limit_us {
            return None;
        }
        state.last_token = token;
        Some(token)
    }

    /// Takes a token of an earlier owner of the shard.
    pub(crate) fn saw_token(&mut self, shard: u8, token: i64) {
        let state = &mut self.shards[usize::from(shard)];
        state.last_token = state.last_token.max(token);
    }

    /// Notes a lock whose next holder cannot be granted now.
    pub(crate) fn stall(&mut self, lock: u32) {
        if !std::mem::replace(&mut self.locks[lock].stalled, true) {
            self.stalled.push(lock);
        }
    }

    fn serve_stalled(&mut self, now: Now, sink: &mut impl Sink) {
        for lock in std::mem::take(&mut self.stalled) {
            self.locks[lock].stalled = false;
            self.hand_over(now, lock, sink);
            self.forget_unused(lock);
        }
    }
}
