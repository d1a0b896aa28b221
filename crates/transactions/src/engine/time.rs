//! Deadlines, and what is repeated because its outcome is unknown.

use shunt_locks::Now;

use crate::engine::transactions::{Apply, State, Transactions};
use crate::engine::types::{NotExecuted, Outcome, Sink, TransactionId};

impl Transactions {
    /// When [`Transactions::tick`] is to be called next, by the boot-time clock, milliseconds.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.peek().map(|due| due.0.0)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now, sink: &mut impl Sink) {
        let now_ms = now.boot_ns / 1_000_000;
        while let Some(due) = self.due.peek()
            && due.0.0 <= now_ms
        {
            let (_, index, generation) = due.0;
            self.due.pop();
            self.look_at(now, TransactionId { index, generation }, sink);
        }
    }

    /// What failed is tried again now, and not when its pause is over: there may be a reason why it
    /// does not fail any more.
    pub fn hurry(&mut self, now: Now, sink: &mut impl Sink) {
        for id in self.ids_where(|state, _| matches!(state, State::Recording | State::Applying)) {
            self.all[id.index as usize].attempts = 0;
            self.look_at(now, id, sink);
        }
    }

    fn look_at(&mut self, now: Now, id: TransactionId, sink: &mut impl Sink) {
        let Some(transaction) = self.find(id) else { return };
        let is_late = now.boot_ns / 1_000_000 >= transaction.deadline_ms;
        let timestamp_us = transaction.timestamp_us;
        match transaction.state {
            State::Free => {}
            State::Queued | State::Waiting | State::Deciding if !is_late => {}
            State::Queued => {
                self.answer(id, Outcome::NotExecuted(NotExecuted::NotOpen), sink);
                self.end(id, sink);
            }
            State::Waiting => {
                self.answer(id, Outcome::NotExecuted(NotExecuted::Locked), sink);
                self.end(id, sink);
            }
            State::Deciding => {
                self.answer(id, Outcome::NotExecuted(NotExecuted::Late), sink);
                self.end(id, sink);
            }
            State::Recording => {
                let (is_sent, shard, place) =
                    (transaction.is_sent, transaction.shard, transaction.place);
                if is_late {
                    self.answer(id, Outcome::InDoubt, sink);
                }
                if !is_sent {
                    self.counters.repeated += 1;
                    self.all[id.index as usize].is_sent = true;
                    sink.append(id, shard, place, timestamp_us);
                }
            }
            State::Undecided => {}
            // Its write has an outcome of its own, which comes.
            State::Alone => {
                if is_late {
                    self.answer(id, Outcome::InDoubt, sink);
                }
            }
            State::Applying => {
                let mut repeated = 0;
                if let Some(next) = transaction.next_place.filter(|_| !transaction.is_sent) {
                    transaction.is_sent = true;
                    repeated += 1;
                    sink.append(id, transaction.shard, next, timestamp_us);
                }
                for (write, state) in transaction.writes.iter_mut().enumerate() {
                    if *state == Apply::Again {
                        *state = Apply::Sent;
                        repeated += 1;
                        sink.apply(id, write as u16, timestamp_us);
                    }
                }
                self.counters.repeated += repeated;
                // Its writes are not all made, but they will be, and until then nobody gets its
                // partitions.
                if is_late {
                    self.answer(id, Outcome::Committed { timestamp_us }, sink);
                }
            }
        }
    }
}
