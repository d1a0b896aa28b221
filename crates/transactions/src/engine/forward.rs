//! Records that hold up the log are carried forward in it.
//!
//! No place of a log is taken so far beyond the first that is not done with that a partition of it
//! could be left empty. So a transaction whose writes cannot be made for long, for the nodes that
//! have its rows are down, would keep all others of its shard from being committed once there were
//! so many after it, whatever rows and keyspaces they are of. Its record is written once more, at a
//! place further on; when a quorum has it there, the former place is done with. Whoever recovers
//! the log finds it at one of the two, or at both: it says the same.
//!
//! This must never: be done with a place before a quorum has the record at the next; leave a place
//! at which nothing is.

use shunt_locks::{Now, Written};

use crate::engine::log::{BUCKET_RECORDS, Place};
use crate::engine::transactions::{State, Transactions};
use crate::engine::types::{Sink, TransactionId};
#[cfg(test)]
use crate::engine::weakened::Without;

impl Transactions {
    /// Carries those records of a shard forward that lie far behind.
    pub(crate) fn carry_forward(&mut self, shard: u8, sink: &mut impl Sink) {
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
            let next = Place { generation, position: of.log.take() };
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
            sink.append(id, shard, next, timestamp_us);
        }
    }

    /// What has become of writing the record of a committed transaction further on.
    pub(crate) fn carried(
        &mut self,
        now: Now,
        id: TransactionId,
        written: Written,
        sink: &mut impl Sink,
    ) {
        let transaction = &mut self.all[id.index as usize];
        let (shard, former) = (transaction.shard, transaction.place);
        // Of a log that is another's by now nothing needs to be known.
        let Some(next) = transaction.next_place else { return };
        transaction.is_sent = false;
        match written {
            Written::Acknowledged => {
                (transaction.place, transaction.next_place) = (next, None);
                self.finish_record(shard, former);
                self.end_if_made(id, sink);
            }
            Written::NotSent if !transaction.may_be_there => {
                transaction.next_place = None;
                if let Some(log) = self.log_of(shard, next) {
                    log.give_back(next.position);
                }
                self.end_if_made(id, sink);
            }
            Written::NotSent | Written::Unknown => {
                transaction.may_be_there = true;
                self.again(now, id);
            }
        }
    }
}
