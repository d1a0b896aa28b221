//! Deadlines, and repetition where an outcome is unknown.

use shunt_locks::Now;

use crate::engine::transactions::{Apply, State, Transactions};
use crate::engine::types::{Effects, NotExecuted, Outcome, TransactionId};

impl Transactions {
    /// Time of the next [`Transactions::tick`], by the boot-time clock, milliseconds.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.peek().map(|due| due.0.0)
    }

    /// Ends what is late, and repeats what is due.
    pub fn tick(&mut self, now: Now, effects: &mut impl Effects) {
        let now_ms = now.boot_ns / 1_000_000;
        while let Some(due) = self.due.peek()
            && due.0.0 <= now_ms
        {
            let (_, index, generation) = due.0;
            self.due.pop();
            self.look_at(now, TransactionId { index, generation }, effects);
        }
    }

    /// Repeats everything that waits for a pause: there is a reason to expect success now.
    pub fn hurry(&mut self, now: Now, effects: &mut impl Effects) {
        for id in self.ids_where(|state, _| matches!(state, State::Recording | State::Applying)) {
            self.all[id.index as usize].attempts = 0;
            self.look_at(now, id, effects);
        }
    }

    fn look_at(&mut self, now: Now, id: TransactionId, effects: &mut impl Effects) {
        let Some(transaction) = self.find(id) else { return };
        let is_late = now.boot_ns / 1_000_000 >= transaction.deadline_ms;
        let timestamp_us = transaction.timestamp_us;
        match transaction.state {
            State::Free => {}
            State::Queued | State::Waiting | State::Deciding if !is_late => {}
            State::Queued => {
                self.answer(id, Outcome::NotExecuted(NotExecuted::NotOpen), effects);
                self.end(id, effects);
            }
            State::Waiting => {
                self.answer(id, Outcome::NotExecuted(NotExecuted::Locked), effects);
                self.end(id, effects);
            }
            State::Deciding => {
                self.answer(id, Outcome::NotExecuted(NotExecuted::Late), effects);
                self.end(id, effects);
            }
            State::Recording => {
                let (is_sent, shard, place) =
                    (transaction.is_sent, transaction.shard, transaction.place);
                if is_late {
                    self.answer(id, Outcome::InDoubt, effects);
                }
                if !is_sent {
                    self.counters.repeated += 1;
                    self.all[id.index as usize].is_sent = true;
                    effects.append(id, shard, place, timestamp_us);
                }
            }
            State::Undecided => {}
            // The outcome of the write is still to come.
            State::Unlogged => {
                if is_late {
                    self.answer(id, Outcome::InDoubt, effects);
                }
            }
            State::Applying => {
                let mut repeated = 0;
                if let Some(next) = transaction.next_place.filter(|_| !transaction.is_sent) {
                    transaction.is_sent = true;
                    repeated += 1;
                    effects.append(id, transaction.shard, next, timestamp_us);
                }
                for (write, state) in transaction.writes.iter_mut().enumerate() {
                    if *state == Apply::Again {
                        *state = Apply::Sent;
                        repeated += 1;
                        effects.apply(id, write as u16, timestamp_us);
                    }
                }
                let is_doubtful = transaction.is_doubtful;
                self.counters.repeated += repeated;
                // The remaining writes will be made, and the partitions stay locked until then;
                // unless nodes go on refusing one.
                if is_late {
                    let outcome = if is_doubtful {
                        Outcome::InDoubt
                    } else {
                        Outcome::Committed { timestamp_us }
                    };
                    self.answer(id, outcome, effects);
                }
            }
        }
    }
}
