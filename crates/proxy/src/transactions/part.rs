//! Which part of a transaction one of the proxy's own statements is: so its outcome finds the way.

use std::hash::{DefaultHasher, Hash, Hasher};

use shunt_fleet::Incarnation;
use shunt_transactions::catalogue::table_identity::What;
use shunt_transactions::{Claim, Generation, Place, Position, TransactionId};

use crate::ids::PoolId;

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A question of a planning about a keyspace or table, for this client.
    Schema { planning: u64, question: Question, who: Who },
    /// A text of a planning, by its place, was to be prepared.
    Text { planning: u64, place: u16, who: Who },
    /// A row is read, for this client.
    Read { job: u64, read: u16, who: Who },
    /// A single statement is written.
    Alone { id: TransactionId, who: Who },
    /// A single statement of a table with the mode `observe` goes to a node, and is decided by
    /// nobody here.
    Passed { job: u64, who: Who },
    /// A record is written, for this client.
    Record { id: TransactionId, who: Who },
    /// One of the writes is made, for this client.
    Write { write: OneWrite, who: Who },
    /// Which table a name stands for, or which columns it has, for this client first.
    Name { number: u64, who: Who },
    /// A step of an opening.
    Opening { claim: Claim, part: OpeningPart },
    /// A low mark is written.
    Low { shard: u8, generation: Generation, low: Position },
    /// It shows if a membership of this proxy's is alive.
    Confirm(Incarnation),
    /// Which tables take part in transactions.
    Modes,
    /// Which tables have rules.
    Rules,
    /// A step of a change of a table's mode.
    Change(u64),
    /// It shows if the login of a pool may change a table, of which it is to change the mode.
    MayChange { pool: PoolId, number: u64 },
    /// Nobody waits for it.
    Nothing,
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

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsForName {
    /// A transaction that is about to be decided, by its number, and which of its tables it is.
    Job { number: u64, table: u16, what: What },
    /// A write that is about to be sent.
    Write(OneWrite),
}

/// What waits for room among the proxy's own statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    Write(OneWrite),
    /// A single statement, with this timestamp.
    Alone(TransactionId, i64),
    /// One that is decided by nobody here, by its job.
    Passed(u64),
}

impl Parked {
    /// Which part it is once it is sent for this client.
    pub(crate) fn part(self, who: Who) -> Part {
        match self {
            Parked::Write(write) => Part::Write { write, who },
            Parked::Alone(id, _) => Part::Alone { id, who },
            Parked::Passed(job) => Part::Passed { job, who },
        }
    }
}

/// A client as its share of what is in flight is known by: a hash of what [`super::shares`] knows
/// it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Who(pub(crate) u64);

impl Who {
    /// Former owners of shards, of whose clients nobody knows.
    pub(crate) const FORMER: Who = Who(0);

    pub(crate) fn of(name: &str) -> Who {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Who(hasher.finish())
    }
}

/// Kinds of parts, each of which leaves the others their room among the proxy's own statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Share {
    /// Rights, of roles that may have none.
    Rights,
    /// What plans need, and changes of modes.
    Plans,
    /// Modes and rules: what everybody decides by must not wait for what one client wants planned.
    Looks,
    /// Rows that are read before anything is written.
    Reads,
    /// Which table a name stands for.
    Names,
    /// Records, and the log: others wait for it.
    Records,
    /// By which what was heard counts: all the rest waits for it.
    Confirms,
    /// What is written.
    Writes,
    /// What former owners have left to be written.
    Found,
}

impl Part {
    pub(crate) fn share(self) -> Share {
        match self {
            Part::MayChange { .. } => Share::Rights,
            Part::Schema { .. } | Part::Text { .. } | Part::Change(_) => Share::Plans,
            Part::Modes | Part::Rules => Share::Looks,
            Part::Read { .. } => Share::Reads,
            Part::Name { .. } => Share::Names,
            Part::Record { .. } | Part::Opening { .. } | Part::Low { .. } | Part::Nothing => {
                Share::Records
            }
            Part::Confirm(_) => Share::Confirms,
            Part::Write { write: OneWrite::Own { .. }, .. }
            | Part::Alone { .. }
            | Part::Passed { .. } => Share::Writes,
            Part::Write { write: OneWrite::Found { .. }, .. } => Share::Found,
        }
    }

    /// The client whose it is, of kinds of which one client alone could take all there may be.
    pub(crate) fn who(self) -> Option<Who> {
        match self {
            Part::Schema { who, .. } | Part::Text { who, .. } => Some(who),
            Part::Read { who, .. } | Part::Record { who, .. } => Some(who),
            Part::Alone { who, .. } | Part::Passed { who, .. } | Part::Name { who, .. } => {
                Some(who)
            }
            Part::Write { write: OneWrite::Own { .. }, who } => Some(who),
            _ => None,
        }
    }
}

impl Share {
    pub(crate) const COUNT: usize = 9;

    /// Statements of this kind in flight at once, on one core.
    pub(crate) const fn most(self) -> usize {
        match self {
            Share::Rights => 256,
            // A half is as much as a transaction over a hundred tables asks at once.
            Share::Plans => 640,
            Share::Looks => 8,
            // One is under way, or one for each of two memberships.
            Share::Confirms => 2,
            Share::Reads => 768,
            // A half is as much as a transaction over a hundred tables asks at once, of each its id
            // and its columns.
            Share::Names => 512,
            Share::Records => 256,
            Share::Writes => 384,
            Share::Found => 256,
        }
    }

    /// Of these, those of one client: a half.
    pub(crate) const fn most_of_one(self) -> usize {
        self.most() / 2
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
