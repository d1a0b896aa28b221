//! Effects: what one step of a transaction wants done by another. They are queued in order, and
//! [`perform`] carries them out when the event that caused them is over.

pub(crate) mod perform;

use std::sync::Arc;

use shunt_locks::{Ticket, Written};
use shunt_transactions::catalogue::table_identity::IdentityAnswer;
use shunt_transactions::plan::Plan;
use shunt_transactions::request::Head;
use shunt_transactions::{
    Claim, Effects, Generation, Outcome, Place, Position, Refused, Row, Ticket as Number,
    TransactionId,
};

use crate::transactions::job::Failure;
use crate::transactions::ownership::Unconfirmed;
use crate::transactions::part::{IdentityWaiter, OneWrite};
use crate::transactions::planning::texts::Waiter;

/// One effect.
#[derive(Debug)]
pub(crate) enum Effect {
    Read(TransactionId, Number),
    Answer(Number, Outcome),
    WriteRecord {
        id: TransactionId,
        shard: u8,
        place: Place,
        timestamp_us: i64,
    },
    Write {
        id: TransactionId,
        write: u16,
    },
    /// Writes a single statement, with this timestamp and those after it.
    WriteUnlogged {
        id: TransactionId,
        timestamp_us: i64,
    },
    /// Passes an undecided statement to a node, by number.
    PassToNode(u64),
    Forget(TransactionId),
    WriteLow {
        shard: u8,
        generation: Generation,
        low: Position,
    },
    DeleteBucket {
        shard: u8,
        generation: Generation,
        bucket: u64,
    },
    /// Takes in an answer that is confirmed, or that came while this proxy may have been dead.
    Confirmed(Unconfirmed, bool),
    /// Takes in the outcome of a write.
    WriteDone(OneWrite, Result<Written, Refused>),
    /// Takes in the table of a name.
    IdentityKnown(IdentityWaiter, IdentityAnswer),
    /// Takes in a plan, or why there is none.
    PlanReady(Waiter, Result<Arc<Plan>, Failure>),
    /// Has texts planned that wait for it.
    PlanWaiting,
    /// Sends a request to this core, with the client whose quota it counts against: its lock is
    /// held, or does not matter.
    SendToCore(Ticket, (usize, Arc<str>), Box<[u8]>),
    /// Answers the client.
    Deliver(Ticket, Head, Vec<u8>),
    /// Opens the log of a shard, unless that was done.
    OpenLog(u8),
    /// Opens the log of a shard if it exists: no table needs the shard now, but one may have
    /// before.
    Recover(u8),
    /// Repeats failed attempts: there is a reason to expect success now.
    Retry,
    /// Checks whether shards that are being handed over are idle.
    ReportDrained,
}

/// One effect of an opening.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OpeningEffect {
    ReadRow,
    Claim(Option<Row>),
    ReadLow(Generation),
    ReadPage(Place),
    Record(Place),
    Write(Place, u16),
    Forget(Place),
    Seal(Generation),
    DeleteBucket(Generation, u64),
    DeleteLow(Generation),
}

/// The effects that are not performed yet.
#[derive(Debug, Default)]
pub(crate) struct EffectQueue {
    pub(crate) list: Vec<Effect>,
}

impl Effects for EffectQueue {
    fn locked(&mut self, transaction: TransactionId, ticket: Number) {
        self.list.push(Effect::Read(transaction, ticket));
    }

    fn reply(&mut self, ticket: Number, outcome: Outcome) {
        self.list.push(Effect::Answer(ticket, outcome));
    }

    fn append(&mut self, id: TransactionId, shard: u8, place: Place, timestamp_us: i64) {
        self.list.push(Effect::WriteRecord { id, shard, place, timestamp_us });
    }

    fn apply(&mut self, id: TransactionId, write: u16, _: i64) {
        // The job has the record's timestamp.
        self.list.push(Effect::Write { id, write });
    }

    fn write_unlogged(&mut self, id: TransactionId, timestamp_us: i64) {
        self.list.push(Effect::WriteUnlogged { id, timestamp_us });
    }

    fn forget(&mut self, id: TransactionId) {
        self.list.push(Effect::Forget(id));
    }

    fn write_low(&mut self, shard: u8, generation: Generation, low: Position) {
        self.list.push(Effect::WriteLow { shard, generation, low });
    }

    fn delete_bucket(&mut self, shard: u8, generation: Generation, bucket: u64) {
        self.list.push(Effect::DeleteBucket { shard, generation, bucket });
    }
}

/// Effects of one opening.
#[derive(Debug, Default)]
pub(crate) struct OpeningEffects(pub(crate) Vec<OpeningEffect>);

impl shunt_transactions::OpeningEffects for OpeningEffects {
    fn read_row(&mut self, _: u8) {
        self.0.push(OpeningEffect::ReadRow);
    }

    fn claim(&mut self, _: u8, row: Option<Row>, _: Claim) {
        self.0.push(OpeningEffect::Claim(row));
    }

    fn read_low(&mut self, _: u8, generation: Generation) {
        self.0.push(OpeningEffect::ReadLow(generation));
    }

    fn read(&mut self, _: u8, from: Place) {
        self.0.push(OpeningEffect::ReadPage(from));
    }

    fn append(&mut self, _: u8, place: Place) {
        self.0.push(OpeningEffect::Record(place));
    }

    fn apply(&mut self, _: u8, place: Place, write: u16) {
        self.0.push(OpeningEffect::Write(place, write));
    }

    fn forget(&mut self, _: u8, place: Place) {
        self.0.push(OpeningEffect::Forget(place));
    }

    fn seal(&mut self, _: u8, claimed: Generation, _: Claim) {
        self.0.push(OpeningEffect::Seal(claimed));
    }

    fn delete_bucket(&mut self, _: u8, generation: Generation, bucket: u64) {
        self.0.push(OpeningEffect::DeleteBucket(generation, bucket));
    }

    fn delete_low(&mut self, _: u8, generation: Generation) {
        self.0.push(OpeningEffect::DeleteLow(generation));
    }
}
