//! A new owner opens a shard's log before it carries out transactions there: it claims the next
//! generation, finishes the work of former owners, and seals their generations.
//!
//! 1. The shard's row is read at SERIAL: the last generation `g`, and the generation `s` up to
//!    which all are sealed.
//! 2. Generation `g + 1` is claimed by a conditional statement on the row as it was read, so that
//!    each generation has one owner. After an unknown outcome the row is read again, and shows
//!    whose claim it has.
//! 3. The generations `s + 1` to `g` are recovered.
//! 4. They are sealed, on the condition that the claim still stands.
//! 5. Only then is the shard served, and records go to generation `g + 1`.
//!
//! Two members may open one shard at a time: one that was paused or is cut off, and one that was
//! given the shard since. Three rules keep the former harmless, however late it goes on:
//! - A claim is based on a row that was read while the member held the shard. A late claim
//!   therefore finds its condition broken by a later one, and no log is sealed while its owner uses
//!   it.
//! - A late seal finds its claim broken in the same way. A later claimant finds everything that was
//!   rewritten, or finds it sealed.
//! - No write of a recovered record is made unless the member holds the shard when it learns that a
//!   quorum has the record again: the next owner then finds the record too, or reads a row in which
//!   its generation is sealed and all its writes are made.
//!
//! The condition of the claim includes `s`. Otherwise a former opener's seal could come between
//! reading and claiming, and that opener would delete logs that are being recovered here.
//!
//! After the seal, records of these generations are void and never read. A new one cannot have been
//! committed: a quorum did not have it when the log was read, so its acknowledgement came after the
//! end of its member's lease, which that member checks.

use shunt_locks::{Now, Written};

use crate::engine::backoff::Pauses;
use crate::engine::commit::Refused;
use crate::engine::log::{Generation, Place, Position};
use crate::engine::recovery::{Recovery, WasRead};

/// Identifies an opening: a UUID that no other opening of any process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claim(pub u128);

/// The row of a shard in `shunt_meta.txn_shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The last generation that was claimed.
    pub generation: Generation,
    /// The opening that claimed it.
    pub claim: Claim,
    /// Logs up to this generation are void.
    pub sealed: Generation,
}

/// The outcome of a conditional statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The condition held, and the row was changed.
    Applied,
    /// The condition did not hold.
    Refused,
    /// The statement may have been executed, now or later.
    Unknown,
}

/// A read without an answer, or with one that cannot be used, such as a record of a later version.
/// It is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// The position in the log.
    pub position: Position,
    /// The timestamp of its writes, microseconds.
    pub timestamp_us: i64,
    /// Number of writes.
    pub writes: u16,
}

/// Consecutive records in a partition of the log.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// By position. At least one, unless the partition has no more.
    pub records: &'a [FoundRecord],
    /// The partition has no more records.
    pub is_last: bool,
}

/// The effects of methods of [`Opening`], which call these. Each is answered once by a method of
/// [`Opening`]. An answer that comes after the opening was dropped is not given to another one,
/// which has another [`Claim`].
pub trait OpeningEffects {
    /// Reads the shard's row at SERIAL; [`Opening::row_read`] follows.
    fn read_row(&mut self, shard: u8);
    /// Claims the generation after that of `row` by a conditional statement; [`Opening::claimed`]
    /// follows.
    ///
    /// `Some`: `SET generation = row.generation + 1, claim = claim IF generation = row.generation
    /// AND sealed = row.sealed`. `None`: generation 1 is inserted, with `sealed = 0`, `IF NOT
    /// EXISTS`.
    fn claim(&mut self, shard: u8, row: Option<Row>, claim: Claim);
    /// Reads the low mark of a generation at QUORUM; [`Opening::low_read`] follows.
    fn read_low(&mut self, shard: u8, generation: Generation);
    /// Reads records at `from` and after it, in its partition of the log, at QUORUM;
    /// [`Opening::page_read`] follows. The caller keeps each body until [`OpeningEffects::forget`]:
    /// fewer than 64 at a time, and those of one page.
    fn read(&mut self, shard: u8, from: Place);
    /// Writes a record again at QUORUM at its place, unchanged; [`Opening::appended`] follows.
    fn append(&mut self, shard: u8, place: Place);
    /// Makes a write of a record at QUORUM, with the record's timestamp and as many microseconds
    /// more as its number; [`Opening::applied`] follows.
    fn apply(&mut self, shard: u8, place: Place, write: u16);
    /// Ends a record: no further effects follow.
    fn forget(&mut self, shard: u8, place: Place);
    /// `SET sealed = claimed - 1 IF generation = claimed AND claim = claim`; [`Opening::sealed`]
    /// follows.
    fn seal(&mut self, shard: u8, claimed: Generation, claim: Claim);
    /// Deletes a partition of a sealed generation's log. A failure does no harm.
    fn delete_bucket(&mut self, shard: u8, generation: Generation, bucket: u64);
    /// Deletes the low mark of a sealed generation, with an ordinary timestamp. A failure does no
    /// harm.
    fn delete_low(&mut self, shard: u8, generation: Generation);
}

/// Permission to serve a shard, for [`crate::Transactions::open_shard`].
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
    /// The row is read again at this time, boot-time clock, milliseconds.
    Waiting(u64),
    /// A generation is being claimed, on this row.
    Claiming(Option<Row>),
    /// Earlier generations are being recovered.
    Recovering(Generation, Box<Recovery>),
    /// Earlier generations are being sealed.
    Sealing(Generation),
    /// The generation that was claimed may be written to.
    Open(Generation),
}

/// The opening of one shard. It goes on until the shard is open, or until it is dropped because the
/// shard is lost; it waits while the lease has lapsed.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Opening {
    shard: u8,
    claim: Claim,
    state: State,
    /// Generations before this one are recovered, though perhaps not sealed; with the logs that
    /// were read.
    recovered: Option<(Generation, Vec<WasRead>)>,
    last_timestamp_us: i64,
    refused: u64,
    /// Attempts in a row to claim or seal that failed.
    attempts: u32,
    pauses: Pauses,
}

impl Opening {
    /// Begins to open a shard that was gained with this claim.
    pub fn begin(shard: u8, claim: Claim, effects: &mut impl OpeningEffects) -> Self {
        effects.read_row(shard);
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

    /// Identifies this opening: answers for another one are not given to it.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// Permission to serve the shard, once it is open.
    #[must_use]
    pub fn opened(&self) -> Option<Opened> {
        let State::Open(generation) = self.state else { return None };
        let (shard, claim, last_timestamp_us) = (self.shard, self.claim, self.last_timestamp_us);
        Some(Opened { shard, claim, generation, last_timestamp_us })
    }

    /// Writes that nodes refuse each time: their tables are gone.
    #[must_use]
    pub fn refused(&self) -> u64 {
        match &self.state {
            State::Recovering(_, recovery) => self.refused + recovery.refused(),
            _ => self.refused,
        }
    }

    /// Takes in the shard's row. `holds` is [`crate::Transactions::holds`] by a clock that was read
    /// after the answer came. Otherwise the row may already have a later owner's claim, and is read
    /// again.
    pub fn row_read(
        &mut self,
        now: Now,
        row: Result<Option<Row>, Failed>,
        holds: bool,
        effects: &mut impl OpeningEffects,
    ) {
        if !matches!(self.state, State::ReadingRow) {
            return;
        }
        match row {
            Ok(row) if holds => match row.filter(|row| row.claim == self.claim) {
                Some(ours) if ours.sealed.next() >= ours.generation => {
                    self.open(ours.generation, effects)
                }
                Some(ours) => self.recover(ours.generation, ours.sealed, effects),
                None => {
                    self.state = State::Claiming(row);
                    effects.claim(self.shard, row, self.claim);
                }
            },
            _ => self.wait(now),
        }
    }

    /// Takes in the outcome of the claim.
    pub fn claimed(&mut self, now: Now, outcome: Conditional, effects: &mut impl OpeningEffects) {
        let State::Claiming(row) = self.state else { return };
        match (outcome, row) {
            (Conditional::Applied, None) => self.open(Generation(1), effects),
            (Conditional::Applied, Some(row)) => {
                self.recover(row.generation.next(), row.sealed, effects)
            }
            // Another has claimed, or nobody knows: the row does.
            (Conditional::Refused | Conditional::Unknown, _) => self.wait(now),
        }
    }

    fn wait(&mut self, now: Now) {
        self.attempts += 1;
        self.state = State::Waiting(now.boot_ns / 1_000_000 + self.pauses.after(self.attempts));
    }

    /// Recovers the generations before the one that was claimed.
    fn recover(
        &mut self,
        claimed: Generation,
        sealed: Generation,
        effects: &mut impl OpeningEffects,
    ) {
        if self.recovered.as_ref().is_some_and(|(before, _)| *before == claimed) {
            return self.seal(claimed, effects);
        }
        self.attempts = 0;
        // Recovery has pauses of its own, since it may start again.
        let pauses = Pauses::new(self.claim.0);
        let recovery =
            Recovery::begin(self.shard, sealed, Generation(claimed.0 - 1), pauses, effects);
        self.state = State::Recovering(claimed, Box::new(recovery));
        self.go_on(effects);
    }

    fn seal(&mut self, claimed: Generation, effects: &mut impl OpeningEffects) {
        self.state = State::Sealing(claimed);
        effects.seal(self.shard, claimed, self.claim);
    }

    /// Takes in the outcome of the seal.
    pub fn sealed(&mut self, now: Now, outcome: Conditional, effects: &mut impl OpeningEffects) {
        let State::Sealing(claimed) = self.state else { return };
        match outcome {
            Conditional::Applied => self.open(claimed, effects),
            // Another has claimed: whoever still holds the shard begins anew, and nobody else does.
            Conditional::Refused => {
                self.recovered = None;
                self.wait(now);
            }
            Conditional::Unknown => self.wait(now),
        }
    }

    fn open(&mut self, claimed: Generation, effects: &mut impl OpeningEffects) {
        self.state = State::Open(claimed);
        let Some((_, was_read)) = self.recovered.take().filter(|(before, _)| *before == claimed)
        else {
            return;
        };
        for WasRead { generation, first_bucket, end_bucket } in was_read {
            (first_bucket..end_bucket)
                .for_each(|bucket| effects.delete_bucket(self.shard, generation, bucket));
            effects.delete_low(self.shard, generation);
        }
    }

    /// Takes in the low mark of a generation; the first place, where there is none.
    pub fn low_read(
        &mut self,
        now: Now,
        generation: Generation,
        low: Result<Position, Failed>,
        effects: &mut impl OpeningEffects,
    ) {
        self.step(effects, |recovery, effects| recovery.low(now, generation, low, effects));
    }

    /// Takes in records.
    pub fn page_read(
        &mut self,
        now: Now,
        from: Place,
        page: Result<Page<'_>, Failed>,
        effects: &mut impl OpeningEffects,
    ) {
        self.step(effects, |recovery, effects| recovery.page(now, from, page, effects));
    }

    /// Takes in the outcome of rewriting a record. `holds` is [`crate::Transactions::holds`] by a
    /// clock that was read after the answer came. Otherwise the record is rewritten later, and if
    /// the shard is lost its writes are the next owner's.
    pub fn appended(
        &mut self,
        now: Now,
        place: Place,
        written: Written,
        holds: bool,
        effects: &mut impl OpeningEffects,
    ) {
        self.step(effects, |recovery, effects| {
            recovery.appended(now, place, written, holds, effects)
        });
    }

    /// Takes in the outcome of a write.
    pub fn applied(
        &mut self,
        now: Now,
        place: Place,
        write: u16,
        written: Result<Written, Refused>,
        effects: &mut impl OpeningEffects,
    ) {
        self.step(effects, |recovery, effects| {
            recovery.applied(now, place, write, written, effects)
        });
    }

    /// Time of the next [`Opening::tick`], by the boot-time clock, milliseconds.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        match &self.state {
            State::Waiting(due_ms) => Some(*due_ms),
            State::Recovering(_, recovery) => recovery.next_due_ms(),
            _ => None,
        }
    }

    /// Repeats what is due.
    pub fn tick(&mut self, now: Now, effects: &mut impl OpeningEffects) {
        match self.state {
            State::Waiting(due_ms) if due_ms <= now.boot_ns / 1_000_000 => {
                self.state = State::ReadingRow;
                effects.read_row(self.shard);
            }
            _ => self.step(effects, |recovery, effects| recovery.tick(now, effects)),
        }
    }

    /// Repeats everything that waits for a pause: there is a reason to expect success now.
    pub fn hurry(&mut self, now: Now, effects: &mut impl OpeningEffects) {
        match self.state {
            State::Waiting(_) => {
                (self.attempts, self.state) = (0, State::ReadingRow);
                effects.read_row(self.shard);
            }
            _ => self.step(effects, |recovery, effects| recovery.hurry(now, effects)),
        }
    }

    fn step<S: OpeningEffects>(
        &mut self,
        effects: &mut S,
        step: impl FnOnce(&mut Recovery, &mut S),
    ) {
        if let State::Recovering(_, recovery) = &mut self.state {
            step(recovery, effects);
            self.go_on(effects);
        }
    }

    /// Seals, once recovery is complete.
    fn go_on(&mut self, effects: &mut impl OpeningEffects) {
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
        self.seal(claimed, effects);
    }
}
