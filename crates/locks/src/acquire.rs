//! Requests for a lock: granted, refused, or queued in the order of arrival.

use crate::locks::Locks;
use crate::slab::NIL;
use crate::state::{Awaits, Claim, Due, HoldOf, HoldState, Operation};
use crate::types::{
    Asked, Handle, Mode, Namespace, NotServed, Now, Outcome, Sink, bucket_of, shard_of,
};

impl Locks {
    /// Requests a lock for `ttl_ms` from its grant, waiting at most `wait_ms`, in the order of
    /// requests: a reader queues behind a waiting writer. The caller ensures that the TTL is longer
    /// than the wait. Returns the handle of a request that is not answered yet.
    pub fn acquire(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        mode: Mode,
        (ttl_ms, wait_ms): (u32, u32),
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        self.take(now, asked, Operation::Acquire { mode, ttl_ms, wait_ms }, NIL, sink)
    }

    /// Processes a request. `known` is its number if it is already in the table of requests.
    pub(crate) fn take(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        operation: Operation,
        known: u32,
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        let shard = shard_of(asked.name);
        if let Err(why) = self.serves(now, shard) {
            self.tell(asked, known, Outcome::NotServed(why), sink);
            return None;
        }
        if asked.namespace == Namespace::Durable {
            let bucket = bucket_of(asked.name);
            if !self.is_loaded(bucket) {
                return self.defer(now, asked, operation, bucket, sink);
            }
        }
        match operation {
            Operation::Acquire { mode, ttl_ms, wait_ms } => {
                let request = (operation, known);
                self.acquire_now(now, asked, shard, request, (mode, ttl_ms, wait_ms), sink)
            }
            Operation::Renew { mode, ttl_ms, fence } => {
                self.renew_now(now, asked, shard, (operation, known), (mode, ttl_ms, fence), sink)
            }
            Operation::Release { fence, forced } => {
                self.release_now(now, asked, shard, known, (fence, forced), sink);
                None
            }
            Operation::GiveBack { fence } => {
                self.give_back_now(now, asked, shard, known, fence, sink);
                None
            }
            Operation::Look => {
                self.look_now(now, asked, shard, known, sink);
                None
            }
        }
    }

    fn acquire_now(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        shard: u8,
        (operation, known): (Operation, u32),
        (mode, ttl_ms, wait_ms): (Mode, u32, u32),
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        let lock = self.find(shard, asked.namespace, asked.name);
        if let Some(lock) = lock {
            if let Some(hold) = self.hold_of(lock, asked.owner) {
                return self.ask_again(now, asked, hold, (operation, known), sink);
            }
            if !self.is_free(lock, mode) {
                if wait_ms > 0 {
                    return self.queue_up(now, asked, lock, (operation, known), wait_ms, sink);
                }
                self.close(known);
                sink.reply(asked.ticket, self.refused(now, lock));
                return None;
            }
        }
        if asked.namespace == Namespace::Memory && self.is_in_grace(now, shard) {
            self.tell(asked, known, Outcome::NotServed(NotServed::Grace), sink);
            return None;
        }
        if let Err(quota) = self.room_for_hold(asked.role, asked.namespace) {
            self.tell(asked, known, Outcome::Quota(quota), sink);
            return None;
        }
        // A durable grant waits for its row.
        let request = if known == NIL && asked.namespace == Namespace::Durable {
            match self.add_request(asked, operation) {
                Ok(request) => request,
                Err(quota) => {
                    self.tell(asked, NIL, Outcome::Quota(quota), sink);
                    return None;
                }
            }
        } else {
            known
        };
        let Some(token) = self.next_token(now, shard) else {
            self.tell(asked, request, Outcome::NotServed(NotServed::LeaseOver), sink);
            return None;
        };
        let lock = lock.unwrap_or_else(|| self.add_lock(shard, asked.namespace, asked.name));
        let (owner, role) = (self.owners.refer(asked.owner), self.refer_role(asked.role));
        self.grant(
            now,
            lock,
            Claim { owner, role, mode, ttl_ms, token, request, ticket: asked.ticket },
            sink,
        );
        (asked.namespace == Namespace::Durable).then(|| self.handle(request))
    }

    /// True if a lock can be granted in this mode at once, ahead of no waiting request.
    fn is_free(&self, lock: u32, mode: Mode) -> bool {
        let lock = &self.locks[lock];
        lock.queue == NIL
            && (lock.first_hold == NIL
                || mode == Mode::Shared && self.timed.holds[lock.first_hold].mode == Mode::Shared)
    }

    fn queue_up(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        lock: u32,
        (operation, known): (Operation, u32),
        wait_ms: u32,
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        let request = match known {
            NIL => match self.add_request(asked, operation) {
                Ok(request) => request,
                Err(quota) => {
                    self.tell(asked, NIL, Outcome::Quota(quota), sink);
                    return None;
                }
            },
            known => known,
        };
        self.timed.requests[request].due_ms = now.ms() + u64::from(wait_ms);
        self.wait(request, Awaits::Turn(lock));
        self.wheel.set(&mut self.timed, Due::Request(request).id());
        Some(self.handle(request))
    }

    /// Repeats a request by the owner of a hold: it is told the fence once the row is written.
    fn ask_again(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        hold: u32,
        (operation, known): (Operation, u32),
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        let held = self.timed.holds[hold];
        let other_mode = matches!(operation, Operation::Acquire { mode, .. } if mode != held.mode);
        if self.roles.bytes(held.role) != asked.role {
            self.tell(asked, known, Outcome::Unauthorized, sink);
        } else if other_mode {
            self.tell(asked, known, Outcome::OtherMode, sink);
        } else if held.state != HoldState::Held {
            return self.join(now, asked, hold, (operation, known), sink);
        } else {
            self.close(known);
            self.timed.holds[hold].found_again = true;
            let (holder, waiters) = (self.holder(now, hold), self.queue_length(held.lock));
            #[cfg(any(test, feature = "weakened"))]
            if self.without.refusal {
                sink.reply(asked.ticket, Outcome::Granted { holder, waiters });
                return None;
            }
            sink.reply(asked.ticket, Outcome::Refused { holder: Some(holder), waiters });
        }
        None
    }

    /// Grants a lock: the owner is told at once for a memory lock, otherwise when the row is
    /// written.
    pub(crate) fn grant(&mut self, now: Now, lock: u32, claim: Claim, sink: &mut impl Sink) {
        let Claim { owner, role, mode, ttl_ms, token, request, ticket } = claim;
        let durable = self.locks[lock].namespace == Namespace::Durable;
        let state = if durable { HoldState::Writing } else { HoldState::Held };
        let hold = self.add_hold(now, lock, HoldOf { owner, role, mode, state, token, ttl_ms });
        if durable {
            let write = self.begin_write(hold);
            self.wait(request, Awaits::Write(write));
            self.timed.writes[write].original = request;
            self.send_row(now, write, sink);
            return;
        }
        self.close(request);
        self.counters.grants += 1;
        let waiters = self.queue_length(lock);
        sink.reply(ticket, Outcome::Granted { holder: self.holder(now, hold), waiters });
    }

    /// Answers a request that is being processed.
    pub(crate) fn tell(
        &mut self,
        asked: &Asked<'_>,
        known: u32,
        outcome: Outcome<'_>,
        sink: &mut impl Sink,
    ) {
        self.close(known);
        sink.reply(asked.ticket, outcome);
    }

    /// Forgets an answered request, if it was in the table.
    pub(crate) fn close(&mut self, known: u32) {
        if known != NIL {
            self.forget_request(known);
        }
    }
}
