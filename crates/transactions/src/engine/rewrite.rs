//! Records that hold up the log are rewritten further on.
//!
//! The log never runs so far ahead of its first unfinished record that one of its partitions could
//! stay empty. A transaction whose writes cannot be made for long, because its nodes are down,
//! would therefore stop all commits of its shard once enough others followed. Its record is written
//! once more, further on; when a quorum has it there, the former place is finished. A recovery
//! finds the record at one place or at both, with the same content.
//!
//! This must never: finish a place before a quorum has the record at the next; leave a place empty.

use shunt_locks::{Now, Written};

use crate::engine::log::{BUCKET_RECORDS, Place};
use crate::engine::transactions::{State, Transactions};
use crate::engine::types::{Effects, TransactionId};
#[cfg(test)]
use crate::engine::weakened::Without;

impl Transactions {
    /// Rewrites the records of a shard that lie far behind.
    pub(crate) fn carry_forward(&mut self, shard: u8, effects: &mut impl Effects) {
        let of = &self.shards[usize::from(shard)];
        let (generation, end) = (of.generation, of.log.end());
        let is_behind = |place: Place| {
            place.generation == generation && end - place.position.0 >= BUCKET_RECORDS / 2
        };
        for id in self.ids_where(|state, of| of == shard && state == State::Applying) {
            let transaction = &self.all[id.index as usize];
            if transaction.next_place.is_some() || !is_behind(transaction.place) {
                continue;
            }
            let of = &mut self.shards[usize::from(shard)];
            if !of.is_open || !of.log.has_room(usize::MAX) {
                return;
            }
            let next = Place { generation, position: of.log.next_position() };
            let transaction = &mut self.all[id.index as usize];
            (transaction.next_place, transaction.is_sent, transaction.may_be_there) =
                (Some(next), true, false);
            let timestamp_us = transaction.timestamp_us;
            self.counters.carried_forward += 1;
            #[cfg(test)]
            if self.without == Some(Without::AcknowledgedForward) {
                let former = self.all[id.index as usize].place;
                self.finish_record(shard, former);
            }
            effects.append(id, shard, next, timestamp_us);
        }
    }

    /// Takes in the outcome of rewriting a committed transaction's record.
    pub(crate) fn forward_answered(
        &mut self,
        now: Now,
        id: TransactionId,
        written: Written,
        effects: &mut impl Effects,
    ) {
        let transaction = &mut self.all[id.index as usize];
        let (shard, former) = (transaction.shard, transaction.place);
        // The outcome does not matter for a log that has another owner by now.
        let Some(next) = transaction.next_place else { return };
        transaction.is_sent = false;
        match written {
            Written::Acknowledged => {
                (transaction.place, transaction.next_place) = (next, None);
                self.finish_record(shard, former);
                self.end_if_made(id, effects);
            }
            Written::NotSent if !transaction.may_be_there => {
                transaction.next_place = None;
                if let Some(log) = self.log_of(shard, next) {
                    log.give_back(next.position);
                }
                self.end_if_made(id, effects);
            }
            Written::NotSent | Written::Unknown => {
                transaction.may_be_there = true;
                self.retry_later(now, id);
            }
        }
    }
}
