//! What the transactions of a core want done, until it is, in the order in which they want it.

use std::sync::Arc;

use shunt_locks::{Ticket, Written};
use shunt_transactions::{
    Claim, Generation, OpeningSink, Outcome, Place, Position, Refused, Row, Sink, Ticket as Number,
    TransactionId,
};

use super::failed::Failed;
use super::part::{OneWrite, WaitsForName};
use super::plans::Waiter;
use super::unconfirmed::Unconfirmed;
use crate::fleet::peers::Login;
use shunt_transactions::catalogue::table_identity::Named;
use shunt_transactions::plan::Plan;
use shunt_transactions::request::{Head, Known};

/// One thing to do.
#[derive(Debug)]
pub(super) enum Wanted {
    Read(TransactionId, Number),
    Answer(Number, Outcome),
    Record {
        id: TransactionId,
        shard: u8,
        place: Place,
        timestamp_us: i64,
    },
    Write {
        id: TransactionId,
        write: u16,
    },
    /// A single statement is written, with this timestamp and those behind it.
    Alone {
        id: TransactionId,
        timestamp_us: i64,
    },
    /// A statement that is decided by nobody here goes to a node, by its job.
    Pass(u64),
    Forget(TransactionId),
    Low {
        shard: u8,
        generation: Generation,
        low: Position,
    },
    DeleteBucket {
        shard: u8,
        generation: Generation,
        bucket: u64,
    },
    /// It is known if this proxy was alive when it heard this.
    Confirmed(Unconfirmed, bool),
    /// A write that was to be made was, or was not, as far as is known.
    Made(OneWrite, Result<Written, Refused>),
    /// It is known which table a name stands for.
    Named(WaitsForName, Named),
    /// There is a plan, or none.
    Planned(Waiter, Result<Arc<Plan>, Failed>),
    /// Its client may do what it does, of this login; the second of the ticket: it was forwarded.
    Allowed {
        ticket: (Ticket, bool),
        login: Login,
        known: Arc<Known>,
        message: Vec<u8>,
    },
    /// Its lock is held, or it does not matter: it goes to this core, and counts to this share.
    Send(Ticket, (usize, Arc<str>), Box<[u8]>),
    /// Whoever asked is answered.
    Tell(Ticket, Head, Vec<u8>),
    /// The log of a shard is to be opened, unless it was before.
    Open(u8),
    /// The same if the shard has a log: no table has a mode that asks for the shard, but one may
    /// have had such a mode.
    Recover(u8),
    /// There is a reason why what failed may not fail any more: it is tried again now.
    Hurry,
    /// Shards that are handed over may have nothing under way any more.
    LookAtDraining,
}

/// One thing that an opening wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ToOpen {
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

/// All that is to be done.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) wanted: Vec<Wanted>,
}

impl Sink for Outbox {
    fn locked(&mut self, transaction: TransactionId, ticket: Number) {
        self.wanted.push(Wanted::Read(transaction, ticket));
    }

    fn reply(&mut self, ticket: Number, outcome: Outcome) {
        self.wanted.push(Wanted::Answer(ticket, outcome));
    }

    fn append(&mut self, id: TransactionId, shard: u8, place: Place, timestamp_us: i64) {
        self.wanted.push(Wanted::Record { id, shard, place, timestamp_us });
    }

    fn apply(&mut self, id: TransactionId, write: u16, _: i64) {
        // The timestamp is that of the record, which the job has.
        self.wanted.push(Wanted::Write { id, write });
    }

    fn write_alone(&mut self, id: TransactionId, timestamp_us: i64) {
        self.wanted.push(Wanted::Alone { id, timestamp_us });
    }

    fn forget(&mut self, id: TransactionId) {
        self.wanted.push(Wanted::Forget(id));
    }

    fn write_low(&mut self, shard: u8, generation: Generation, low: Position) {
        self.wanted.push(Wanted::Low { shard, generation, low });
    }

    fn delete_bucket(&mut self, shard: u8, generation: Generation, bucket: u64) {
        self.wanted.push(Wanted::DeleteBucket { shard, generation, bucket });
    }
}

/// What an opening wants, of the shard that it opens.
#[derive(Debug, Default)]
pub(super) struct Openings(pub(super) Vec<ToOpen>);

impl OpeningSink for Openings {
    fn read_row(&mut self, _: u8) {
        self.0.push(ToOpen::ReadRow);
    }

    fn claim(&mut self, _: u8, row: Option<Row>, _: Claim) {
        self.0.push(ToOpen::Claim(row));
    }

    fn read_low(&mut self, _: u8, generation: Generation) {
        self.0.push(ToOpen::ReadLow(generation));
    }

    fn read(&mut self, _: u8, from: Place) {
        self.0.push(ToOpen::ReadPage(from));
    }

    fn append(&mut self, _: u8, place: Place) {
        self.0.push(ToOpen::Record(place));
    }

    fn apply(&mut self, _: u8, place: Place, write: u16) {
        self.0.push(ToOpen::Write(place, write));
    }

    fn forget(&mut self, _: u8, place: Place) {
        self.0.push(ToOpen::Forget(place));
    }

    fn seal(&mut self, _: u8, claimed: Generation, _: Claim) {
        self.0.push(ToOpen::Seal(claimed));
    }

    fn delete_bucket(&mut self, _: u8, generation: Generation, bucket: u64) {
        self.0.push(ToOpen::DeleteBucket(generation, bucket));
    }

    fn delete_low(&mut self, _: u8, generation: Generation) {
        self.0.push(ToOpen::DeleteLow(generation));
    }
}
