//! Which part of a transaction one of the proxy's own statements is: so its outcome finds the way.

use shunt_transactions::{Claim, Generation, Place, Position, TransactionId};

use crate::ids::PoolId;

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A question of a planning about a keyspace or table.
    Schema { planning: u64, question: Question },
    /// A text of a planning, by its place, was to be prepared.
    Text { planning: u64, place: u16 },
    /// A row is read.
    Read { job: u64, read: u16 },
    /// A record is written.
    Record(TransactionId),
    /// One of the writes is made.
    Write(OneWrite),
    /// Which table a name stands for.
    Name(u64),
    /// A step of an opening.
    Opening { claim: Claim, part: OpeningPart },
    /// A low mark is written.
    Low { shard: u8, generation: Generation, low: Position },
    /// Which tables take part in transactions.
    Modes,
    /// A step of a change of a table's mode.
    Change(u64),
    /// It shows if the login of a pool may change a table, of which it is to change the mode.
    MayChange { pool: PoolId, number: u64 },
    /// Nobody waits for it.
    Nothing,
    /// It shows if the login of a pool may read a table, or write to it.
    Permission { pool: PoolId, number: u64 },
}

/// One of the writes of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OneWrite {
    /// Of a transaction that this core has carried out.
    Own { id: TransactionId, write: u16 },
    /// Of a record that the opening of a shard has found.
    Found { claim: Claim, place: Place, write: u16 },
}

impl OneWrite {
    /// Its number among those of its transaction.
    pub(crate) fn number(self) -> u16 {
        match self {
            OneWrite::Own { write, .. } | OneWrite::Found { write, .. } => write,
        }
    }
}

/// Kinds of parts, each of which leaves the others their room among the proxy's own statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Rights, of roles that may have none.
    Rights,
    /// What plans need, and changes of modes.
    Plans,
    /// Rows that are read before anything is written.
    Reads,
    /// What is written, and what former owners have left: others wait for it.
    Writes,
}

impl Part {
    pub(crate) fn share(self) -> Share {
        match self {
            Part::Permission { .. } | Part::MayChange { .. } => Share::Rights,
            Part::Schema { .. } | Part::Text { .. } | Part::Change(_) | Part::Modes => Share::Plans,
            Part::Read { .. } => Share::Reads,
            Part::Record(_)
            | Part::Write(_)
            | Part::Name(_)
            | Part::Opening { .. }
            | Part::Low { .. }
            | Part::Nothing => Share::Writes,
        }
    }
}

impl Share {
    pub(crate) const COUNT: usize = 4;

    /// Statements of this kind in flight at once, on one core.
    pub(crate) const fn most(self) -> usize {
        match self {
            Share::Rights => 256,
            Share::Plans => 384,
            Share::Reads => 768,
            Share::Writes => 640,
        }
    }
}

/// What is asked before a plan can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// How the keyspace is kept.
    Keyspace,
    /// Its user-defined types.
    Types,
    /// The modes of its tables.
    Modes,
    /// The table at this place.
    Table(u16),
    /// And its columns.
    Columns(u16),
    /// Which of them are masked.
    Masks(u16),
    /// Whether this proxy's own login may write to it.
    MayWrite(u16),
}

/// A step of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpeningPart {
    /// The shard's row is read.
    Row,
    /// A generation is claimed.
    Claim,
    /// Those before it are sealed.
    Seal,
    /// A low mark is read.
    Low(Generation),
    /// Records are read.
    Page(Place),
    /// A record is written again.
    Record(Place),
}
