//! Whoever gains a shard opens its log before it carries transactions out there: it claims the next
//! generation, does what those before left undone, and seals them.
//!
//! 1. The shard's row is read at SERIAL: the last generation `g`, and up to which generation all is
//!    sealed, `s`.
//! 2. Generation `g + 1` is claimed by a conditional statement on the row as it was read, so that
//!    each has one claimer. Where the outcome is unknown the row is read again, and the claim in it
//!    tells.
//! 3. The generations `s + 1` to `g` are recovered.
//! 4. They are sealed, on the condition that the claim still stands.
//! 5. Only then is the shard served, and records go to generation `g + 1`.
//!
//! Two may open one shard at a time: one that stood still or is cut off, and whoever was given the
//! shard since. Three rules keep the former from doing harm, however late it goes on:
//! - It claims only on what it read of the row while it held the shard. So a claim that comes late
//!   finds the condition broken by whoever has claimed since, and nobody's log is recovered under
//!   its hands and sealed.
//! - Its seal finds the claim broken by whoever has claimed since. Whoever claims later finds all
//!   that it has rewritten, or finds it sealed.
//! - It makes no write of a record that it found unless it holds the shard when it hears that a
//!   quorum has the record again: so whoever has the shard later either finds the record too, or
//!   reads a row in which its generation is sealed, and all its writes are there.
//!
//! The condition of the claim names `s` as well. Else a former opener's seal could come between
//! reading and claiming, and that opener would delete the logs that are being recovered here.
//!
//! After the seal a record of these generations means nothing and is never read. It cannot have
//! been begun: a quorum did not have it when the log was read, so its acknowledgement came after
//! its member's lease had ended, which that member looks at.

use shunt_locks::{Now, Written};

use crate::engine::commit::Refused;
use crate::engine::log::{Generation, Place, Position};
use crate::engine::pauses::Pauses;
use crate::engine::recovery::{Recovery, WasRead};

/// Names an opening: a UUID that no opening of any process has had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claim(pub u128);

/// The row of a shard in `shunt_meta.txn_shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The last generation that was claimed.
    pub generation: Generation,
    /// By which opening.
    pub claim: Claim,
    /// Logs up to this generation mean nothing any more.
    pub sealed: Generation,
}

/// What has become of a conditional statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The condition held, and the row was changed.
    Applied,
    /// It did not hold.
    Refused,
    /// It may have been executed, or may be yet.
    Unknown,
}

/// A read got no answer, or one that cannot be used: a record that this version does not
/// understand, too. It is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where in the log.
    pub position: Position,
    /// The timestamp of its writes, microseconds.
    pub timestamp_us: i64,
    /// How many there are.
    pub writes: u16,
}

/// Records that follow each other in a partition of the log.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// By position. At least one, unless the partition has no more.
    pub records: &'a [Found],
    /// The partition has no more.
    pub is_last: bool,
}

/// Where the statements of an opening go. Called from within methods of [`Opening`], which are
/// called again, once for each statement, with what has become of it. Answers that come after the
/// opening was dropped are not given to another: they are of this [`Claim`].
pub trait OpeningSink {
    /// The shard's row is to be read at SERIAL; [`Opening::row_read`] is to be called later.
    fn read_row(&mut self, shard: u8);
    /// The generation after that of `row` is to be claimed by a conditional statement;
    /// [`Opening::claimed`] is to be called later.
    ///
    /// `Some`: `SET generation = row.generation + 1, claim = claim IF generation = row.generation
    /// AND sealed = row.sealed`. `None`: generation 1 is inserted, with `sealed = 0`, `IF NOT
    /// EXISTS`.
    fn claim(&mut self, shard: u8, row: Option<Row>, claim: Claim);
    /// The low mark of a generation is to be read at QUORUM; [`Opening::low_read`] is to be called
    /// later.
    fn read_low(&mut self, shard: u8, generation: Generation);
    /// Records at `from` and after it, in its partition of the log, are to be read at QUORUM;
    /// [`Opening::page_read`] is to be called later. Of each that is read its body is kept until
    /// [`OpeningSink::forget`]: fewer than 64 at a time, and those of one page.
    fn read(&mut self, shard: u8, from: Place);
    /// A record that was read is to be written again at QUORUM at its place, as it was;
    /// [`Opening::appended`] is to be called later.
    fn append(&mut self, shard: u8, place: Place);
    /// A write of a record is to be made at QUORUM, with the timestamp of the record and as many
    /// microseconds more as its number says; [`Opening::applied`] is to be called later.
    fn apply(&mut self, shard: u8, place: Place, write: u16);
    /// Nothing more comes of a record.
    fn forget(&mut self, shard: u8, place: Place);
    /// `SET sealed = claimed - 1 IF generation = claimed AND claim = claim`; [`Opening::sealed`] is
    /// to be called later.
    fn seal(&mut self, shard: u8, claimed: Generation, claim: Claim);
    /// A partition of the log of a sealed generation may be deleted. Nothing is wrong if it is not.
    fn delete_bucket(&mut self, shard: u8, generation: Generation, bucket: u64);
    /// The low mark of a sealed generation may be deleted, with an ordinary timestamp. Nothing is
    /// wrong if it is not.
    fn delete_low(&mut self, shard: u8, generation: Generation);
}

/// That a shard may be served: for [`crate::Transactions::open_shard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub(crate) shard: u8,
    pub(crate) claim: Claim,
    pub(crate) generation: Generation,
    pub(crate) last_timestamp_us: i64,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum State {
    /// The row is being read.
    ReadingRow,
    /// It is to be read at this time, boot-time clock, milliseconds.
    Waiting(u64),
    /// A generation is being claimed, on this row.
    Claiming(Option<Row>),
    /// Those before the generation that was claimed are being recovered.
    Recovering(Generation, Box<Recovery>),
    /// They are being sealed.
    Sealing(Generation),
    /// The generation that was claimed may be written to.
    Open(Generation),
}

/// The opening of one shard. It goes on until it is open, or dropped when its shard is lost; a
/// lapse of the lease it waits out.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Opening {
    shard: u8,
    claim: Claim,
    state: State,
    /// All before this generation is done, but perhaps not sealed; and what was read of it.
    recovered: Option<(Generation, Vec<WasRead>)>,
    last_timestamp_us: i64,
    refused: u64,
    /// Attempts in a row to claim or seal that failed.
    attempts: u32,
    pauses: Pauses,
}

impl Opening {
    /// Begins, for a shard that was gained with this claim.
    pub fn begin(shard: u8, claim: Claim, sink: &mut impl OpeningSink) -> Self {
        sink.read_row(shard);
        Self {
            shard,
            claim,
            state: State::ReadingRow,
            recovered: None,
            last_timestamp_us: i64::MIN,
            refused: 0,
            attempts: 0,
            pauses: Pauses::new(claim.0),
        }
    }

    /// Its name; answers to statements of another are not for it.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// That the shard may be served, once it may be.
    #[must_use]
    pub fn opened(&self) -> Option<Opened> {
        let State::Open(generation) = self.state else { return None };
        let (shard, claim, last_timestamp_us) = (self.shard, self.claim, self.last_timestamp_us);
        Some(Opened { shard, claim, generation, last_timestamp_us })
    }

    /// Writes that nodes have refused, and will each time: their tables are gone.
    #[must_use]
    pub fn refused(&self) -> u64 {
        match &self.state {
            State::Recovering(_, recovery) => self.refused + recovery.refused(),
            _ => self.refused,
        }
    }

    /// The shard's row was read. `holds`: what [`crate::Transactions::holds`] says, by a clock that
    /// was read after the answer came. Without that the row may be one that whoever has the shard
    /// now has claimed, and is read again.
    pub fn row_read(
        &mut self,
        now: Now,
        row: Result<Option<Row>, Failed>,
        holds: bool,
        sink: &mut impl OpeningSink,
    ) {
        if !matches!(self.state, State::ReadingRow) {
            return;
        }
        match row {
            Ok(row) if holds => match row.filter(|row| row.claim == self.claim) {
                Some(ours) if ours.sealed.next() >= ours.generation => {
                    self.open(ours.generation, sink)
                }
                Some(ours) => self.recover(ours.generation, ours.sealed, sink),
                None => {
                    self.state = State::Claiming(row);
                    sink.claim(self.shard, row, self.claim);
                }
            },
            _ => self.wait(now),
        }
    }

    /// What has become of the claim.
    pub fn claimed(&mut self, now: Now, outcome: Conditional, sink: &mut impl OpeningSink) {
        let State::Claiming(row) = self.state else { return };
        match (outcome, row) {
            (Conditional::Applied, None) => self.open(Generation(1), sink),
            (Conditional::Applied, Some(row)) => {
                self.recover(row.generation.next(), row.sealed, sink)
            }
            // Another has claimed, or nobody knows: the row does.
            (Conditional::Refused | Conditional::Unknown, _) => self.wait(now),
        }
    }

    fn wait(&mut self, now: Now) {
        self.attempts += 1;
        self.state = State::Waiting(now.boot_ns / 1_000_000 + self.pauses.after(self.attempts));
    }

    /// Does what is undone before the generation that was claimed.
    fn recover(&mut self, claimed: Generation, sealed: Generation, sink: &mut impl OpeningSink) {
        if self.recovered.as_ref().is_some_and(|(before, _)| *before == claimed) {
            return self.seal(claimed, sink);
        }
        self.attempts = 0;
        // Those of its own: it may begin anew.
        let pauses = Pauses::new(self.claim.0);
        let recovery = Recovery::begin(self.shard, sealed, Generation(claimed.0 - 1), pauses, sink);
        self.state = State::Recovering(claimed, Box::new(recovery));
        self.go_on(sink);
    }

    fn seal(&mut self, claimed: Generation, sink: &mut impl OpeningSink) {
        self.state = State::Sealing(claimed);
        sink.seal(self.shard, claimed, self.claim);
    }

    /// What has become of the seal.
    pub fn sealed(&mut self, now: Now, outcome: Conditional, sink: &mut impl OpeningSink) {
        let State::Sealing(claimed) = self.state else { return };
        match outcome {
            Conditional::Applied => self.open(claimed, sink),
            // Another has claimed: whoever still holds the shard begins anew, and nobody else does.
            Conditional::Refused => {
                self.recovered = None;
                self.wait(now);
            }
            Conditional::Unknown => self.wait(now),
        }
    }

    fn open(&mut self, claimed: Generation, sink: &mut impl OpeningSink) {
        self.state = State::Open(claimed);
        let Some((_, was_read)) = self.recovered.take().filter(|(before, _)| *before == claimed)
        else {
            return;
        };
        for WasRead { generation, first_bucket, end_bucket } in was_read {
            (first_bucket..end_bucket)
                .for_each(|bucket| sink.delete_bucket(self.shard, generation, bucket));
            sink.delete_low(self.shard, generation);
        }
    }

    /// The low mark of a generation was read; the first place, where there is none.
    pub fn low_read(
        &mut self,
        now: Now,
        generation: Generation,
        low: Result<Position, Failed>,
        sink: &mut impl OpeningSink,
    ) {
        self.step(sink, |recovery, sink| recovery.low(now, generation, low, sink));
    }

    /// Records were read.
    pub fn page_read(
        &mut self,
        now: Now,
        from: Place,
        page: Result<Page<'_>, Failed>,
        sink: &mut impl OpeningSink,
    ) {
        self.step(sink, |recovery, sink| recovery.page(now, from, page, sink));
    }

    /// What has become of an attempt to write a record again. `holds`: what
    /// [`crate::Transactions::holds`] says, by a clock that was read after the answer came. Without
    /// that the record is written again later, and its writes are another's affair if the shard is
    /// lost.
    pub fn appended(
        &mut self,
        now: Now,
        place: Place,
        written: Written,
        holds: bool,
        sink: &mut impl OpeningSink,
    ) {
        self.step(sink, |recovery, sink| recovery.appended(now, place, written, holds, sink));
    }

    /// What has become of an attempt to make a write.
    pub fn applied(
        &mut self,
        now: Now,
        place: Place,
        write: u16,
        written: Result<Written, Refused>,
        sink: &mut impl OpeningSink,
    ) {
        self.step(sink, |recovery, sink| recovery.applied(now, place, write, written, sink));
    }

    /// When [`Opening::tick`] is to be called next, by the boot-time clock, milliseconds.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        match &self.state {
            State::Waiting(due_ms) => Some(*due_ms),
            State::Recovering(_, recovery) => recovery.next_due_ms(),
            _ => None,
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now, sink: &mut impl OpeningSink) {
        match self.state {
            State::Waiting(due_ms) if due_ms <= now.boot_ns / 1_000_000 => {
                self.state = State::ReadingRow;
                sink.read_row(self.shard);
            }
            _ => self.step(sink, |recovery, sink| recovery.tick(now, sink)),
        }
    }

    /// What failed is tried again now, and not when its pause is over: there may be a reason why it
    /// does not fail any more.
    pub fn hurry(&mut self, now: Now, sink: &mut impl OpeningSink) {
        match self.state {
            State::Waiting(_) => {
                (self.attempts, self.state) = (0, State::ReadingRow);
                sink.read_row(self.shard);
            }
            _ => self.step(sink, |recovery, sink| recovery.hurry(now, sink)),
        }
    }

    fn step<S: OpeningSink>(&mut self, sink: &mut S, step: impl FnOnce(&mut Recovery, &mut S)) {
        if let State::Recovering(_, recovery) = &mut self.state {
            step(recovery, sink);
            self.go_on(sink);
        }
    }

    /// Seals, once nothing is left undone.
    fn go_on(&mut self, sink: &mut impl OpeningSink) {
        let State::Recovering(claimed, recovery) = &self.state else { return };
        if !recovery.is_done() {
            return;
        }
        let claimed = *claimed;
        self.last_timestamp_us = self.last_timestamp_us.max(recovery.last_timestamp_us());
        self.refused += recovery.refused();
        let State::Recovering(_, recovery) =
            std::mem::replace(&mut self.state, State::Sealing(claimed))
        else {
            return;
        };
        self.recovered = Some((claimed, recovery.into_was_read()));
        self.seal(claimed, sink);
    }
}
