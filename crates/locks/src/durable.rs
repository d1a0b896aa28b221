//! Rows of durable locks: a lock is granted once a quorum has its row, if the lease is still valid
//! then.

use crate::locks::Locks;
use crate::slab::NIL;
use crate::state::{Awaits, Due, Freed, Hold, HoldRow, HoldState, Operation, PendingWrite};
use crate::types::{
    Asked, Handle, Mode, NotServed, Now, Outcome, Quota, Row, Sink, Write, WriteId, Written,
    bucket_of,
};
use crate::wheel::Links;

/// Requests that may wait for one write: the original one, and its owner's repetitions.
const REQUESTS_PER_WRITE_MAX: u32 = 64;
/// Delay before a write of unknown outcome is repeated, milliseconds; it doubles each further time.
const REDRIVE_FIRST_MS: u64 = 100;
const REDRIVE_LONGEST_MS: u64 = 3200;

impl Locks {
    /// Takes the outcome of a write. Outcomes for holds that have ended are accepted too.
    pub fn written(&mut self, now: Now, id: WriteId, written: Written, sink: &mut impl Sink) {
        let (index, generation) = (id.0 as u32, (id.0 >> 32) as u32);
        let Some(write) = self.timed.writes.get(index) else { return };
        if write.generation != generation || !write.in_flight {
            return;
        }
        let write = *write;
        self.timed.writes[index].in_flight = false;
        if write.hold == NIL {
            self.forget_write(index);
            return;
        }
        match written {
            Written::Acknowledged => self.acknowledged(now, index, write.hold, sink),
            // An earlier attempt may have been executed.
            Written::NotSent if write.unknown == 0 => self.not_sent(now, index, write.hold, sink),
            Written::NotSent | Written::Unknown => self.unknown(now, index, sink),
        }
    }

    fn acknowledged(&mut self, now: Now, index: u32, hold: u32, sink: &mut impl Sink) {
        let valid = self.has_lease(now);
        #[cfg(any(test, feature = "weakened"))]
        let valid = valid || self.without.check_after_ack;
        if !valid {
            // Another proxy may have read the rows before this one was written.
            self.answer_all(index, Outcome::InDoubt, sink);
            self.timed.holds[hold].state = HoldState::Unconfirmed;
            self.forget_write(index);
            return;
        }
        let write = self.timed.writes[index];
        // Only a hold that was never reported may end here: an earlier proxy may have told the
        // owner that it holds the lock.
        if write.abandoned
            && write.requests == 0
            && self.timed.holds[hold].state == HoldState::Writing
        {
            self.forget_write(index);
            self.end_hold(now, hold, Freed::GivenBack, sink);
            return;
        }
        self.count_in(hold);
        let timestamp_us = self.timestamp_us(hold);
        let entry = &mut self.timed.holds[hold];
        let fresh = entry.state == HoldState::Writing;
        // The row lacks a longer TTL that was requested meanwhile.
        let done = timestamp_us == write.timestamp_us;
        entry.state = if done { HoldState::Held } else { HoldState::Unconfirmed };
        self.counters.grants += u64::from(fresh);
        let mut longer = Vec::new();
        while self.timed.writes[index].first_request != NIL {
            let request = self.timed.writes[index].first_request;
            match self.timed.requests[request].operation {
                Operation::Renew { ttl_ms, .. } if ttl_ms > write.ttl_ms => {
                    self.stop_waiting(request);
                    longer.push(request);
                }
                Operation::Renew { ttl_ms, .. } => {
                    self.timed.holds[hold].found_again = true;
                    self.extend(now, hold, ttl_ms);
                    self.tell_holder(now, request, hold, true, sink);
                }
                // A repeated request learns that its owner has the lock, as it would a moment
                // later: the TTL is not the requested one.
                _ => {
                    self.timed.holds[hold].found_again |= request != write.original;
                    self.tell_holder(now, request, hold, request == write.original, sink);
                }
            }
        }
        self.forget_write(index);
        for request in longer {
            self.await_row(now, request, hold, sink);
        }
        if !done && self.write_of(hold) == NIL {
            let write = self.begin_write(hold);
            self.send_row(now, write, sink);
        }
    }

    fn tell_holder(
        &mut self,
        now: Now,
        request: u32,
        hold: u32,
        granted: bool,
        sink: &mut impl Sink,
    ) {
        let ticket = self.timed.requests[request].ticket;
        self.forget_request(request);
        let (holder, waiters) =
            (self.holder(now, hold), self.queue_length(self.timed.holds[hold].lock));
        let refused = Outcome::Refused { holder: Some(holder), waiters };
        sink.reply(ticket, if granted { Outcome::Granted { holder, waiters } } else { refused });
    }

    /// Raises the TTL in the row before a longer renewal is confirmed, because the next holder
    /// after a take-over waits for the TTL in the row. The new TTL is at least twice the old, so
    /// that few writes are needed.
    pub(crate) fn lengthen(&mut self, hold: u32, ttl_ms: u32) {
        let entry = &mut self.timed.holds[hold];
        entry.ttl_ms = ttl_ms.max(entry.ttl_ms.saturating_mul(2));
        if entry.state == HoldState::Held {
            entry.state = HoldState::Unconfirmed;
        }
        // Tokens, and the timestamps given to found holds, are 64 apart, and doubling a TTL of a
        // millisecond 27 times gives a day. A row written from outside may have the largest
        // timestamp there is.
        self.change_row(hold, |row| row.timestamp_us = row.timestamp_us.saturating_add(1));
    }

    /// No node has the row.
    fn not_sent(&mut self, now: Now, index: u32, hold: u32, sink: &mut impl Sink) {
        self.answer_all(index, Outcome::NotServed(NotServed::Store), sink);
        let fresh = self.timed.holds[hold].state == HoldState::Writing;
        self.forget_write(index);
        if fresh {
            let lock = self.timed.holds[hold].lock;
            self.remove_hold(hold);
            self.hand_over(now, lock, sink);
            self.forget_unused(lock);
        }
    }

    /// Tells waiting requests that the outcome is unknown; the row is written again with the same
    /// token until its fate is known or the hold has ended.
    fn unknown(&mut self, now: Now, index: u32, sink: &mut impl Sink) {
        self.answer_all(index, Outcome::InDoubt, sink);
        let write = &mut self.timed.writes[index];
        let wait_ms = (REDRIVE_FIRST_MS << write.unknown.min(10)).min(REDRIVE_LONGEST_MS);
        write.unknown += 1;
        write.due_ms = now.ms() + wait_ms;
        self.wheel.set(&mut self.timed, Due::Write(index).id());
    }

    /// Repeats a write whose time has come.
    pub(crate) fn redrive(&mut self, now: Now, index: u32, sink: &mut impl Sink) {
        if !self.has_lease(now) {
            self.timed.writes[index].due_ms = now.ms() + REDRIVE_LONGEST_MS;
            self.wheel.set(&mut self.timed, Due::Write(index).id());
            return;
        }
        self.counters.redriven += 1;
        self.send_row(now, index, sink);
    }

    /// Timestamp of a hold's row, microseconds.
    pub(crate) fn timestamp_us(&self, hold: u32) -> i64 {
        let entry = &self.timed.holds[hold];
        if entry.row == NIL { entry.token } else { self.hold_rows[entry.row].timestamp_us }
    }

    /// Pending write of a hold's row, or [`NIL`].
    pub(crate) fn write_of(&self, hold: u32) -> u32 {
        let row = self.timed.holds[hold].row;
        if row == NIL { NIL } else { self.hold_rows[row].write }
    }

    /// Changes the writing state of a hold's row. A settled state takes no room.
    pub(crate) fn change_row(&mut self, hold: u32, change: impl FnOnce(&mut HoldRow)) {
        let Hold { row: known, token, .. } = self.timed.holds[hold];
        let settled = HoldRow::settled(token);
        let mut row = if known == NIL { settled } else { self.hold_rows[known] };
        change(&mut row);
        self.timed.holds[hold].row = match known {
            NIL if row == settled => NIL,
            NIL => self.hold_rows.insert(row),
            known if row == settled => {
                self.hold_rows.remove(known);
                NIL
            }
            known => {
                self.hold_rows[known] = row;
                known
            }
        };
    }

    /// Creates a write of this hold's row without sending it.
    pub(crate) fn begin_write(&mut self, hold: u32) -> u32 {
        let role = self.timed.holds[hold].role;
        self.roles.refer_again(role);
        self.uses[role as usize].writes += 1;
        let write = PendingWrite {
            generation: 0,
            hold,
            first_request: NIL,
            last_request: NIL,
            requests: 0,
            original: NIL,
            unknown: 0,
            timestamp_us: 0,
            ttl_ms: 0,
            in_flight: false,
            abandoned: false,
            role,
            links: Links::NONE,
            due_ms: 0,
        };
        let index = match self.timed.writes.take_free() {
            Some(index) => {
                let generation = self.timed.writes[index].generation;
                self.timed.writes[index] = PendingWrite { generation, ..write };
                index
            }
            None => self.timed.writes.insert(write),
        };
        self.change_row(hold, |row| row.write = index);
        index
    }

    /// Sends the current row of a hold.
    pub(crate) fn send_row(&mut self, now: Now, index: u32, sink: &mut impl Sink) {
        let timestamp_us = self.timestamp_us(self.timed.writes[index].hold);
        let write = &mut self.timed.writes[index];
        let hold = &self.timed.holds[write.hold];
        (write.in_flight, write.timestamp_us, write.ttl_ms) = (true, timestamp_us, hold.ttl_ms);
        let id = WriteId(u64::from(index) | u64::from(write.generation) << 32);
        let name = self.locks[hold.lock].name.bytes(&self.long_names);
        let (owner, role) = (self.owners.bytes(hold.owner), self.roles.bytes(hold.role));
        let slot = if hold.mode == Mode::Shared { owner } else { b"" };
        let (token, ttl_ms) = (hold.token, hold.ttl_ms);
        let row = Row { name, slot, owner, role, token, ttl_ms, timestamp_us };
        let bucket = bucket_of(name);
        sink.write(Write { id, bucket, row, role: b"", is_release: false });
        self.buckets[usize::from(bucket)].wrote(now);
    }

    fn forget_write(&mut self, index: u32) {
        self.wheel.cancel(&mut self.timed, Due::Write(index).id());
        let write = &mut self.timed.writes[index];
        write.generation = write.generation.wrapping_add(1);
        let (hold, role) = (std::mem::replace(&mut write.hold, NIL), write.role);
        self.uses[role as usize].writes -= 1;
        self.roles.release(role);
        if hold != NIL {
            self.change_row(hold, |row| row.write = NIL);
        }
        self.timed.writes.remove(index);
    }

    fn answer_all(&mut self, write: u32, outcome: Outcome<'_>, sink: &mut impl Sink) {
        while self.timed.writes[write].first_request != NIL {
            self.answer(self.timed.writes[write].first_request, outcome, sink);
        }
    }

    /// Tells the requests waiting for the row of an ending hold that it may have been written. The
    /// write is forgotten, at the latest when its outcome comes.
    pub(crate) fn doubt(&mut self, hold: u32, sink: &mut impl Sink) {
        let write = self.write_of(hold);
        if write == NIL {
            return;
        }
        self.answer_all(write, Outcome::InDoubt, sink);
        if !self.timed.writes[write].in_flight {
            self.forget_write(write);
        }
    }

    /// Makes a request of a hold's own owner wait until the row is written, for the first time or
    /// again.
    pub(crate) fn join(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        hold: u32,
        (operation, known): (Operation, u32),
        sink: &mut impl Sink,
    ) -> Option<Handle> {
        let write = self.write_of(hold);
        if write != NIL && self.timed.writes[write].requests >= REQUESTS_PER_WRITE_MAX {
            self.tell(asked, known, Outcome::Quota(Quota::Requests), sink);
            return None;
        }
        if write == NIL
            && let Err(quota) = self.room_for_write(asked.role)
        {
            self.tell(asked, known, Outcome::Quota(quota), sink);
            return None;
        }
        let request = match known {
            NIL => match self.add_request(asked, operation) {
                Ok(request) => request,
                Err(quota) => {
                    self.tell(asked, NIL, Outcome::Quota(quota), sink);
                    return None;
                }
            },
            known => {
                self.stop_waiting(known);
                known
            }
        };
        let handle = self.handle(request);
        self.await_row(now, request, hold, sink);
        Some(handle)
    }

    /// Like [`Self::join`], for a request that is in the table, and in no list.
    pub(crate) fn await_row(&mut self, now: Now, request: u32, hold: u32, sink: &mut impl Sink) {
        let under_way = self.write_of(hold);
        let write = if under_way == NIL { self.begin_write(hold) } else { under_way };
        self.wait(request, Awaits::Write(write));
        if under_way == NIL {
            self.send_row(now, write, sink);
        }
    }
}
