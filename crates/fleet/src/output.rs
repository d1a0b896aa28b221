//! Outputs of a member: statements, posts to the cores that keep locks, and news of the fleet.

use std::fmt;

use crate::columns::BadRow;
use crate::ids::{Incarnation, Shard, View};
use crate::refusal::Refusal;
use crate::statement::Statement;

/// Number of a statement, in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementId(pub u64);

/// Receiver of outputs, in order.
pub trait Sink {
    /// Takes one output.
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
/// A late post is as safe as an immediate one. Of two posts the later counts, also if it shortens
/// the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasePost {
    /// Membership of this process.
    pub incarnation: Incarnation,
    /// Epoch of the view.
    pub epoch: i64,
    /// End of the lease on the boot-time clock; 0 ends it.
    pub valid_until_ns: u64,
    /// Tokens are below this, in microseconds.
    pub ts_limit_us: i64,
}

/// A shard that this member has gained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// The shard.
    pub shard: Shard,
    /// This member has owned it since this epoch, or an earlier one.
    pub epoch: i64,
    /// Floor of its tokens, exclusive, in microseconds: no earlier owner can have granted a higher
    /// one.
    pub ts_floor_us: i64,
    /// Memory locks are granted only from this boot time on; 0 is at once.
    pub memory_grace_until_ns: u64,
}

/// A live member as clients and other members see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The member's incarnation.
    pub incarnation: Incarnation,
    /// Address of the member.
    pub address: String,
    /// The member is about to stop.
    pub leaving: bool,
}

/// Output of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a statement. The caller returns its outcome with its number; after the deadline the
    /// member no longer waits for it.
    Send {
        /// Number of the statement.
        id: StatementId,
        /// The statement.
        statement: Statement,
        /// Deadline on the boot-time clock.
        deadline_ns: u64,
        /// Rises with each failure: another number asks for another coordinator.
        coordinator: u32,
    },
    /// For all cores.
    Lease(LeasePost),
    /// For the shard's core: it may grant, within these bounds.
    Gain(Gain),
    /// For the shard's core: it must stop granting, finish the work it has begun and call
    /// [`crate::Member::drained`] with this number.
    Drain {
        /// The shard.
        shard: Shard,
        /// Number of the drain: an answer to an earlier one may still be on its way.
        number: u64,
    },
    /// For the shard's core: the shard stays this member's after all, and its state remains valid.
    Resume(Shard),
    /// For the shard's core: the shard has another owner now, or none.
    Lost {
        /// The shard.
        shard: Shard,
        /// Epoch by which this is known.
        epoch: i64,
    },
    /// Live members.
    Peers(Vec<Peer>),
    /// A new view.
    Owners {
        /// Epoch of the view.
        epoch: i64,
        /// Owners of all shards.
        view: Box<View>,
    },
    /// Finish the work that this dead member left undone, then call [`crate::Member::redone`].
    Redo(Incarnation),
    /// An operator has told this member to leave, which it does; the process should stop as well.
    ToldToLeave,
    /// Entry for the log.
    Event(Event),
    /// Alarm for the operator.
    Alarm(Alarm),
    /// The membership is over. This is the last output; a new membership needs a new incarnation.
    Ended(End),
}

/// Entry for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This proxy is a member.
    Joined,
    /// The lease ended before it could be renewed.
    LeaseLapsed,
    /// The lease was renewed after that.
    LeaseBack,
    /// This member declared another dead.
    DeclaredDead {
        /// The dead member.
        incarnation: Incarnation,
        /// Address of the member.
        address: String,
        /// Number of its shards.
        shards: usize,
    },
    /// This member changed the view.
    ViewChanged {
        /// New epoch.
        epoch: i64,
        /// Number of shards that changed hands.
        moved: usize,
        /// The owners were dead, or absent.
        taken_over: bool,
    },
    /// This member sealed a dead one.
    Sealed(Incarnation),
    /// This member raised the format of all rows.
    FormatRaised(i32),
}

/// Alarm for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarm {
    /// Fences are, or will be, this far above this host's wall clock, in microseconds.
    FencesAhead(i64),
    /// A statement failed; reported once for each text.
    StatementFailed(String),
    /// A row is invalid.
    Unreadable(BadRow),
    /// Two live members have one address for clients.
    SameAddress {
        /// The two; this member first, if it is one of them.
        incarnations: [Incarnation; 2],
        /// Address of both.
        address: String,
    },
    /// A view names a member without a row, which must have been deleted from outside.
    MissingMember(Incarnation),
    /// A shard was taken from this member while it lived.
    ShardTaken(Shard),
    /// The fleet's row went back to an earlier epoch: it was restored or rewritten from outside.
    EpochBack {
        /// Known epoch.
        known: i64,
        /// Epoch just read.
        read: i64,
    },
}

/// End of a membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The proxy may not be a member.
    Refused(Refusal),
    /// Others declared it dead, or its row is gone.
    Dead,
    /// The proxy was asked to stop, and has handed over all it could.
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
            Alarm::Unreadable(bad) => write!(f, "{bad}: find out which client wrote to shunt_meta"),
            Alarm::MissingMember(incarnation) => {
                write!(
                    f,
                    "the fleet's row gives shards to {incarnation}, of whom there is no row: see who removed it"
                )
            }
            Alarm::SameAddress { incarnations: [one, other], address } => write!(
                f,
                "two live members, {one} and {other}, have the address {address}: requests for \
                the locks of one reach the \
                 other, which refuses them. Give each proxy a different address (--advertise), and stop one of the two"
            ),
            Alarm::ShardTaken(shard) => {
                write!(
                    f,
                    "shard {shard} was taken from this proxy: find out which client wrote to \
                    shunt_meta"
                )
            }
            Alarm::EpochBack { known, read } => write!(
                f,
                "the fleet's row is at epoch {read} after {known}: it was restored or rewritten; stop all proxies before \
                 doing so"
            ),
        }
    }
}
