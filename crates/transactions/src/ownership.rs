//! What the fleet gives and takes: the lease, and shards.

use shunt_locks::{Lease, Now};

use crate::transactions::{State, Transactions};
use crate::types::{NotExecuted, Outcome, Sink, TransactionId};

impl Transactions {
    /// A lease, in the place of the one before. What was undecided for want of one is committed: the member lives, so nobody has sealed it.
    pub fn set_lease(&mut self, now: Now, lease: Lease, sink: &mut impl Sink) {
        self.lease = lease;
        if !self.is_valid(now) {
            return;
        }
        for id in self.ids_where(|state, _| state == State::Undecided) {
            self.commit(id, sink);
        }
    }

    /// A shard becomes this core's. What its former owners have left undone has been done, and they are sealed; all their timestamps are
    /// below `ts_floor_us`.
    pub fn gain(&mut self, shard: u8, ts_floor_us: i64) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            (shard.is_owned, shard.is_closing) = (true, false);
            shard.last_timestamp_us = shard.last_timestamp_us.max(ts_floor_us);
        }
    }

    /// A shard is about to be another's: it takes on nothing new, and is not given away before [`Transactions::is_idle`]. Those who wait
    /// are told to go elsewhere.
    pub fn close(&mut self, shard: u8, sink: &mut impl Sink) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            shard.is_closing = true;
        }
        self.turn_away(shard, |state| state == State::Waiting, sink);
    }

    /// A shard that was closed stays this core's.
    pub fn reopen(&mut self, shard: u8) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            shard.is_closing = false;
        }
    }

    /// True if nothing of this shard is under way.
    #[must_use]
    pub fn is_idle(&self, shard: u8) -> bool {
        self.shards.get(usize::from(shard)).is_none_or(|shard| shard.open == 0)
    }

    /// The last timestamp of a shard, microseconds.
    #[must_use]
    pub fn last_timestamp_us(&self, shard: u8) -> i64 {
        self.shards.get(usize::from(shard)).map_or(0, |shard| shard.last_timestamp_us)
    }

    /// A shard is another's, that of a member which took this one for dead. What is not committed is left to it: it has the records that
    /// a quorum has. What is committed is made to the end: it does the same, with the same timestamps.
    pub fn lose(&mut self, shard: u8, sink: &mut impl Sink) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            shard.is_owned = false;
        }
        self.turn_away(shard, |state| matches!(state, State::Waiting | State::Deciding), sink);
        for id in self.ids_where(|state, of| of == shard && matches!(state, State::Recording | State::Undecided)) {
            self.answer(id, Outcome::InDoubt, sink);
            self.end(id, sink);
        }
    }

    fn turn_away(&mut self, shard: u8, which: impl Fn(State) -> bool, sink: &mut impl Sink) {
        for id in self.ids_where(|state, of| of == shard && which(state)) {
            // One before may have ended it, or let it in.
            if self.find(id).is_some_and(|transaction| which(transaction.state)) {
                self.answer(id, Outcome::NotExecuted(NotExecuted::Elsewhere), sink);
                self.end(id, sink);
            }
        }
    }

    fn ids_where(&self, is: impl Fn(State, u8) -> bool) -> Vec<TransactionId> {
        let found =
            self.all.iter().zip(0u32..).filter(|(transaction, _)| {
                transaction.state != State::Free && is(transaction.state, transaction.shard)
            });
        found.map(|(_, index)| self.id_of(index)).collect()
    }
}
