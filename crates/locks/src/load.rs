//! Rows of a shard's earlier owner are read before the shard's durable locks are served.
//!
//! All rows of a partition are read when the first request for one of its locks comes, or earlier
//! for the deletion of obsolete rows. Requests wait for that, for a bounded time. A holder found in
//! a row gets its full TTL from now on, because renewals are not written. It is told that it holds
//! the lock only after its row was written once more, because the row may have been on one replica
//! only. Earlier owners' writes for the lock, even of its release, may still arrive: so the new row
//! gets a timestamp above all of theirs.

use crate::locks::Locks;
use crate::slab::NIL;
use crate::state::{Awaits, BucketState, Deferred, Due, HoldOf, HoldState, Operation};
use crate::types::{
    Asked, Handle, LoadId, Mode, Namespace, NotServed, Now, Outcome, Row, Sink, bucket_of,
    shard_of_bucket,
};

/// Entries that no longer wait which may pile up before a sweep.
const DEFERRED_KEPT: usize = 1_024;

impl Locks {
    pub(crate) fn is_loaded(&self, bucket: u16) -> bool {
        self.buckets[usize::from(bucket)].state == BucketState::Loaded
    }

    /// Makes a request wait for the rows of its partition, and starts reading them unless that has
    /// begun.
    pub(crate) fn defer(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        operation: Operation,
        bucket: u16,
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        if !self.may_load(now, bucket) {
            self.tell(asked, NIL, Outcome::NotServed(NotServed::LeaseOver), sink);
            return None;
        }
        let request = match self.add_request(asked, operation) {
            Ok(request) => request,
            Err(quota) => {
                self.tell(asked, NIL, Outcome::Quota(quota), sink);
                return None;
            }
        };
        self.timed.requests[request].due_ms = now.ms() + u64::from(self.limits.load_ms);
        self.wait(request, Awaits::Load(bucket));
        self.wheel.set(&mut self.timed, Due::Request(request).id());
        let handle = self.handle(request);
        self.sweep_deferred();
        let state = &mut self.buckets[usize::from(bucket)];
        state.deferred.push(Deferred { handle, name: asked.name.to_vec() });
        self.deferred += 1;
        self.load(bucket, sink);
        Some(handle)
    }

    /// Reads the rows of a partition without a request. `None` if they are already read, or this
    /// core may not read them now.
    pub fn read_ahead(&mut self, now: Now, bucket: u16, sink: &mut impl Sink) -> Option<LoadId> {
        let shard = shard_of_bucket(bucket);
        let is_unknown = self
            .buckets
            .get(usize::from(bucket))
            .is_some_and(|of| of.state == BucketState::Unknown);
        if !is_unknown || self.serves(now, shard).is_err() || !self.may_load(now, bucket) {
            return None;
        }
        self.load(bucket, sink)
    }

    /// Reserves the timestamp for holders found in a partition. `false` if there is none below the
    /// lease's limit.
    fn may_load(&mut self, now: Now, bucket: u16) -> bool {
        if self.buckets[usize::from(bucket)].state != BucketState::Unknown {
            return true;
        }
        let shard = shard_of_bucket(bucket);
        let found_us = self.next_token(now, shard);
        if let Some(found_us) = found_us {
            self.buckets[usize::from(bucket)].found_us = found_us;
        }
        found_us.is_some()
    }

    /// Starts reading the rows of a partition. `None` if that has begun.
    fn load(&mut self, bucket: u16, sink: &mut impl Sink) -> Option<LoadId> {
        let state = &mut self.buckets[usize::from(bucket)];
        if state.state != BucketState::Unknown {
            return None;
        }
        state.state = BucketState::Loading;
        state.generation = state.generation.wrapping_add(1);
        state.name.clear();
        (state.has_rows, state.has_holds) = (false, false);
        let load = LoadId { bucket, generation: state.generation };
        sink.load(load);
        Some(load)
    }

    /// Removes entries of requests that no longer wait for their partitions, once these outnumber
    /// the others.
    fn sweep_deferred(&mut self) {
        if self.deferred < 2 * self.timed.requests.len() + DEFERRED_KEPT {
            return;
        }
        let Self { buckets, timed, .. } = self;
        let waits = |handle: Handle| {
            let request = timed.requests.get(handle.index);
            request.is_some_and(|request| request.generation == handle.generation)
        };
        self.deferred = 0;
        for bucket in buckets {
            bucket.deferred.retain(|deferred| waits(deferred.handle));
            self.deferred += bucket.deferred.len();
        }
    }

    fn take_all_deferred(&mut self, bucket: u16) -> Vec<Deferred> {
        let deferred = std::mem::take(&mut self.buckets[usize::from(bucket)].deferred);
        self.deferred -= deferred.len();
        deferred
    }

    /// True while the rows of a partition are wanted: it is being read, and its shard was not lost
    /// since.
    pub fn is_awaited(&self, load: LoadId) -> bool {
        let bucket = &self.buckets[usize::from(load.bucket)];
        bucket.state == BucketState::Loading && bucket.generation == load.generation
    }

    /// Takes rows of a partition, in the table's order: by name, the exclusive one of each first.
    /// `last` marks the end. `false` if there are more holders than allowed, and the reading has
    /// failed.
    pub fn loaded<'a>(
        &mut self,
        now: Now,
        load: LoadId,
        rows: impl Iterator<Item = Row<'a>>,
        last: bool,
        sink: &mut impl Sink,
    ) -> bool {
        if !self.is_awaited(load) {
            return true;
        }
        for row in rows {
            if !row.owner.is_empty() && !self.has_room_for_loaded() {
                // Leaving out a holder would mean to grant its lock twice.
                self.load_failed(load, sink);
                return false;
            }
            self.take_row(now, load.bucket, &row);
        }
        if !last {
            return true;
        }
        let bucket = &mut self.buckets[usize::from(load.bucket)];
        (bucket.state, bucket.name) = (BucketState::Loaded, Vec::new());
        for deferred in self.take_all_deferred(load.bucket) {
            self.take_deferred(now, &deferred, sink);
        }
        true
    }

    /// Takes the failure of reading a partition; the next request for one of its locks tries again.
    /// `false` if the rows are no longer wanted.
    pub fn load_failed(&mut self, load: LoadId, sink: &mut impl Sink) -> bool {
        if !self.is_awaited(load) {
            return false;
        }
        // Rows read so far are not served, and would be duplicated by the next reading.
        if self.buckets[usize::from(load.bucket)].has_holds {
            self.forget_loaded(shard_of_bucket(load.bucket), load.bucket, sink);
        }
        self.buckets[usize::from(load.bucket)].state = BucketState::Unknown;
        self.refuse_deferred(load.bucket, NotServed::Loading, sink);
        true
    }

    fn forget_loaded(&mut self, shard: u8, bucket: u16, sink: &mut impl Sink) {
        let of_bucket = |locks: &Self, lock: u32| {
            let lock = &locks.locks[lock];
            let name = lock.name.bytes(&locks.long_names);
            lock.namespace == Namespace::Durable && bucket_of(name) == bucket
        };
        let index = &self.shards[usize::from(shard)].index;
        let locks: Vec<u32> = index.iter().copied().filter(|&lock| of_bucket(self, lock)).collect();
        for lock in locks {
            while self.locks[lock].first_hold != NIL {
                let hold = self.locks[lock].first_hold;
                self.doubt(hold, sink);
                self.remove_hold(hold);
            }
            self.forget_unused(lock);
        }
    }

    /// Takes a row. The exclusive row of a name ends shared holds with older rows; a newer row of a
    /// shared hold, held or free, shows that the exclusive one has ended.
    fn take_row(&mut self, now: Now, bucket: u16, row: &Row<'_>) {
        if bucket_of(row.name) != bucket {
            return; // No proxy wrote this row, and none reads it here.
        }
        let shard = shard_of_bucket(bucket);
        self.saw_token(shard, row.token.max(row.timestamp_us));
        let state = &mut self.buckets[usize::from(bucket)];
        state.has_rows = true;
        if state.name != row.name {
            state.name.clear();
            state.name.extend_from_slice(row.name);
            state.exclusive_us = i64::MIN;
        }
        let (exclusive, found_us) = (row.slot.is_empty(), state.found_us);
        if exclusive {
            state.exclusive_us = row.timestamp_us;
        }
        if row.name.is_empty() || !exclusive && row.timestamp_us < state.exclusive_us {
            return;
        }
        let lock = self.find(shard, Namespace::Durable, row.name);
        let first = lock.map_or(NIL, |lock| self.locks[lock].first_hold);
        // Also for a free row: the lock was not shared before the exclusive hold had ended.
        let ended = first != NIL && self.timed.holds[first].mode == Mode::Exclusive;
        #[cfg(any(test, feature = "weakened"))]
        let ended = ended && !(self.without.free_shared_row && row.owner.is_empty());
        if ended {
            self.remove_hold(first);
        }
        if row.owner.is_empty() {
            lock.inspect(|&lock| self.forget_unused(lock));
            return;
        }
        let lock = lock.unwrap_or_else(|| self.add_lock(shard, Namespace::Durable, row.name));
        let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
        let (owner, role) = (self.owners.refer(row.owner), self.refer_role(row.role));
        let (state, token, ttl_ms) = (HoldState::Unconfirmed, row.token, row.ttl_ms);
        #[cfg(any(test, feature = "weakened"))]
        let state = if self.without.confirmation { HoldState::Held } else { state };
        #[cfg(any(test, feature = "weakened"))]
        let found_us = if self.without.later_timestamp { i64::MIN } else { found_us };
        self.counters.loaded_holds += 1;
        self.buckets[usize::from(bucket)].has_holds = true;
        let hold = self.add_hold(now, lock, HoldOf { owner, role, mode, state, token, ttl_ms });
        self.set_apart(hold);
        // An earlier owner of the shard may have reported it.
        self.timed.holds[hold].found_again = true;
        self.change_row(hold, |of_hold| of_hold.timestamp_us = found_us.max(row.timestamp_us));
    }

    fn take_deferred(&mut self, now: Now, deferred: &Deferred, sink: &mut impl Sink) {
        let index = deferred.handle.index;
        let Some(request) = self.timed.requests.get(index).copied() else { return };
        if request.generation != deferred.handle.generation {
            return;
        }
        self.stop_waiting(index);
        let (owner, role) =
            (self.owners.bytes(request.owner).to_vec(), self.roles.bytes(request.role).to_vec());
        let (namespace, ticket) = (Namespace::Durable, request.ticket);
        let asked = Asked { namespace, name: &deferred.name, role: &role, owner: &owner, ticket };
        self.take(now, &asked, request.operation, index, sink);
    }

    /// Answers all requests that wait for a partition.
    pub(crate) fn refuse_deferred(&mut self, bucket: u16, why: NotServed, sink: &mut impl Sink) {
        for deferred in self.take_all_deferred(bucket) {
            let index = deferred.handle.index;
            if self
                .timed
                .requests
                .get(index)
                .is_some_and(|request| request.generation == deferred.handle.generation)
            {
                self.answer(index, Outcome::NotServed(why), sink);
            }
        }
    }
}
