//! End of a hold by its owner, an operator or its time, and the next grant. Renewals, and queries
//! of a lock.

use crate::locks::Locks;
use crate::slab::NIL;
use crate::state::{Claim, Due, Freed, Handed, Hold, HoldState, Operation};
use crate::types::{
    Asked, Handle, Holder, Mode, Namespace, NotServed, Now, Outcome, Row, Sink, Write, WriteId,
    bucket_of, shard_of,
};

impl Locks {
    /// Extends a hold to `ttl_ms` from now, if it belongs to the owner and has this fence and mode,
    /// if given. Returns the handle of a request that is not answered yet.
    pub fn renew(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        mode: Option<Mode>,
        (ttl_ms, fence): (u32, Option<i64>),
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        self.take(now, asked, Operation::Renew { mode, ttl_ms, fence }, NIL, sink)
    }

    /// Ends a hold, if it belongs to the owner and has this fence, if given. `forced`: the owner's
    /// hold under any role; for operators only. Returns the handle of a request that is not
    /// answered yet.
    pub fn release(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        fence: Option<i64>,
        forced: bool,
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        self.take(now, asked, Operation::Release { fence, forced }, NIL, sink)
    }

    /// Ends a hold that was granted to a request whose client has gone, or does not want it, unless
    /// its owner has asked again since and was told that it holds the lock. Returns the handle of a
    /// request that is not answered yet.
    pub fn give_back(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        fence: i64,
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        self.take(now, asked, Operation::GiveBack { fence }, NIL, sink)
    }

    /// Queries the holder of a lock. Returns the handle of a request that is not answered yet.
    pub fn look(&mut self, now: Now, asked: &Asked<'_>, sink: &mut impl Sink) -> Option<Handle> {
        self.take(now, asked, Operation::Look, NIL, sink)
    }

    /// True if an earlier owner of the shard may have granted this memory lock, and this core has
    /// no record of a holder.
    pub fn is_memory_unknown(&self, now: Now, name: &[u8]) -> bool {
        let shard = shard_of(name);
        let lock = self.find(shard, Namespace::Memory, name);
        self.is_in_grace(now, shard) && lock.is_none_or(|lock| self.locks[lock].first_hold == NIL)
    }

    /// Calls `see` for every holder of a lock, in the order of their grants, and then for every
    /// waiting request, in order, with fence 0 and the time left to wait, until it returns `false`.
    pub fn queue(
        &self,
        now: Now,
        namespace: Namespace,
        name: &[u8],
        mut see: impl FnMut(Holder<'_>, &[u8]) -> bool,
    ) {
        let Some(lock) = self.find(shard_of(name), namespace, name) else { return };
        let mut hold = self.locks[lock].first_hold;
        while hold != NIL {
            let entry = &self.timed.holds[hold];
            if !see(self.holder(now, hold), self.roles.bytes(entry.role)) {
                return;
            }
            hold = self.next_hold(hold);
        }
        let mut request = self.first_waiter(lock);
        while request != NIL {
            let entry = &self.timed.requests[request];
            if let Operation::Acquire { mode, .. } = entry.operation {
                let ttl_ms = entry.due_ms.saturating_sub(now.ms()) as u32;
                let waiter =
                    Holder { owner: self.owners.bytes(entry.owner), mode, fence: 0, ttl_ms };
                if !see(waiter, self.roles.bytes(entry.role)) {
                    return;
                }
            }
            request = entry.next;
        }
    }

    pub(crate) fn renew_now(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        shard: u8,
        (operation, known): (Operation, u32),
        (mode, ttl_ms, fence): (Option<Mode>, u32, Option<i64>),
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        let hold = self.own_hold(now, asked, shard, known, (fence, false), sink)?;
        if mode.is_some_and(|mode| mode != self.timed.holds[hold].mode) {
            self.tell(asked, known, Outcome::OtherMode, sink);
            return None;
        }
        let longer =
            asked.namespace == Namespace::Durable && ttl_ms > self.timed.holds[hold].ttl_ms;
        #[cfg(any(test, feature = "weakened"))]
        let longer = longer && !self.without.longer_row;
        if longer {
            self.lengthen(hold, ttl_ms);
        }
        if self.timed.holds[hold].state != HoldState::Held {
            return self.join(now, asked, hold, (operation, known), sink);
        }
        self.close(known);
        self.timed.holds[hold].found_again = true;
        self.extend(now, hold, ttl_ms);
        let waiters = self.queue_length(self.timed.holds[hold].lock);
        sink.reply(asked.ticket, Outcome::Granted { holder: self.holder(now, hold), waiters });
        None
    }

    /// Extends a hold to `ttl_ms` from now.
    pub(crate) fn extend(&mut self, now: Now, hold: u32, ttl_ms: u32) {
        self.counters.renewals += 1;
        self.timed.holds[hold].due_ms = now.ms() + u64::from(ttl_ms) + 1;
        self.wheel.set(&mut self.timed, Due::Hold(hold).id());
    }

    pub(crate) fn release_now(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        shard: u8,
        known: u32,
        (fence, forced): (Option<i64>, bool),
        sink: &mut impl Sink,
    ) {
        let Some(hold) = self.own_hold(now, asked, shard, known, (fence, forced), sink) else {
            return;
        };
        self.close(known);
        self.end_hold(now, hold, Freed::Released(asked.role), sink);
        sink.reply(asked.ticket, Outcome::Released { waiters: self.waiters(asked, shard) });
    }

    pub(crate) fn give_back_now(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        shard: u8,
        known: u32,
        fence: i64,
        sink: &mut impl Sink,
    ) {
        let Some(hold) = self.own_hold(now, asked, shard, known, (Some(fence), false), sink) else {
            return;
        };
        self.close(known);
        if self.timed.holds[hold].found_again {
            let waiters = self.waiters(asked, shard);
            sink.reply(
                asked.ticket,
                Outcome::Refused { holder: Some(self.holder(now, hold)), waiters },
            );
            return;
        }
        self.end_hold(now, hold, Freed::GivenBack, sink);
        sink.reply(asked.ticket, Outcome::Released { waiters: self.waiters(asked, shard) });
    }

    fn waiters(&self, asked: &Asked<'_>, shard: u8) -> u32 {
        self.find(shard, asked.namespace, asked.name).map_or(0, |lock| self.queue_length(lock))
    }

    /// The owner's hold, if it has this fence; with `of_any_role` under any role. Otherwise answers
    /// the request.
    fn own_hold(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        shard: u8,
        known: u32,
        (fence, of_any_role): (Option<i64>, bool),
        sink: &mut impl Sink,
    ) -> Option<u32> {
        let Some(lock) = self.find(shard, asked.namespace, asked.name) else {
            self.tell(asked, known, Outcome::Refused { holder: None, waiters: 0 }, sink);
            return None;
        };
        let hold = self.hold_of(lock, asked.owner);
        if let Some(hold) = hold {
            let held = &self.timed.holds[hold];
            if !of_any_role && self.roles.bytes(held.role) != asked.role {
                self.tell(asked, known, Outcome::Unauthorized, sink);
                return None;
            }
            if fence.is_none_or(|fence| fence == held.token) {
                return Some(hold);
            }
        }
        self.close(known);
        sink.reply(asked.ticket, self.refused(now, lock));
        None
    }

    pub(crate) fn look_now(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        shard: u8,
        known: u32,
        sink: &mut impl Sink,
    ) {
        self.close(known);
        let lock = self.find(shard, asked.namespace, asked.name);
        let holder = lock.and_then(|lock| self.first_holder(now, lock));
        let waiters = lock.map_or(0, |lock| self.queue_length(lock));
        // A holder granted by a former owner may still rely on it: the lock is not known to be
        // free.
        let may_be_held = holder.is_none()
            && asked.namespace == Namespace::Memory
            && self.is_in_grace(now, shard);
        sink.reply(
            asked.ticket,
            if may_be_held {
                Outcome::NotServed(NotServed::Grace)
            } else {
                Outcome::Seen { holder, waiters }
            },
        );
    }

    /// Ends a hold and grants the lock to the next requests. If a durable lock becomes free, its
    /// row is written as free for the shard's next owner. No request waits for that write, because
    /// its loss only makes the next holder after a take-over wait.
    pub(crate) fn end_hold(&mut self, now: Now, index: u32, why: Freed<'_>, sink: &mut impl Sink) {
        match why {
            Freed::Released(_) | Freed::GivenBack => self.counters.releases += 1,
            Freed::Expired => self.counters.expiries += 1,
        }
        self.doubt(index, sink);
        let hold = self.timed.holds[index];
        self.owners.refer_again(hold.owner);
        self.roles.refer_again(hold.role);
        self.remove_hold(index);
        let handed = self.hand_over(now, hold.lock, sink);
        let superseded = match hold.mode {
            Mode::Exclusive => handed != Handed::Nobody,
            Mode::Shared => handed == Handed::Exclusive,
        };
        if self.locks[hold.lock].namespace == Namespace::Durable && !superseded {
            self.write_free_row(now, &hold, why, sink);
        }
        self.owners.release(hold.owner);
        self.roles.release(hold.role);
        self.forget_unused(hold.lock);
    }

    fn write_free_row(&mut self, now: Now, hold: &Hold, why: Freed<'_>, sink: &mut impl Sink) {
        let shard = self.locks[hold.lock].shard;
        if self.serves(now, shard).is_err() {
            return;
        }
        // If a hold ends while rows are still being read, later rows may show that others followed
        // it.
        if !self.is_loaded(bucket_of(self.locks[hold.lock].name.bytes(&self.long_names))) {
            return;
        }
        let Some(token) = self.next_token(now, shard) else { return };
        let lock = &self.locks[hold.lock];
        let name = lock.name.bytes(&self.long_names);
        let slot = if hold.mode == Mode::Shared { self.owners.bytes(hold.owner) } else { b"" };
        let row = Row { name, slot, owner: b"", role: b"", token, ttl_ms: 0, timestamp_us: token };
        let bucket = bucket_of(name);
        let (role, is_release) = match why {
            Freed::Released(role) => (role, true),
            Freed::GivenBack | Freed::Expired => (self.roles.bytes(hold.role), false),
        };
        sink.write(Write { id: WriteId::UNWATCHED, bucket, row, role, is_release });
        self.buckets[usize::from(bucket)].wrote(now);
    }

    /// Grants a lock to the longest-waiting requests, as far as they can share it.
    pub(crate) fn hand_over(&mut self, now: Now, lock: u32, sink: &mut impl Sink) -> Handed {
        let mut handed = Handed::Nobody;
        loop {
            let request = self.first_waiter(lock);
            if request == NIL {
                return handed;
            }
            let waiter = self.timed.requests[request];
            let Operation::Acquire { mode, ttl_ms, .. } = waiter.operation else { return handed };
            let first = self.locks[lock].first_hold;
            if first != NIL
                && (mode == Mode::Exclusive || self.timed.holds[first].mode == Mode::Exclusive)
            {
                return handed;
            }
            let shard = self.locks[lock].shard;
            if self.serves(now, shard).is_err() {
                self.stall(lock);
                return handed;
            }
            if let Some(hold) = self.hold_of(lock, self.owners.bytes(waiter.owner)) {
                self.holds_already(now, request, hold, sink);
                continue;
            }
            if let Err(quota) =
                self.room_for_hold(self.roles.bytes(waiter.role), self.locks[lock].namespace)
            {
                self.answer(request, Outcome::Quota(quota), sink);
                continue;
            }
            let Some(token) = self.next_token(now, shard) else {
                self.stall(lock);
                return handed;
            };
            self.stop_waiting(request);
            self.owners.refer_again(waiter.owner);
            self.roles.refer_again(waiter.role);
            self.counters.waited_grants += 1;
            let (owner, role, ticket) = (waiter.owner, waiter.role, waiter.ticket);
            self.grant(
                now,
                lock,
                Claim { owner, role, mode, ttl_ms, token, request, ticket },
                sink,
            );
            handed = if mode == Mode::Exclusive { Handed::Exclusive } else { Handed::Shared };
        }
    }

    /// Handles a request whose turn has come, and whose owner has the lock by another one.
    fn holds_already(&mut self, now: Now, request: u32, hold: u32, sink: &mut impl Sink) {
        let (waiter, held) = (self.timed.requests[request], self.timed.holds[hold]);
        if held.role != waiter.role {
            self.answer(request, Outcome::Unauthorized, sink);
        } else if held.state != HoldState::Held {
            self.stop_waiting(request);
            self.await_row(now, request, hold, sink);
        } else {
            self.forget_request(request);
            self.timed.holds[hold].found_again = true;
            let waiters = self.queue_length(held.lock);
            sink.reply(
                waiter.ticket,
                Outcome::Refused { holder: Some(self.holder(now, hold)), waiters },
            );
        }
    }
}
