//! What a member wants done: statements, posts to the cores that keep locks, and what is to be
//! known of the fleet.

use std::fmt;

use crate::columns::BadRow;
use crate::ids::{Incarnation, Shard, View};
use crate::refusal::Refusal;
use crate::statement::Statement;

/// The number of a statement, in the order in which they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementId(pub u64);

/// Receives outputs, in order.
pub trait Sink {
    /// Takes one.
    fn put(&mut self, output: Output);
}

impl Sink for Vec<Output> {
    fn put(&mut self, output: Output) {
        self.push(output);
    }
}

/// The lease, for every core: it grants only while its own clock is below `valid_until_ns`, tokens
/// below `ts_limit_us`.
///
/// A post that comes late is as safe as one that comes at once. Of two posts the later counts, also
/// where it shortens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasePost {
    /// Whose it is: the membership of this process.
    pub incarnation: Incarnation,
    /// The view's epoch.
    pub epoch: i64,
    /// Boot-time clock; 0 ends the lease.
    pub valid_until_ns: u64,
    /// Tokens are below this, in microseconds.
    pub ts_limit_us: i64,
}

/// A shard that has become this member's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// Which.
    pub shard: Shard,
    /// Since this epoch, or earlier.
    pub epoch: i64,
    /// All its tokens are above this, in microseconds: no earlier owner can have granted one that
    /// is not below or equal.
    pub ts_floor_us: i64,
    /// Memory locks are granted only from then on, boot-time clock; 0 is at once.
    pub memory_grace_until_ns: u64,
}

/// A live member as clients and other members see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Who.
    pub incarnation: Incarnation,
    /// Where.
    pub address: String,
    /// It is about to stop.
    pub leaving: bool,
}

/// What a member wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A statement is to be sent. Its outcome is given back with its number; after the deadline it
    /// is not waited for.
    Send {
        /// Its number.
        id: StatementId,
        /// What is to be sent.
        statement: Statement,
        /// Boot-time clock.
        deadline_ns: u64,
        /// Rises with each failure: another number wants another coordinator.
        coordinator: u32,
    },
    /// For all cores.
    Lease(LeasePost),
    /// For the shard's core: it may grant, with what is said there.
    Gain(Gain),
    /// For the shard's core: it stops granting, ends what it has begun and says so, by
    /// [`crate::Member::drained`] with this number.
    Drain {
        /// Which.
        shard: Shard,
        /// Which drain, for an earlier one's answer may still be on its way.
        number: u64,
    },
    /// For the shard's core: it stays this member's after all, and all that is known of it holds.
    Resume(Shard),
    /// For the shard's core: it is another's now, or nobody's.
    Lost {
        /// Which.
        shard: Shard,
        /// The epoch by which this is known.
        epoch: i64,
    },
    /// All live members.
    Peers(Vec<Peer>),
    /// A view that was not known before.
    Owners {
        /// Its epoch.
        epoch: i64,
        /// Who owns what.
        view: Box<View>,
    },
    /// What this dead member left undone is to be done; [`crate::Member::redone`] says that it was.
    Redo(Incarnation),
    /// An operator has told this member to leave, which it does; the process is to stop as well.
    ToldToLeave,
    /// Something for the log.
    Event(Event),
    /// Something for the operator.
    Alarm(Alarm),
    /// The membership is over. Nothing comes after it; a new one needs a new incarnation.
    Ended(End),
}

/// Something for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This proxy is a member.
    Joined,
    /// The lease ended before it could be renewed.
    LeaseLapsed,
    /// It was renewed after that.
    LeaseBack,
    /// This member declared another dead.
    DeclaredDead {
        /// Which.
        incarnation: Incarnation,
        /// Where it was reached.
        address: String,
        /// How many shards it had.
        shards: usize,
    },
    /// This member changed the view.
    ViewChanged {
        /// Its new epoch.
        epoch: i64,
        /// How many shards changed hands.
        moved: usize,
        /// The owners were dead, or nobody.
        taken_over: bool,
    },
    /// This member sealed a dead one.
    Sealed(Incarnation),
    /// This member raised the format of all rows.
    FormatRaised(i32),
}

/// Something for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarm {
    /// Fences are, or will be, so far above this host's wall clock, in microseconds.
    FencesAhead(i64),
    /// A statement failed; told once for each text.
    StatementFailed(String),
    /// A row cannot be used.
    Unreadable(BadRow),
    /// Two members that live say that clients reach them at one address.
    SameAddress {
        /// Which; this member first, if it is one of them.
        incarnations: [Incarnation; 2],
        /// Where.
        address: String,
    },
    /// A view names somebody of whom there is no row: somebody removed it.
    MissingMember(Incarnation),
    /// A shard was taken from this member while it lived.
    ShardTaken(Shard),
    /// The fleet's row went back to an earlier epoch: somebody restored or rewrote it.
    EpochBack {
        /// As known.
        known: i64,
        /// As read.
        read: i64,
    },
}

/// How a membership ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It may not be a member.
    Refused(Refusal),
    /// Others declared it dead, or its row is gone.
    Dead,
    /// It was asked to stop, and has handed over all it could.
    Left,
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alarm::FencesAhead(ahead_us) => write!(
                f,
                "fences of the fleet are up to {} s ahead of this host's clock, and stay there: the clock of a member is or was \
                 ahead, or somebody wrote to shunt_meta. Locks are granted as before",
                ahead_us / 1_000_000
            ),
            Alarm::StatementFailed(text) => write!(f, "a statement on shunt_meta failed: {text}"),
            Alarm::Unreadable(bad) => write!(f, "{bad}: see who wrote to shunt_meta"),
            Alarm::MissingMember(incarnation) => {
                write!(
                    f,
                    "the fleet's row gives shards to {incarnation}, of whom there is no row: see who removed it"
                )
            }
            Alarm::SameAddress { incarnations: [one, other], address } => write!(
                f,
                "two live members, {one} and {other}, say that they are reached at {address}: requests for the locks of one come to the \
                 other and are refused. Give each proxy an address of its own (--advertise), and stop one of the two"
            ),
            Alarm::ShardTaken(shard) => {
                write!(f, "shard {shard} was taken from this proxy: see who wrote to shunt_meta")
            }
            Alarm::EpochBack { known, read } => write!(
                f,
                "the fleet's row is at epoch {read} after {known}: it was restored or rewritten; stop all proxies before \
                 doing so"
            ),
        }
    }
}
