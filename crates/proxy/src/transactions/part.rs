//! Purposes of the proxy's own statements: the part of a transaction that gets the result.

use std::hash::{DefaultHasher, Hash, Hasher};

use shunt_fleet::Incarnation;
use shunt_topology::NodeId;
use shunt_transactions::catalogue::table_identity::IdentityKind;
use shunt_transactions::{Claim, Generation, Place, Position, TransactionId};

use crate::ids::PoolId;

/// The part of a transaction that a statement serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Planning reads about a keyspace or table.
    Schema { planning: u64, question: Question, who: Who },
    /// Planning has a text prepared, by its place.
    Text { planning: u64, place: u16, who: Who },
    /// A row is read.
    Read { job: u64, read: u16, who: Who },
    /// A single statement is written.
    Unlogged { id: TransactionId, who: Who },
    /// A single statement of a table with the mode `observe` is passed to a node unread.
    Passed { job: u64, who: Who },
    /// A record is written.
    Record { id: TransactionId, who: Who },
    /// A write is made.
    Write { write: OneWrite, who: Who },
    /// The table of a name, or its columns, is looked up.
    Name { number: u64, who: Who },
    /// A step of an opening.
    Opening { claim: Claim, part: OpeningPart },
    /// A low mark is written.
    Low { shard: u8, generation: Generation, low: Position },
    /// A read shows whether a membership of this proxy is alive.
    Confirm(Incarnation),
    /// Modes of tables are read.
    Modes(Poll),
    /// Rules of tables are read.
    Rules(Poll),
    /// A step of a change of a table's mode.
    Change(u64),
    /// A node says whether the login of a pool may change a table.
    MayChange { pool: PoolId, number: u64 },
    /// The result is ignored.
    Nothing,
}

/// One question for all modes, or all rules. Several may be unanswered at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Poll {
    /// The time at which it was sent.
    pub(crate) asked_ns: u64,
    /// The only node that it went to; none: any.
    pub(crate) node: Option<NodeId>,
}

/// One write of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OneWrite {
    /// A write of a transaction that this core carried out.
    Own { id: TransactionId, write: u16 },
    /// A write of a record that an opening found.
    Found { claim: Claim, place: Place, write: u16 },
}

impl OneWrite {
    /// Number of the write in its transaction.
    pub(crate) fn number(self) -> u16 {
        match self {
            OneWrite::Own { write, .. } | OneWrite::Found { write, .. } => write,
        }
    }
}

/// A waiter for the table of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityWaiter {
    /// A transaction that is about to be decided, and which of its tables it is.
    Job { number: u64, table: u16, what: IdentityKind },
    /// A write that is about to be sent.
    Write(OneWrite),
}

/// A statement that waits for room among the proxy's own statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    Write(OneWrite),
    /// A single statement, with this timestamp.
    Unlogged(TransactionId, i64),
    /// A statement that is passed to a node unread, by number.
    Passed(u64),
}

impl Parked {
    /// The part that it serves for this client.
    pub(crate) fn part(self, who: Who) -> Part {
        match self {
            Parked::Write(write) => Part::Write { write, who },
            Parked::Unlogged(id, _) => Part::Unlogged { id, who },
            Parked::Passed(job) => Part::Passed { job, who },
        }
    }
}

/// A client in the quotas of statements in flight: a hash of its name in
/// [`shunt_transactions::quotas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Who(pub(crate) u64);

impl Who {
    /// Former owners of shards, whose clients are unknown.
    pub(crate) const FORMER: Who = Who(0);

    pub(crate) fn of(name: &str) -> Who {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Who(hasher.finish())
    }
}

/// Kinds of parts, each with its own room among the proxy's own statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Share {
    /// Rights, of roles that may have none.
    Rights,
    /// Planning, and changes of modes.
    Plans,
    /// Modes and rules, which must not wait for one client's planning.
    Looks,
    /// Reads before anything is written.
    Reads,
    /// Tables of names.
    Names,
    /// Records and the log, for which other statements wait.
    Records,
    /// Confirmations, for which everything else waits.
    Confirms,
    /// Writes.
    Writes,
    /// Writes that former owners left.
    Found,
}

impl Part {
    pub(crate) fn share(self) -> Share {
        match self {
            Part::MayChange { .. } => Share::Rights,
            Part::Schema { .. } | Part::Text { .. } | Part::Change(_) => Share::Plans,
            Part::Modes(_) | Part::Rules(_) => Share::Looks,
            Part::Read { .. } => Share::Reads,
            Part::Name { .. } => Share::Names,
            Part::Record { .. } | Part::Opening { .. } | Part::Low { .. } | Part::Nothing => {
                Share::Records
            }
            Part::Confirm(_) => Share::Confirms,
            Part::Write { write: OneWrite::Own { .. }, .. }
            | Part::Unlogged { .. }
            | Part::Passed { .. } => Share::Writes,
            Part::Write { write: OneWrite::Found { .. }, .. } => Share::Found,
        }
    }

    /// The client of a part, for kinds that one client could fill up.
    pub(crate) fn who(self) -> Option<Who> {
        match self {
            Part::Schema { who, .. } | Part::Text { who, .. } => Some(who),
            Part::Read { who, .. } | Part::Record { who, .. } => Some(who),
            Part::Unlogged { who, .. } | Part::Passed { who, .. } | Part::Name { who, .. } => {
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
            // One a second of each, until a silent node's are given up.
            Share::Looks => 32,
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

    /// Statements of one client: a half.
    pub(crate) const fn most_of_one(self) -> usize {
        self.most() / 2
    }
}

/// A question of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The keyspace's replication.
    Keyspace,
    /// The keyspace's user-defined types.
    Types,
    /// Modes of its tables.
    Modes,
    /// The table at this place.
    Table(u16),
    /// The columns of a table.
    Columns(u16),
    /// The masked columns of a table.
    Masks(u16),
    /// Whether this proxy's own login may write to a table.
    MayWrite(u16),
}

/// A step of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpeningPart {
    /// The shard's row is read.
    Row,
    /// A generation is claimed.
    Claim,
    /// Earlier generations are sealed.
    Seal,
    /// A low mark is read.
    Low(Generation),
    /// Records are read.
    Page(Place),
    /// A record is written again.
    Record(Place),
}
