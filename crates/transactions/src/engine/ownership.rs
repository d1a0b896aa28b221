//! What the fleet gives and takes: the lease, and shards.

use shunt_locks::{Lease, Now};

use crate::engine::log::Log;
use crate::engine::opening::{Claim, Opened};
use crate::engine::transactions::{State, Transactions};
use crate::engine::types::{NotExecuted, Outcome, Sink, TransactionId};

impl Transactions {
    /// A lease, in the place of the one before. What was undecided for want of one is committed:
    /// this member lives, so its shards have been nobody else's in between. (With
    /// [`Transactions::confirm`] it is recorded again, and decided by what is told of that.) The
    /// lease of another membership of this process comes only after [`Transactions::lose`] for all
    /// shards of the former.
    pub fn set_lease(&mut self, now: Now, lease: Lease, sink: &mut impl Sink) {
        self.lease = lease;
        if !self.is_valid(now) {
            return;
        }
        for id in self.ids_where(|state, _| state == State::Undecided) {
            match self.confirms {
                false => self.commit(id, sink),
                true => self.record_again(id, sink),
            }
        }
    }

    /// Writes a record once more that is there: whoever hears so finds out if it counts.
    fn record_again(&mut self, id: TransactionId, sink: &mut impl Sink) {
        let transaction = &mut self.all[id.index as usize];
        transaction.state = State::Recording;
        (transaction.is_sent, transaction.may_be_there) = (true, true);
        let (shard, place, timestamp_us) =
            (transaction.shard, transaction.place, transaction.timestamp_us);
        self.counters.repeated += 1;
        sink.append(id, shard, place, timestamp_us);
    }

    /// True if there is a valid lease.
    #[must_use]
    pub fn has_lease(&self, now: Now) -> bool {
        self.is_valid(now)
    }

    /// A shard becomes this core's. Its transactions wait until [`Transactions::open_shard`] is
    /// called with what an [`crate::Opening`] with this claim has come to. All timestamps of its
    /// former owners are below `ts_floor_us`. It is not this core's already: one that comes back is
    /// lost first.
    pub fn gain(&mut self, shard: u8, ts_floor_us: i64, claim: Claim) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            debug_assert!(!shard.is_owned, "a shard is lost before it is gained again");
            (shard.is_owned, shard.is_closing, shard.is_open) = (true, false, false);
            shard.claim = claim;
            shard.last_timestamp_us = shard.last_timestamp_us.max(ts_floor_us);
        }
    }

    /// What former owners of a shard left undone is done: those who wait for it are let in, in the
    /// order in which they came, and records go to the generation that was opened. `false`: the
    /// shard is not this core's, or has been lost and gained again since.
    pub fn open_shard(&mut self, opened: Opened, sink: &mut impl Sink) -> bool {
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
            self.let_in(id, sink);
        }
        true
    }

    /// True if the shard is this core's, stays so, and the lease is valid: what a quorum has told
    /// so far is true of its log, and nobody else has been given it since. An [`crate::Opening`] is
    /// told this with each answer; `now` is read after the answer came.
    #[must_use]
    pub fn holds(&self, now: Now, shard: u8) -> bool {
        self.refusal(now, shard).is_none()
    }

    /// By which claim a shard is this core's, if it is: each time that it is gained it has another.
    #[must_use]
    pub fn claim(&self, shard: u8) -> Option<Claim> {
        self.shards.get(usize::from(shard)).filter(|shard| shard.is_owned).map(|shard| shard.claim)
    }

    /// A shard is about to be another's: it takes on nothing new, its opening stands still, and it
    /// is not given away before [`Transactions::is_idle`]. Those who wait are told to go elsewhere.
    pub fn close(&mut self, shard: u8, sink: &mut impl Sink) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            shard.is_closing = true;
        }
        self.turn_away(shard, |state| matches!(state, State::Queued | State::Waiting), sink);
    }

    /// A shard that was closed stays this core's.
    pub fn reopen(&mut self, shard: u8) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            shard.is_closing = false;
        }
    }

    /// True if nothing of this shard is under way but writes of what is committed: those the next
    /// owner makes too, before it serves, and one that cannot be made keeps nobody from handing the
    /// shard over. It looks at all transactions.
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

    /// A shard is another's, or is about to be gained anew by another membership; its
    /// [`crate::Opening`], if there is one, is dropped. What is not committed is left to the next
    /// owner: it has the records that a quorum has. What is committed is made to the end: the next
    /// owner does the same, with the same timestamps.
    pub fn lose(&mut self, shard: u8, sink: &mut impl Sink) {
        if let Some(shard) = self.shards.get_mut(usize::from(shard)) {
            (shard.is_owned, shard.is_open) = (false, false);
            shard.log = Log::default();
        }
        self.turn_away(
            shard,
            |state| matches!(state, State::Queued | State::Waiting | State::Deciding),
            sink,
        );
        for id in self.ids_where(|state, of| of == shard && state == State::Applying) {
            self.all[id.index as usize].next_place = None;
            self.end_if_made(id, sink);
        }
        for id in self.ids_where(|state, of| {
            of == shard && matches!(state, State::Recording | State::Undecided | State::Alone)
        }) {
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

    pub(crate) fn ids_where(&self, is: impl Fn(State, u8) -> bool) -> Vec<TransactionId> {
        let found = self.all.iter().zip(0u32..).filter(|(transaction, _)| {
            transaction.state != State::Free && is(transaction.state, transaction.shard)
        });
        found.map(|(_, index)| self.id_of(index)).collect()
    }
}
