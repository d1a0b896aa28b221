//! Clients, what their transactions read and write, and what a member wants done for them.

use super::*;

/// Effects of an engine.
#[derive(Default)]
pub(super) struct Said {
    pub(super) locked: Vec<(TransactionId, Ticket)>,
    pub(super) replies: Vec<(Ticket, Outcome)>,
    pub(super) appends: Vec<(TransactionId, Place, i64)>,
    pub(super) applies: Vec<(TransactionId, u16, i64)>,
    pub(super) forgotten: Vec<TransactionId>,
    pub(super) lows: Vec<(Generation, Position)>,
    pub(super) deletes: Vec<(Generation, u64)>,
}

impl Effects for Said {
    fn locked(&mut self, transaction: TransactionId, ticket: Ticket) {
        self.locked.push((transaction, ticket));
    }
    fn reply(&mut self, ticket: Ticket, outcome: Outcome) {
        self.replies.push((ticket, outcome));
    }
    fn append(&mut self, transaction: TransactionId, _shard: u8, place: Place, timestamp_us: i64) {
        self.appends.push((transaction, place, timestamp_us));
    }
    fn apply(&mut self, transaction: TransactionId, write: u16, timestamp_us: i64) {
        self.applies.push((transaction, write, timestamp_us));
    }
    fn write_unlogged(&mut self, transaction: TransactionId, _: i64) {
        panic!("nobody here decides {transaction:?} to be alone");
    }
    fn forget(&mut self, transaction: TransactionId) {
        self.forgotten.push(transaction);
    }
    fn write_low(&mut self, _shard: u8, generation: Generation, low: Position) {
        self.lows.push((generation, low));
    }
    fn delete_bucket(&mut self, _shard: u8, generation: Generation, bucket: u64) {
        self.deletes.push((generation, bucket));
    }
}

impl World {
    pub(super) fn client(&mut self) {
        if self.is_quiet {
            return;
        }
        let first = self.random.below(KEYS as u64) as usize;
        let second = (first + 1 + self.random.below(KEYS as u64 - 1) as usize) % KEYS;
        let is_transfer = !self.random.one_in(4);
        let keys = if is_transfer { vec![first, second] } else { (0..KEYS).collect() };
        self.operations.push(Operation {
            invoked_ms: self.now_ms,
            returned_ms: None,
            outcome: None,
            keys,
            is_transfer,
            reads: Vec::new(),
            writes: Vec::new(),
        });
        let operation = self.operations.len() - 1;
        let owner = self.hosts.iter().position(|host| Some(host.member) == self.view.owner);
        let host = owner
            .filter(|_| !self.random.one_in(8))
            .unwrap_or(self.random.below(HOSTS as u64) as usize);
        self.later(host, 1, At::Ask(operation));
        // Now and then nobody asks for a while.
        let after_ms =
            if self.random.one_in(50) { self.random.below(2_000) } else { self.random.below(60) };
        self.at(after_ms, Event::Client);
    }

    pub(super) fn ask(&mut self, host: usize, now: Now, operation: usize, said: &mut Said) {
        let asked = &self.operations[operation];
        let mode = if asked.is_transfer { Mode::Exclusive } else { Mode::Shared };
        let partitions: Vec<_> =
            asked.keys.iter().map(|key| (Partition(*key as u128), mode)).collect();
        let deadline_ms = self.now_ms + 1_500;
        let asked = Begin {
            ticket: Ticket(operation as u64),
            shard: 0,
            partitions: &partitions,
            deadline_ms,
        };
        self.hosts[host].engine.begin(now, &asked, said);
    }

    /// A transaction has read: money is transferred, if there is any.
    pub(super) fn decide(
        &mut self,
        host: usize,
        now: Now,
        id: TransactionId,
        found: Writes,
        said: &mut Said,
    ) {
        let Some((operation, _)) = self.hosts[host].bodies.get(&id).cloned() else { return };
        self.operations[operation].reads = found.clone();
        let amount = 1 + self.random.below(5) as i64;
        let mut writes = Vec::new();
        if self.operations[operation].is_transfer && found[0].1.balance >= amount {
            for ((key, value), change) in found.into_iter().zip([-amount, amount]) {
                writes.push((
                    key,
                    Value { timestamp_us: 0, operation, balance: value.balance + change },
                ));
            }
        }
        let decision = match (writes.is_empty(), self.random.one_in(2)) {
            (true, _) => Decision::Nothing,
            (false, true) => Decision::Write(2),
            (false, false) => Decision::WriteAndTell(2),
        };
        self.operations[operation].writes = writes.clone();
        self.hosts[host].bodies.insert(id, (operation, writes));
        self.hosts[host].engine.decided(now, id, decision, said);
    }

    pub(super) fn carry_out(&mut self, host: usize, said: Said) {
        let process = self.hosts[host].process;
        for (id, ticket) in said.locked {
            let operation = ticket.0 as usize;
            self.hosts[host].bodies.insert(id, (operation, Vec::new()));
            let (keys, left) = (self.operations[operation].keys.clone(), self.quorum());
            let after_ms = self.delay();
            self.at(after_ms, Event::ReadAt { host, process, id, keys, left, found: Vec::new() });
        }
        for (id, place, timestamp_us) in said.appends {
            let writes = self.stamped(host, id, timestamp_us);
            let former = self.hosts[host].places.insert(id, place);
            self.seen.carried_forward += usize::from(former.is_some_and(|former| former != place));
            let written_us = self.now(host).wall_us;
            let (after_ms, written) = self.write(Mutation::Record(place, written_us, writes));
            self.later(host, after_ms, At::Appended(id, written));
        }
        for (id, write, timestamp_us) in said.applies {
            let writes = self.stamped(host, id, timestamp_us);
            let (key, value) = writes[usize::from(write)];
            if let Some(place) = self.hosts[host].places.get(&id) {
                self.begin_writes(*place, writes);
            }
            let (after_ms, written) = self.write(Mutation::Register(key, value));
            self.later(host, after_ms, At::Applied(id, write, written));
        }
        for (ticket, outcome) in said.replies {
            let operation = &mut self.operations[ticket.0 as usize];
            if operation.outcome.replace(outcome).is_some() {
                self.fault = Some(format!("two answers to {}", ticket.0));
            }
            operation.returned_ms = Some(self.now_ms);
        }
        for id in said.forgotten {
            self.hosts[host].bodies.remove(&id);
            self.hosts[host].places.remove(&id);
        }
        for (generation, low) in said.lows {
            let is_clocked = self.weak.around == Some(Around::TimestampOfLow);
            let timestamp = if is_clocked { self.now(host).wall_us } else { low.0 as i64 };
            let (after_ms, written) = self.write(Mutation::Low(generation, timestamp, low));
            self.later(host, after_ms, At::LowWritten(generation, low, written));
        }
        for (generation, bucket) in said.deletes {
            self.seen.deleted += 1;
            let deleted_us = self.now(host).wall_us;
            self.write(Mutation::DeleteBucket(generation, bucket, deleted_us));
        }
    }

    pub(super) fn stamped(&self, host: usize, id: TransactionId, timestamp_us: i64) -> Writes {
        let Some((_, writes)) = self.hosts[host].bodies.get(&id) else { return Vec::new() };
        writes.iter().map(|(key, value)| (*key, Value { timestamp_us, ..*value })).collect()
    }
}
