//! A transaction is accepted, and its partitions are locked in the order of their hashes, so that
//! no two transactions wait for each other. While its shard is not open, it waits; transactions
//! that wait are let in in the order in which they came.

use std::cmp::Reverse;

use shunt_locks::Now;

use crate::engine::transactions::{State, Transactions};
use crate::engine::types::{Begin, Effects, Mode, NotExecuted, Outcome, Partition, TransactionId};

impl Transactions {
    /// Accepts a transaction. Its ticket is answered once, now or later. The returned id is for
    /// [`Transactions::give_up`], should the client leave.
    pub fn begin(
        &mut self,
        now: Now,
        asked: &Begin<'_>,
        effects: &mut impl Effects,
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
            effects.reply(asked.ticket, Outcome::NotExecuted(why));
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
        (transaction.attempts, transaction.next_place) = (0, None);
        (transaction.is_doubtful, transaction.is_refused) = (false, false);
        (transaction.tells_early, transaction.told_early) = (false, 0);
        transaction.partitions.extend_from_slice(asked.partitions);
        transaction.partitions.sort_unstable();
        merge(&mut transaction.partitions);
        self.due.push(Reverse((asked.deadline_ms, id.index, id.generation)));
        if is_open {
            self.let_in(id, effects);
        }
        Some(id)
    }

    /// Starts locking, once the shard is open.
    pub(crate) fn let_in(&mut self, id: TransactionId, effects: &mut impl Effects) {
        self.all[id.index as usize].state = State::Waiting;
        self.lock_more(id, effects);
    }

    /// Ends an undecided transaction whose client is gone. Any other goes on without its client.
    pub fn give_up(&mut self, id: TransactionId, effects: &mut impl Effects) {
        let Some(transaction) = self.find(id) else { return };
        transaction.ticket = None;
        if matches!(transaction.state, State::Queued | State::Waiting | State::Deciding) {
            self.end(id, effects);
        }
    }

    /// Continues with the next partition, once one that the transaction waited for is locked.
    pub(crate) fn go_on(&mut self, id: TransactionId, effects: &mut impl Effects) {
        if let Some(transaction) = self.find(id) {
            transaction.locked += 1;
            self.lock_more(id, effects);
        }
    }

    /// Locks partitions up to the first that is not free.
    fn lock_more(&mut self, id: TransactionId, effects: &mut impl Effects) {
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
            effects.locked(id, ticket);
        }
    }
}

/// Merges partitions that occur twice, in favour of the exclusive mode. The partitions are in
/// order.
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
