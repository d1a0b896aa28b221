//! A transaction is taken on, and its partitions are locked, in the order of their hashes: so no
//! two can wait for each other. While its shard is not open it waits for that, and those who do are
//! let in in the order in which they came.

use std::cmp::Reverse;

use shunt_locks::Now;

use crate::engine::transactions::{State, Transactions};
use crate::engine::types::{Asked, Mode, NotExecuted, Outcome, Partition, Sink, TransactionId};

impl Transactions {
    /// Takes a transaction on. Its ticket is answered once, now or later. What is returned is for
    /// [`Transactions::give_up`], should its client leave.
    pub fn begin(
        &mut self,
        now: Now,
        asked: &Asked<'_>,
        sink: &mut impl Sink,
    ) -> Option<TransactionId> {
        let count = asked.partitions.len();
        let refusal = self.refusal(now, asked.shard).or_else(|| {
            if count == 0 || count > self.limits.partitions {
                return Some(NotExecuted::Partitions);
            }
            let of_shard = self.shards[usize::from(asked.shard)].open;
            let is_full = self.open() >= self.limits.transactions
                || of_shard >= self.limits.transactions_of_shard;
            is_full.then_some(NotExecuted::Many)
        });
        if let Some(why) = refusal {
            self.counters.not_executed += 1;
            sink.reply(asked.ticket, Outcome::NotExecuted(why));
            return None;
        }
        let id = self.insert();
        let shard = &mut self.shards[usize::from(asked.shard)];
        shard.open += 1;
        let is_open = shard.is_open;
        let transaction = &mut self.all[id.index as usize];
        transaction.state = State::Queued;
        transaction.arrival = self.arrivals;
        self.arrivals += 1;
        transaction.ticket = Some(asked.ticket);
        transaction.shard = asked.shard;
        transaction.deadline_ms = asked.deadline_ms;
        transaction.locked = 0;
        (transaction.has_record, transaction.is_sent, transaction.may_be_there) =
            (false, false, false);
        (transaction.attempts, transaction.next_place, transaction.is_refused) = (0, None, false);
        (transaction.tells_early, transaction.told_early) = (false, 0);
        transaction.partitions.extend_from_slice(asked.partitions);
        transaction.partitions.sort_unstable();
        merge(&mut transaction.partitions);
        self.due.push(Reverse((asked.deadline_ms, id.index, id.generation)));
        if is_open {
            self.let_in(id, sink);
        }
        Some(id)
    }

    /// Its shard is open.
    pub(crate) fn let_in(&mut self, id: TransactionId, sink: &mut impl Sink) {
        self.all[id.index as usize].state = State::Waiting;
        self.lock_more(id, sink);
    }

    /// The client is gone: a transaction that has decided nothing yet ends, any other goes on
    /// without it.
    pub fn give_up(&mut self, id: TransactionId, sink: &mut impl Sink) {
        let Some(transaction) = self.find(id) else { return };
        transaction.ticket = None;
        if matches!(transaction.state, State::Queued | State::Waiting | State::Deciding) {
            self.end(id, sink);
        }
    }

    /// It was let in to a partition that it waited for.
    pub(crate) fn go_on(&mut self, id: TransactionId, sink: &mut impl Sink) {
        if let Some(transaction) = self.find(id) {
            transaction.locked += 1;
            self.lock_more(id, sink);
        }
    }

    /// Locks what is not locked yet, up to the first that is not free.
    fn lock_more(&mut self, id: TransactionId, sink: &mut impl Sink) {
        let transaction = &mut self.all[id.index as usize];
        #[cfg(any(test, feature = "weakened"))]
        match self.without {
            Some(crate::engine::weakened::Without::Locks) => transaction.partitions.clear(),
            Some(crate::engine::weakened::Without::ReadLocks) => {
                transaction.partitions.retain(|(_, mode)| *mode == Mode::Exclusive);
            }
            _ => {}
        }
        while let Some((partition, mode)) = transaction.partitions.get(transaction.locked) {
            if !self.partitions.lock(*partition, *mode, id) {
                return;
            }
            transaction.locked += 1;
        }
        transaction.state = State::Deciding;
        if let Some(ticket) = transaction.ticket {
            sink.locked(id, ticket);
        }
    }
}

/// Of what is named twice, the exclusive one; the partitions are in order.
fn merge(partitions: &mut Vec<(Partition, Mode)>) {
    partitions.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = kept.1.max(next.1);
        }
        is_same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_read_and_written_is_locked_once_for_writing() {
        let (a, b) = (Partition(1), Partition(2));
        let mut partitions = vec![
            (b, Mode::Shared),
            (a, Mode::Exclusive),
            (a, Mode::Shared),
            (b, Mode::Shared),
            (a, Mode::Exclusive),
        ];
        partitions.sort_unstable();
        merge(&mut partitions);
        assert_eq!(partitions, [(a, Mode::Exclusive), (b, Mode::Shared)]);
    }
}
