//! A transaction is decided, its record is written, and then what the record says.

use std::cmp::Reverse;

use shunt_locks::{Now, Written};

use crate::engine::log::{BUCKET_RECORDS, Log, Place};
use crate::engine::transactions::{Apply, State, Transactions};
use crate::engine::types::{Decision, NotExecuted, Outcome, Sink, TransactionId};
#[cfg(any(test, feature = "weakened"))]
use crate::engine::weakened::Without;

/// Between two looks for records that hold up the log, records.
const LOOK_EVERY: u64 = if BUCKET_RECORDS < 64 { 1 } else { BUCKET_RECORDS / 64 };

/// Before an attempt of which nobody knows is repeated: doubled each time, up to the second.
const AGAIN_MS: u64 = 50;
const AGAIN_MAX_MS: u64 = 2_000;

/// So far clocks of nodes and proxies may be apart, as they are kept, microseconds: a row that is
/// further in the future than that was written with a timestamp that somebody chose, or by a wrong
/// clock.
const APART_US: i64 = 1_000_000;

impl Transactions {
    /// The transaction has read, and this is what it does.
    pub fn decided(
        &mut self,
        now: Now,
        id: TransactionId,
        decision: Decision,
        sink: &mut impl Sink,
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
                return self.end(id, sink);
            }
            Decision::Nothing => 0,
            Decision::Write(writes) | Decision::WriteAndTell(writes) | Decision::Alone(writes) => {
                writes
            }
        };
        let is_alone = matches!(decision, Decision::Alone(_));
        // What it has read counts for the time up to now only if nobody else could have written it
        // since: with a lease.
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
            (writes > 0 && !is_alone && !has_room).then_some(NotExecuted::Many)
        };
        if let Some(why) = refusal {
            self.answer(id, Outcome::NotExecuted(why), sink);
            return self.end(id, sink);
        }
        self.shards[usize::from(shard)].last_timestamp_us = last_us;
        if writes == 0 {
            self.answer(id, Outcome::Read { timestamp_us }, sink);
            return self.end(id, sink);
        }
        if is_alone {
            let transaction = &mut self.all[id.index as usize];
            (transaction.state, transaction.timestamp_us) = (State::Alone, timestamp_us);
            return sink.write_alone(id, timestamp_us);
        }
        let log = &mut self.shards[usize::from(shard)];
        let place = Place { generation: log.generation, position: log.log.take() };
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
            return self.commit(id, sink);
        }
        sink.append(id, shard, place, timestamp_us);
        if is_long {
            self.carry_forward(shard, sink);
        }
    }

    /// What has become of the write of a transaction that is this alone. `true`: it is committed,
    /// and what it has written is what there is. `Refused`: no node takes it, nothing was written,
    /// and whoever asked has been answered.
    pub fn written_alone(
        &mut self,
        now: Now,
        id: TransactionId,
        written: Result<Written, Refused>,
        sink: &mut impl Sink,
    ) -> bool {
        let is_valid = self.is_valid(now);
        let Some(transaction) =
            self.find(id).filter(|transaction| transaction.state == State::Alone)
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
            self.end(id, sink);
            return false;
        };
        let outcome = match written {
            // Another owner may have read before it was there, and decided by that.
            Written::Acknowledged if is_valid => Outcome::Committed { timestamp_us },
            Written::NotSent => Outcome::NotExecuted(NotExecuted::Store),
            Written::Acknowledged | Written::Unknown => Outcome::InDoubt,
        };
        let is_committed = matches!(outcome, Outcome::Committed { .. });
        self.counters.alone += u64::from(is_committed);
        self.answer(id, outcome, sink);
        self.end(id, sink);
        is_committed
    }

    /// Timestamps of this shard are above this one from now on. `false`: it is further in the
    /// future than clocks may be apart, or than this member may write.
    pub fn raise(&mut self, now: Now, shard: u8, timestamp_us: i64) -> bool {
        let Some(shard) = self.shards.get_mut(usize::from(shard)) else { return false };
        // Clients choose timestamps of rows. The next lease goes by those of this shard, so the
        // lease's limit alone would follow them.
        let is_soon = timestamp_us <= now.wall_us.saturating_add(APART_US)
            && timestamp_us < self.lease.ts_limit_us;
        // What a former owner was allowed to write is below its floor, which this member may not
        // have reached yet.
        let is_near = timestamp_us <= shard.last_timestamp_us || is_soon;
        if is_near {
            shard.last_timestamp_us = shard.last_timestamp_us.max(timestamp_us);
        }
        is_near
    }

    /// A shard that is about to be another's keeps what it has begun.
    fn may_finish(&self, shard: u8) -> bool {
        self.shards.get(usize::from(shard)).is_some_and(|shard| shard.is_owned)
    }

    /// What has become of an attempt to write a record.
    pub fn appended(
        &mut self,
        now: Now,
        id: TransactionId,
        written: Written,
        sink: &mut impl Sink,
    ) {
        let is_valid = self.is_valid(now);
        if self.find(id).is_some_and(|transaction| transaction.state == State::Applying) {
            return self.carried(now, id, written, sink);
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
                    return self.commit(id, sink);
                }
                self.all[id.index as usize].state = State::Undecided;
                self.answer(id, Outcome::InDoubt, sink);
            }
            Written::NotSent if !transaction.may_be_there => {
                if let Some(log) = self.log_of(shard, place) {
                    log.give_back(place.position);
                }
                self.answer(id, Outcome::NotExecuted(NotExecuted::Store), sink);
                self.end(id, sink);
            }
            Written::NotSent | Written::Unknown => {
                transaction.may_be_there = true;
                #[cfg(any(test, feature = "weakened"))]
                if self.without == Some(Without::RepeatedRecord) {
                    self.finish_record(shard, place);
                    self.answer(id, Outcome::NotExecuted(NotExecuted::Store), sink);
                    return self.end(id, sink);
                }
                self.again(now, id);
            }
        }
    }

    /// All that the record says is done. Of a log that is not this core's any more nobody needs to
    /// know: it has been recovered.
    pub(crate) fn finish_record(&mut self, shard: u8, place: Place) {
        if let Some(log) = self.log_of(shard, place) {
            log.finish(place.position);
        }
    }

    /// The log that this place is in, while this core writes it.
    pub(crate) fn log_of(&mut self, shard: u8, place: Place) -> Option<&mut Log> {
        let shard = &mut self.shards[usize::from(shard)];
        (shard.is_open && shard.generation == place.generation).then_some(&mut shard.log)
    }

    /// Looks at it again later, and later each time.
    pub(crate) fn again(&mut self, now: Now, id: TransactionId) {
        let transaction = &mut self.all[id.index as usize];
        let pause_ms = (AGAIN_MS << transaction.attempts.min(8)).min(AGAIN_MAX_MS);
        transaction.attempts += 1;
        self.due.push(Reverse((now.boot_ns / 1_000_000 + pause_ms, id.index, id.generation)));
    }

    /// From here on it is done, whatever fails.
    pub(crate) fn commit(&mut self, id: TransactionId, sink: &mut impl Sink) {
        let transaction = &mut self.all[id.index as usize];
        transaction.state = State::Applying;
        transaction.attempts = 0;
        let timestamp_us = transaction.timestamp_us;
        for write in 0..transaction.writes.len() {
            sink.apply(id, write as u16, timestamp_us);
        }
        self.tell_early(id, sink);
        #[cfg(any(test, feature = "weakened"))]
        if self.without == Some(Without::LocksUntilApplied) {
            self.answer(id, Outcome::Committed { timestamp_us }, sink);
            self.end(id, sink);
        }
    }

    /// Tells whoever asked, if that may be before the writes are there. Its partitions stay locked
    /// until they are.
    fn tell_early(&mut self, id: TransactionId, sink: &mut impl Sink) {
        let transaction = &mut self.all[id.index as usize];
        let writes = transaction.writes.len();
        let has_room = self.told_early + writes <= self.limits.told_early;
        if transaction.tells_early && has_room && transaction.ticket.is_some() {
            transaction.told_early = writes;
            let timestamp_us = transaction.timestamp_us;
            self.told_early += writes;
            self.counters.told_early += 1;
            self.answer(id, Outcome::Committed { timestamp_us }, sink);
        }
    }

    /// What has become of an attempt to make a write. `refused`: nodes have refused it, and will
    /// each time.
    pub fn applied(
        &mut self,
        now: Now,
        id: TransactionId,
        write: u16,
        written: Result<Written, Refused>,
        sink: &mut impl Sink,
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
                return self.again(now, id);
            }
            Err(Refused) => {
                *state = Apply::Done;
                transaction.is_refused = true;
                self.counters.refused += 1;
            }
        }
        self.end_if_made(id, sink);
    }

    /// Ends a transaction whose writes are all made.
    pub(crate) fn end_if_made(&mut self, id: TransactionId, sink: &mut impl Sink) {
        let transaction = &self.all[id.index as usize];
        let is_made = transaction.writes.iter().all(|state| *state == Apply::Done);
        // A place that is taken and at which nothing is could be taken for the end of the log.
        if is_made && transaction.next_place.is_none() {
            let (shard, place, timestamp_us) =
                (transaction.shard, transaction.place, transaction.timestamp_us);
            // Of one whose client still waits it is not said that all is there.
            let is_refused = transaction.is_refused;
            let outcome =
                if is_refused { Outcome::InDoubt } else { Outcome::Committed { timestamp_us } };
            self.finish_record(shard, place);
            self.answer(id, outcome, sink);
            self.end(id, sink);
        }
    }
}

/// The timestamp of the last of so many writes, microseconds: each has one of its own, so that the
/// later of two on a row counts.
pub(crate) fn last_of(timestamp_us: i64, writes: u16) -> i64 {
    timestamp_us.saturating_add(i64::from(writes.max(1)) - 1)
}

/// Nodes have refused a write for a reason that does not pass: its table is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;
