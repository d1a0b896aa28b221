//! The way of a transaction from its decision to its end: its record is written, it commits, and
//! then its writes are made.
//!
//! The commit point is [`Transactions::appended`]: the record's write was acknowledged, while the
//! lease of its shard was valid. A transaction with one write has no record, and commits with that
//! write ([`Transactions::unlogged_written`]).

use std::cmp::Reverse;

use shunt_locks::{Now, Written};

use crate::engine::log::{BUCKET_RECORDS, Log, Place};
use crate::engine::transactions::{Apply, State, Transactions};
use crate::engine::types::{Decision, Effects, NotExecuted, Outcome, TransactionId};
#[cfg(any(test, feature = "weakened"))]
use crate::engine::weakened::Without;

/// Records between two searches for records that hold up the log.
const LOOK_EVERY: u64 = if BUCKET_RECORDS < 64 { 1 } else { BUCKET_RECORDS / 64 };

/// Pause before an attempt of unknown outcome is repeated; it doubles each time, up to the maximum.
const AGAIN_MS: u64 = 50;
const AGAIN_MAX_MS: u64 = 2_000;

/// Largest clock skew assumed between nodes and proxies, microseconds. A row further in the future
/// has a timestamp that a client chose, or one of a wrong clock.
const APART_US: i64 = 1_000_000;

impl Transactions {
    /// Decides a transaction that has read.
    pub fn decided(
        &mut self,
        now: Now,
        id: TransactionId,
        decision: Decision,
        effects: &mut impl Effects,
    ) {
        let Some(transaction) =
            self.find(id).filter(|transaction| transaction.state == State::Deciding)
        else {
            return;
        };
        let shard = transaction.shard;
        let writes = match decision {
            Decision::GiveUp => {
                transaction.ticket = None;
                self.counters.not_executed += 1;
                return self.end(id, effects);
            }
            Decision::Nothing => 0,
            Decision::Write(writes)
            | Decision::WriteAndTell(writes)
            | Decision::Unlogged(writes) => writes,
        };
        let is_unlogged = matches!(decision, Decision::Unlogged(_));
        // The rows that were read are current only if no other member could have written them
        // since, which a lease guarantees.
        let last = self.shards[usize::from(shard)].last_timestamp_us;
        let timestamp_us = last.saturating_add(1).max(now.wall_us);
        let last_us = last_of(timestamp_us, writes);
        let refusal = if !self.may_finish(shard) {
            Some(NotExecuted::Elsewhere)
        } else if !self.is_valid(now) || last_us >= self.lease.ts_limit_us {
            Some(NotExecuted::LeaseOver)
        } else {
            let has_room = self.records < self.limits.records
                && self.shards[usize::from(shard)].log.has_room(self.limits.records_of_shard);
            (writes > 0 && !is_unlogged && !has_room).then_some(NotExecuted::Many)
        };
        if let Some(why) = refusal {
            self.answer(id, Outcome::NotExecuted(why), effects);
            return self.end(id, effects);
        }
        self.shards[usize::from(shard)].last_timestamp_us = last_us;
        if writes == 0 {
            self.answer(id, Outcome::Read { timestamp_us }, effects);
            return self.end(id, effects);
        }
        if is_unlogged {
            let transaction = &mut self.all[id.index as usize];
            (transaction.state, transaction.timestamp_us) = (State::Unlogged, timestamp_us);
            return effects.write_unlogged(id, timestamp_us);
        }
        let log = &mut self.shards[usize::from(shard)];
        let place = Place { generation: log.generation, position: log.log.next_position() };
        let is_long = log.log.is_long() && place.position.0.is_multiple_of(LOOK_EVERY);
        self.records += 1;
        let transaction = &mut self.all[id.index as usize];
        (transaction.timestamp_us, transaction.place, transaction.has_record) =
            (timestamp_us, place, true);
        transaction.writes.clear();
        transaction.writes.resize(usize::from(writes), Apply::Sent);
        (transaction.state, transaction.is_sent) = (State::Recording, true);
        transaction.tells_early = matches!(decision, Decision::WriteAndTell(_));
        #[cfg(any(test, feature = "weakened"))]
        if self.without == Some(Without::Record) {
            return self.commit(id, effects);
        }
        effects.append(id, shard, place, timestamp_us);
        if is_long {
            self.carry_forward(shard, effects);
        }
    }

    /// Takes in the outcome of an unlogged write. Returns `true` if it is committed, and the row is
    /// as written. `Refused` means that no node accepts it, nothing was written, and the client has
    /// been answered.
    pub fn unlogged_written(
        &mut self,
        now: Now,
        id: TransactionId,
        written: Result<Written, Refused>,
        effects: &mut impl Effects,
    ) -> bool {
        let is_valid = self.is_valid(now);
        let Some(transaction) =
            self.find(id).filter(|transaction| transaction.state == State::Unlogged)
        else {
            return false;
        };
        let (shard, timestamp_us) = (transaction.shard, transaction.timestamp_us);
        let is_valid = is_valid && self.may_finish(shard);
        #[cfg(any(test, feature = "weakened"))]
        let is_valid = is_valid || self.without == Some(Without::CheckAfterRecord);
        let Ok(written) = written else {
            self.all[id.index as usize].ticket = None;
            self.counters.not_executed += 1;
            self.end(id, effects);
            return false;
        };
        let outcome = match written {
            // Another owner may have read before it was there, and decided by that.
            Written::Acknowledged if is_valid => Outcome::Committed { timestamp_us },
            Written::NotSent => Outcome::NotExecuted(NotExecuted::Store),
            Written::Acknowledged | Written::Unknown => Outcome::InDoubt,
        };
        let is_committed = matches!(outcome, Outcome::Committed { .. });
        self.counters.unlogged += u64::from(is_committed);
        self.answer(id, outcome, effects);
        self.end(id, effects);
        is_committed
    }

    /// Raises the timestamps of this shard above this one. `false` if it is further in the future
    /// than clocks may be apart, or than this member may write.
    pub fn raise(&mut self, now: Now, shard: u8, timestamp_us: i64) -> bool {
        let Some(shard) = self.shards.get_mut(usize::from(shard)) else { return false };
        // Clients choose timestamps of rows, and the next lease follows the shard's timestamps: the
        // lease's limit alone would follow the clients.
        let is_soon = timestamp_us <= now.wall_us.saturating_add(APART_US)
            && timestamp_us < self.lease.ts_limit_us;
        // A former owner's timestamps are below the floor, which this member's clock may not have
        // reached yet.
        let is_near = timestamp_us <= shard.last_timestamp_us || is_soon;
        if is_near {
            shard.last_timestamp_us = shard.last_timestamp_us.max(timestamp_us);
        }
        is_near
    }

    /// True while the shard is this core's. A shard that is being handed over finishes its
    /// transactions.
    fn may_finish(&self, shard: u8) -> bool {
        self.shards.get(usize::from(shard)).is_some_and(|shard| shard.is_owned)
    }

    /// Takes in the outcome of an attempt to write a record.
    pub fn appended(
        &mut self,
        now: Now,
        id: TransactionId,
        written: Written,
        effects: &mut impl Effects,
    ) {
        let is_valid = self.is_valid(now);
        if self.find(id).is_some_and(|transaction| transaction.state == State::Applying) {
            return self.forward_answered(now, id, written, effects);
        }
        let Some(transaction) =
            self.find(id).filter(|transaction| transaction.state == State::Recording)
        else {
            return;
        };
        transaction.is_sent = false;
        let (shard, place) = (transaction.shard, transaction.place);
        match written {
            Written::Acknowledged => {
                transaction.attempts = 0;
                let is_valid = is_valid && self.may_finish(shard);
                #[cfg(any(test, feature = "weakened"))]
                let is_valid = is_valid || self.without == Some(Without::CheckAfterRecord);
                if is_valid {
                    return self.commit(id, effects);
                }
                self.all[id.index as usize].state = State::Undecided;
                self.answer(id, Outcome::InDoubt, effects);
            }
            Written::NotSent if !transaction.may_be_there => {
                if let Some(log) = self.log_of(shard, place) {
                    log.give_back(place.position);
                }
                self.answer(id, Outcome::NotExecuted(NotExecuted::Store), effects);
                self.end(id, effects);
            }
            Written::NotSent | Written::Unknown => {
                transaction.may_be_there = true;
                #[cfg(any(test, feature = "weakened"))]
                if self.without == Some(Without::RepeatedRecord) {
                    self.finish_record(shard, place);
                    self.answer(id, Outcome::NotExecuted(NotExecuted::Store), effects);
                    return self.end(id, effects);
                }
                self.retry_later(now, id);
            }
        }
    }

    /// Finishes a record. A log that is no longer this core's has been recovered, and is ignored.
    pub(crate) fn finish_record(&mut self, shard: u8, place: Place) {
        if let Some(log) = self.log_of(shard, place) {
            log.finish(place.position);
        }
    }

    /// The log of this place, while this core writes it.
    pub(crate) fn log_of(&mut self, shard: u8, place: Place) -> Option<&mut Log> {
        let shard = &mut self.shards[usize::from(shard)];
        (shard.is_open && shard.generation == place.generation).then_some(&mut shard.log)
    }

    /// Schedules another attempt, later each time.
    pub(crate) fn retry_later(&mut self, now: Now, id: TransactionId) {
        let transaction = &mut self.all[id.index as usize];
        let pause_ms = (AGAIN_MS << transaction.attempts.min(8)).min(AGAIN_MAX_MS);
        transaction.attempts += 1;
        self.due.push(Reverse((now.boot_ns / 1_000_000 + pause_ms, id.index, id.generation)));
    }

    /// Commits: the writes are made from here on, whatever fails.
    pub(crate) fn commit(&mut self, id: TransactionId, effects: &mut impl Effects) {
        let transaction = &mut self.all[id.index as usize];
        transaction.state = State::Applying;
        transaction.attempts = 0;
        let timestamp_us = transaction.timestamp_us;
        for write in 0..transaction.writes.len() {
            effects.apply(id, write as u16, timestamp_us);
        }
        self.tell_early(id, effects);
        #[cfg(any(test, feature = "weakened"))]
        if self.without == Some(Without::LocksUntilApplied) {
            self.answer(id, Outcome::Committed { timestamp_us }, effects);
            self.end(id, effects);
        }
    }

    /// Answers the client before the writes are made, if that is allowed. The partitions stay
    /// locked until then.
    fn tell_early(&mut self, id: TransactionId, effects: &mut impl Effects) {
        let transaction = &mut self.all[id.index as usize];
        let writes = transaction.writes.len();
        let has_room = self.told_early + writes <= self.limits.told_early;
        if transaction.tells_early && has_room && transaction.ticket.is_some() {
            transaction.told_early = writes;
            let timestamp_us = transaction.timestamp_us;
            self.told_early += writes;
            self.counters.told_early += 1;
            self.answer(id, Outcome::Committed { timestamp_us }, effects);
        }
    }

    /// Takes in the outcome of an attempt to make a write.
    ///
    /// Nobody knows whether a write that was refused once will be made. From then on the client
    /// hears "applied" only after all writes are made.
    pub fn applied(
        &mut self,
        now: Now,
        id: TransactionId,
        write: u16,
        written: Result<Written, Refused>,
        effects: &mut impl Effects,
    ) {
        let Some(transaction) =
            self.find(id).filter(|transaction| transaction.state == State::Applying)
        else {
            return;
        };
        let Some(state) =
            transaction.writes.get_mut(usize::from(write)).filter(|state| **state == Apply::Sent)
        else {
            return;
        };
        match written {
            Ok(Written::Acknowledged) => *state = Apply::Done,
            Ok(Written::Unknown | Written::NotSent) => {
                *state = Apply::Again;
                return self.retry_later(now, id);
            }
            Err(Refused::ForNow) => {
                *state = Apply::Again;
                transaction.is_doubtful = true;
                return self.retry_later(now, id);
            }
            Err(Refused::ForGood) => {
                *state = Apply::Done;
                transaction.is_refused = true;
                self.counters.refused += 1;
            }
        }
        self.end_if_made(id, effects);
    }

    /// Ends a transaction whose writes are all made.
    pub(crate) fn end_if_made(&mut self, id: TransactionId, effects: &mut impl Effects) {
        let transaction = &self.all[id.index as usize];
        let is_made = transaction.writes.iter().all(|state| *state == Apply::Done);
        // A reader could take an empty place for the end of the log.
        if is_made && transaction.next_place.is_none() {
            let (shard, place, timestamp_us) =
                (transaction.shard, transaction.place, transaction.timestamp_us);
            // A client that still waits is not told that all writes are made.
            let is_refused = transaction.is_refused;
            let outcome =
                if is_refused { Outcome::InDoubt } else { Outcome::Committed { timestamp_us } };
            self.finish_record(shard, place);
            self.answer(id, outcome, effects);
            self.end(id, effects);
        }
    }
}

/// Timestamp of the last of so many writes, microseconds. Each write has its own, so that the later
/// of two on a row wins.
pub(crate) fn last_of(timestamp_us: i64, writes: u16) -> i64 {
    timestamp_us.saturating_add(i64::from(writes.max(1)) - 1)
}

/// Nodes refuse a write: its table is gone, or they take no such value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// At this attempt. The write is sent again: a node may not know the schema yet.
    ForNow,
    /// At each attempt for a long time. The write is given up.
    ForGood,
}
