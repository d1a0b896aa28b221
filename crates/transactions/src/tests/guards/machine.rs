//! The states that [`Transactions`] can be in, each kept once under a number.

use std::collections::HashMap;

use shunt_locks::Now;

use crate::engine::transactions::{Apply, State};
use crate::engine::types::{Effects, Limits, Mode, Outcome, Ticket, TransactionId};
use crate::engine::weakened::Without;
use crate::{Claim, Generation, Place, Position, Transactions};

/// Effects of [`Transactions`].
#[derive(Default)]
pub(super) struct Said {
    pub(super) locked: Vec<(TransactionId, u8)>,
    pub(super) replies: Vec<(u8, Outcome)>,
    pub(super) appends: Vec<(TransactionId, Place, i64)>,
    pub(super) applies: Vec<(TransactionId, u16, i64)>,
    pub(super) forgotten: Vec<TransactionId>,
}

impl Effects for Said {
    fn locked(&mut self, id: TransactionId, ticket: Ticket) {
        self.locked.push((id, ticket.0 as u8));
    }
    fn reply(&mut self, ticket: Ticket, outcome: Outcome) {
        self.replies.push((ticket.0 as u8, outcome));
    }
    fn append(&mut self, id: TransactionId, _: u8, place: Place, timestamp_us: i64) {
        self.appends.push((id, place, timestamp_us));
    }
    fn apply(&mut self, id: TransactionId, write: u16, timestamp_us: i64) {
        self.applies.push((id, write, timestamp_us));
    }
    fn write_unlogged(&mut self, id: TransactionId, _: i64) {
        panic!("nobody here decides {id:?} to be alone");
    }
    fn forget(&mut self, id: TransactionId) {
        self.forgotten.push(id);
    }
    fn write_low(&mut self, _: u8, _: Generation, _: Position) {}
    fn delete_bucket(&mut self, _: u8, _: Generation, _: u64) {}
}

/// The transactions of one proxy, and which of them is which request once it has its partitions.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) engine: Transactions,
    pub(super) requests: Vec<(TransactionId, u8)>,
    /// Under which ownership it came to know which fence the row has.
    pub(super) known: Option<(Claim, u8)>,
}

/// A statement whose outcome has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Record(Place),
    Write(u16),
}

/// The part of a transaction that others see.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) request: u8,
    pub(super) is_reading: bool,
    pub(super) sent: Vec<Sent>,
    /// Something is to be sent again.
    pub(super) is_again: bool,
}

impl Machine {
    pub(super) fn begin(without: Option<Without>) -> Self {
        let mut engine = Transactions::new(Limits::default());
        engine.without = without;
        Self { engine, requests: Vec::new(), known: None }
    }

    pub(super) fn request(&self, id: TransactionId) -> Option<u8> {
        self.requests.iter().find(|(known, _)| *known == id).map(|(_, request)| *request)
    }

    /// Transactions that have their partitions.
    pub(super) fn facts(&self) -> Vec<Facts> {
        let of = |(id, request): &(TransactionId, u8)| {
            let transaction = &self.engine.all[id.index as usize];
            let (mut sent, mut is_again) = (Vec::new(), false);
            let mut record = |place: Place| match transaction.is_sent {
                true => sent.push(Sent::Record(place)),
                false => is_again = true,
            };
            match transaction.state {
                State::Recording => record(transaction.place),
                State::Applying => {
                    if let Some(next) = transaction.next_place {
                        record(next);
                    }
                    for (write, apply) in transaction.writes.iter().enumerate() {
                        match apply {
                            Apply::Sent => sent.push(Sent::Write(write as u16)),
                            Apply::Again => is_again = true,
                            Apply::Done => {}
                        }
                    }
                }
                _ => {}
            }
            Facts {
                request: *request,
                is_reading: transaction.state == State::Deciding,
                sent,
                is_again,
            }
        };
        self.requests.iter().map(of).collect()
    }

    /// The state that matters for what can happen from now on. Numbers of entries and their
    /// generations are left out, and when what is due: all that is is looked at together.
    fn encode(&self, out: &mut Vec<u8>) {
        let shard = &self.engine.shards[0];
        let put = |out: &mut Vec<u8>, number: i64| out.extend((number as u16).to_le_bytes());
        out.extend([shard.is_owned, shard.is_open, shard.is_closing].map(u8::from));
        out.extend([
            shard.claim.0 as u8,
            shard.generation.0 as u8,
            shard.log.low().0 as u8,
            shard.log.end() as u8,
        ]);
        out.extend(self.known.map_or([0, 0], |(claim, fence)| [claim.0 as u8, fence]));
        put(out, shard.last_timestamp_us);
        put(out, self.engine.lease.ts_limit_us);
        out.push(u8::from(self.engine.is_valid(Now { boot_ns: 0, wall_us: 0 })));
        let mut all: Vec<(usize, _)> = self
            .engine
            .all
            .iter()
            .enumerate()
            .filter(|(_, transaction)| transaction.state != State::Free)
            .collect();
        all.sort_unstable_by_key(|(_, transaction)| transaction.arrival);
        for (index, transaction) in all {
            let known = self
                .requests
                .iter()
                .find(|(id, _)| id.index as usize == index)
                .map(|(_, request)| *request);
            let asked = transaction.ticket.map(|ticket| ticket.0 as u8);
            let next = transaction.next_place.map_or(u8::MAX, |next| next.position.0 as u8);
            out.extend([
                known.or(asked).unwrap_or(u8::MAX),
                transaction.state as u8,
                u8::from(asked.is_some()),
                next,
            ]);
            out.extend(
                [transaction.is_sent, transaction.may_be_there, transaction.has_record]
                    .map(u8::from),
            );
            out.extend([
                transaction.place.generation.0 as u8,
                transaction.place.position.0 as u8,
                transaction.locked as u8,
            ]);
            out.push(
                transaction.partitions.iter().filter(|(_, mode)| *mode == Mode::Shared).count()
                    as u8,
            );
            put(out, transaction.timestamp_us);
            out.extend([
                transaction.writes.len() as u8,
                u8::from(transaction.deadline_ms == u64::MAX),
            ]);
            out.extend(transaction.writes.iter().map(|apply| *apply as u8));
        }
    }
}

#[derive(Default)]
pub(super) struct Machines {
    all: Vec<Machine>,
    known: HashMap<Vec<u8>, u32>,
}

impl Machines {
    pub(super) fn get(&self, number: u32) -> &Machine {
        &self.all[number as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of a state.
    pub(super) fn number(&mut self, machine: Machine) -> u32 {
        let mut bytes = Vec::new();
        machine.encode(&mut bytes);
        *self.known.entry(bytes).or_insert_with(|| {
            self.all.push(machine);
            self.all.len() as u32 - 1
        })
    }
}
