//! The lease of a core, and shards that it gains and loses.

use shunt_locks::{Lease, Now};

use crate::engine::log::Log;
use crate::engine::opening::{Claim, Opened};
use crate::engine::transactions::{State, Transactions};
use crate::engine::types::{Effects, NotExecuted, Outcome, TransactionId};

impl Transactions {
    /// Replaces the lease. Transactions that were undecided for want of one are committed: this
    /// member lives, so no other had its shards in between. (With [`Transactions::confirm`] their
    /// records are written again, and the confirmation of that decides.) The lease of another
    /// membership of this process comes only after [`Transactions::lose`] for all shards of the
    /// former.
    pub fn set_lease(&mut self, now: Now, lease: Lease, effects: &mut impl Effects) {
        self.lease = lease;
        if !self.is_valid(now) {
            return;
        }
        for id in self.ids_where(|state, _| state == State::Undecided) {
            match self.confirms {
                false => self.commit(id, effects),
                true => self.record_again(id, effects),
            }
        }
    }

    /// Rewrites a record whose confirmation then shows whether it counts.
    fn record_again(&mut self, id: TransactionId, effects: &mut impl Effects) {
        let transaction = &mut self.all[id.index as usize];
        transaction.state = State::Recording;
        (transaction.is_sent, transaction.may_be_there) = (true, true);
        let (shard, place, timestamp_us) =
            (transaction.shard, transaction.place, transaction.timestamp_us);
        self.counters.repeated += 1;
        effects.append(id, shard, place, timestamp_us);
    }

    /// True if there is a valid lease.
    #[must_use]
    pub fn has_lease(&self, now: Now) -> bool {
        self.is_valid(now)
    }

    /// Gains a shard. Its transactions wait until [`Transactions::open_shard`] is called with the
    /// result of an [`crate::Opening`] with this claim. All timestamps of former owners are below
    /// `ts_floor_us`. A shard that this core already has must be lost first.
    pub fn gain(&mut self, shard: u8, ts_floor_us: i64, claim: Claim) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            debug_assert!(!shard.is_owned, "a shard is lost before it is gained again");
            (shard.is_owned, shard.is_closing, shard.is_open) = (true, false, false);
            shard.claim = claim;
            shard.last_timestamp_us = shard.last_timestamp_us.max(ts_floor_us);
        }
    }

    /// Starts to serve a shard whose former owners' work is finished: waiting transactions are let
    /// in in order, and records go to the new generation. `false` if the shard is not this core's,
    /// or was lost and gained again since.
    pub fn open_shard(&mut self, opened: Opened, effects: &mut impl Effects) -> bool {
        let Some(shard) = self.shards.get_mut(usize::from(opened.shard)) else { return false };
        if !shard.is_owned || shard.is_open || shard.claim != opened.claim {
            return false;
        }
        shard.is_open = true;
        shard.generation = opened.generation;
        shard.log = Log::default();
        shard.last_timestamp_us = shard.last_timestamp_us.max(opened.last_timestamp_us);
        let mut queued = self.ids_where(|state, of| of == opened.shard && state == State::Queued);
        queued.sort_unstable_by_key(|id| self.all[id.index as usize].arrival);
        for id in queued {
            self.let_in(id, effects);
        }
        true
    }

    /// True if the shard is this core's, stays so, and the lease is valid: a quorum's answers about
    /// its log are current, and no other member was given the shard since. An [`crate::Opening`]
    /// gets this with each answer, with `now` read after the answer came.
    #[must_use]
    pub fn holds(&self, now: Now, shard: u8) -> bool {
        self.refusal(now, shard).is_none()
    }

    /// The claim by which the shard is this core's, if it is. Each gain has another.
    #[must_use]
    pub fn claim(&self, shard: u8) -> Option<Claim> {
        self.shards.get(usize::from(shard)).filter(|shard| shard.is_owned).map(|shard| shard.claim)
    }

    /// Closes a shard that is being handed over: it accepts no transactions, its opening pauses,
    /// and those that wait are turned away. It is handed over after [`Transactions::is_idle`].
    pub fn close(&mut self, shard: u8, effects: &mut impl Effects) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            shard.is_closing = true;
        }
        self.turn_away(shard, |state| matches!(state, State::Queued | State::Waiting), effects);
    }

    /// Reopens a shard that stays this core's.
    pub fn reopen(&mut self, shard: u8) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            shard.is_closing = false;
        }
    }

    /// True if the shard has nothing under way except writes of committed transactions, which the
    /// next owner makes too before it serves; one that cannot be made does not block the handover.
    /// Visits all transactions.
    #[must_use]
    pub fn is_idle(&self, shard: u8) -> bool {
        let is_open = |state, of| of == shard && state != State::Applying;
        self.shards.get(usize::from(shard)).is_none_or(|shard| shard.open == 0)
            || self.ids_where(is_open).is_empty()
    }

    /// The last timestamp of a shard, microseconds.
    #[must_use]
    pub fn last_timestamp_us(&self, shard: u8) -> i64 {
        self.shards.get(usize::from(shard)).map_or(0, |shard| shard.last_timestamp_us)
    }

    /// Loses a shard, whose [`crate::Opening`] the caller drops. Transactions without commit are
    /// left to the next owner, which has the records that a quorum has. Writes of committed ones
    /// are completed here too, with the same timestamps as the next owner's.
    pub fn lose(&mut self, shard: u8, effects: &mut impl Effects) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            (shard.is_owned, shard.is_open) = (false, false);
            shard.log = Log::default();
        }
        self.turn_away(
            shard,
            |state| matches!(state, State::Queued | State::Waiting | State::Deciding),
            effects,
        );
        for id in self.ids_where(|state, of| of == shard && state == State::Applying) {
            self.all[id.index as usize].next_place = None;
            self.end_if_made(id, effects);
        }
        for id in self.ids_where(|state, of| {
            of == shard && matches!(state, State::Recording | State::Undecided | State::Unlogged)
        }) {
            self.answer(id, Outcome::InDoubt, effects);
            self.end(id, effects);
        }
    }

    fn turn_away(&mut self, shard: u8, which: impl Fn(State) -> bool, effects: &mut impl Effects) {
        for id in self.ids_where(|state, of| of == shard && which(state)) {
            // An earlier one may have ended it, or let it in.
            if self.find(id).is_some_and(|transaction| which(transaction.state)) {
                self.answer(id, Outcome::NotExecuted(NotExecuted::Elsewhere), effects);
                self.end(id, effects);
            }
        }
    }

    pub(crate) fn ids_where(&self, is: impl Fn(State, u8) -> bool) -> Vec<TransactionId> {
        let found = self.all.iter().zip(0u32..).filter(|(transaction, _)| {
            transaction.state != State::Free && is(transaction.state, transaction.shard)
        });
        found.map(|(_, index)| self.id_of(index)).collect()
    }
}
