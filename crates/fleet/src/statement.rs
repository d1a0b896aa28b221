//! The statements that a member makes: their text, their bind values in order, and the consistency
//! they need.
//!
//! Nothing is encoded here: the caller writes the values as its protocol version wants them. What a
//! node answers is read by [`Statement::read_answer`], which knows the statement it was about.

use crate::ids::{Incarnation, View};

/// The consistency levels of a fleet, fixed in its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// SERIAL and QUORUM: agreement over all datacentres.
    Serial,
    /// LOCAL_SERIAL and LOCAL_QUORUM: agreement in the datacentre that the fleet's row names.
    LocalSerial,
}

impl Level {
    /// The text of the column `serial`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Serial => "SERIAL",
            Level::LocalSerial => "LOCAL_SERIAL",
        }
    }

    /// The level that a text names.
    pub fn from_name(name: &str) -> Option<Self> {
        [Level::Serial, Level::LocalSerial].into_iter().find(|level| level.name() == name)
    }

    fn quorum(self) -> Consistency {
        match self {
            Level::Serial => Consistency::Quorum,
            Level::LocalSerial => Consistency::LocalQuorum,
        }
    }

    fn serial(self) -> Consistency {
        match self {
            Level::Serial => Consistency::Serial,
            Level::LocalSerial => Consistency::LocalSerial,
        }
    }
}

/// A consistency level of the native protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// QUORUM
    Quorum,
    /// LOCAL_QUORUM
    LocalQuorum,
    /// SERIAL
    Serial,
    /// LOCAL_SERIAL
    LocalSerial,
}

/// How a statement is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consistencies {
    /// The level of the message. A read that is linearizable has the serial level here.
    pub consistency: Consistency,
    /// The serial level of a conditional statement.
    pub serial: Option<Consistency>,
}

/// A value to bind, to be written as the CQL type of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// `text`
    Text(&'a str),
    /// `int`
    Int(i32),
    /// `bigint`
    BigInt(i64),
    /// `boolean`
    Boolean(bool),
    /// `uuid`
    Uuid(Incarnation),
    /// `map<int, uuid>`: the entries of [`View::owned`]
    Owners(&'a View),
}

/// The fleet's row as `shunt fleet init` writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFleet {
    /// The format of all rows.
    pub format: i32,
    /// The levels of all statements.
    pub level: Level,
    /// The datacentre in which the fleet lives; empty with [`Level::Serial`].
    pub datacentre: String,
    /// The longest time to live of a memory lock, in milliseconds.
    pub max_ttl_ms: i32,
    /// The lease of a member, in milliseconds.
    pub lease_ms: i32,
}

/// A row of `shunt_meta.fleet` as a change of ownership leaves it. All of it is written by each
/// change, so that a reader never sees parts of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewChange {
    /// The epoch that the change replaces. Another epoch in the row refuses it, for ever, for
    /// epochs only rise.
    pub epoch_seen: i64,
    /// The owners after it.
    pub view: View,
    /// Tokens of gained shards are above this, in microseconds.
    pub ts_floor_us: i64,
    /// [`crate::Shards`] handed over in order, as bits.
    pub handed_over: i64,
    /// The format of all rows.
    pub format: i32,
}

/// A statement on the tables of `shunt_meta`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Writes the fleet's first row (`shunt fleet init`).
    Found(NewFleet),
    /// Reads the fleet's row.
    ReadFleet {
        /// Settles what is in doubt before it answers.
        serial: bool,
    },
    /// Reads the rows of all members.
    ReadMembers {
        /// Settles what is in doubt before it answers.
        serial: bool,
    },
    /// Reads the row of one member, and settles what is in doubt before.
    ReadMember(Incarnation),
    /// Writes a member's first row.
    Join {
        /// Who joins.
        incarnation: Incarnation,
        /// Where clients and other members reach it.
        address: String,
        /// Its first tokens are below this, in microseconds.
        ts_limit_us: i64,
        /// The newest format that it knows.
        format: i32,
    },
    /// Renews a lease.
    Renew {
        /// Whose lease.
        incarnation: Incarnation,
        /// The beat that is in the row; the next is written.
        beat_seen: i64,
        /// Its tokens are below this, in microseconds.
        ts_limit_us: i64,
        /// It is about to stop and wants no shards. Where this is not said, what the row says of it
        /// stays as it is: an operator may have written there that the member is to leave.
        leaving: bool,
    },
    /// Tells a live member to hand over what it has and leave (`shunt fleet drain`). It finds that
    /// in its row.
    TellToLeave(Incarnation),
    /// Says that a member is dead: it can never renew its lease again.
    DeclareDead {
        /// Who.
        incarnation: Incarnation,
        /// The beat that it was last seen with. A member that renewed its lease since is not dead.
        beat_seen: i64,
    },
    /// Says that all that a dead member left undone has been done.
    Seal(Incarnation),
    /// A member that owns nothing any more ends its own membership.
    Leave {
        /// Who.
        incarnation: Incarnation,
        /// The beat that is in its row.
        beat_seen: i64,
    },
    /// Removes the row of a sealed member.
    Purge(Incarnation),
    /// Changes who owns what.
    ChangeView(Box<ViewChange>),
}

impl Statement {
    /// The text with a `?` for each of [`Statement::values`]. The same for one kind of statement,
    /// of which [`Statement::Renew`] is two.
    pub fn text(&self) -> &'static str {
        match self {
            Statement::Found(_) => {
                "INSERT INTO shunt_meta.fleet (cluster, format, serial, dc, max_ttl_ms, lease_ms, view_epoch, owners, \
                 ts_floor, handed_over) VALUES (?, ?, ?, ?, ?, ?, 0, {}, 0, -1) IF NOT EXISTS"
            }
            Statement::ReadFleet { .. } => {
                "SELECT format, serial, dc, max_ttl_ms, lease_ms, view_epoch, owners, ts_floor, handed_over \
                 FROM shunt_meta.fleet WHERE cluster = ?"
            }
            Statement::ReadMembers { .. } => {
                "SELECT inc, addr, state, beat, ts_limit, format, leaving FROM shunt_meta.member WHERE cluster = ?"
            }
            Statement::ReadMember(_) => {
                "SELECT inc, addr, state, beat, ts_limit, format, leaving FROM shunt_meta.member \
                 WHERE cluster = ? AND inc = ?"
            }
            Statement::Join { .. } => {
                "INSERT INTO shunt_meta.member (cluster, inc, addr, state, beat, ts_limit, format, leaving) \
                 VALUES (?, ?, ?, 1, 0, ?, ?, false) IF NOT EXISTS"
            }
            Statement::Renew { leaving: true, .. } => {
                "UPDATE shunt_meta.member SET beat = ?, ts_limit = ?, leaving = true \
                 WHERE cluster = ? AND inc = ? IF state = 1 AND beat = ?"
            }
            Statement::Renew { leaving: false, .. } => {
                "UPDATE shunt_meta.member SET beat = ?, ts_limit = ? \
                 WHERE cluster = ? AND inc = ? IF state = 1 AND beat = ?"
            }
            Statement::TellToLeave(_) => {
                "UPDATE shunt_meta.member SET leaving = true WHERE cluster = ? AND inc = ? IF state = 1"
            }
            Statement::DeclareDead { .. } => {
                // Whoever was told to leave and died has not left, and its row says so to whoever
                // waits for that.
                "UPDATE shunt_meta.member SET state = 2, leaving = false WHERE cluster = ? AND inc = ? IF state = 1 AND beat = ?"
            }
            Statement::Seal(_) => {
                "UPDATE shunt_meta.member SET state = 3 WHERE cluster = ? AND inc = ? IF state = 2"
            }
            Statement::Leave { .. } => {
                "UPDATE shunt_meta.member SET state = 3 WHERE cluster = ? AND inc = ? IF state = 1 AND beat = ?"
            }
            Statement::Purge(_) => {
                "DELETE FROM shunt_meta.member WHERE cluster = ? AND inc = ? IF state = 3"
            }
            Statement::ChangeView(_) => {
                "UPDATE shunt_meta.fleet SET view_epoch = ?, owners = ?, ts_floor = ?, handed_over = ?, format = ? \
                 WHERE cluster = ? IF view_epoch = ?"
            }
        }
    }

    /// The values for the markers of [`Statement::text`], in order. `cluster` is the fleet's name.
    pub fn values<'a>(&'a self, cluster: &'a str) -> Vec<Value<'a>> {
        use Value::{BigInt, Int, Owners, Text, Uuid};
        match self {
            Statement::Found(row) => vec![
                Text(cluster),
                Int(row.format),
                Text(row.level.name()),
                Text(&row.datacentre),
                Int(row.max_ttl_ms),
                Int(row.lease_ms),
            ],
            Statement::ReadFleet { .. } | Statement::ReadMembers { .. } => vec![Text(cluster)],
            Statement::ReadMember(incarnation)
            | Statement::TellToLeave(incarnation)
            | Statement::Seal(incarnation)
            | Statement::Purge(incarnation) => vec![Text(cluster), Uuid(*incarnation)],
            Statement::Join { incarnation, address, ts_limit_us, format } => {
                vec![
                    Text(cluster),
                    Uuid(*incarnation),
                    Text(address),
                    BigInt(*ts_limit_us),
                    Int(*format),
                ]
            }
            Statement::Renew { incarnation, beat_seen, ts_limit_us, leaving: _ } => vec![
                BigInt(beat_seen.saturating_add(1)),
                BigInt(*ts_limit_us),
                Text(cluster),
                Uuid(*incarnation),
                BigInt(*beat_seen),
            ],
            Statement::DeclareDead { incarnation, beat_seen }
            | Statement::Leave { incarnation, beat_seen } => {
                vec![Text(cluster), Uuid(*incarnation), BigInt(*beat_seen)]
            }
            Statement::ChangeView(change) => vec![
                BigInt(change.epoch_seen.saturating_add(1)),
                Owners(&change.view),
                BigInt(change.ts_floor_us),
                BigInt(change.handed_over),
                Int(change.format),
                Text(cluster),
                BigInt(change.epoch_seen),
            ],
        }
    }

    /// The levels to send it with. A plain read may miss what is in doubt, which every use of it
    /// allows for.
    pub fn consistencies(&self, level: Level) -> Consistencies {
        match self {
            Statement::ReadFleet { serial: false } | Statement::ReadMembers { serial: false } => {
                Consistencies { consistency: level.quorum(), serial: None }
            }
            Statement::ReadFleet { .. }
            | Statement::ReadMembers { .. }
            | Statement::ReadMember(_) => {
                Consistencies { consistency: level.serial(), serial: None }
            }
            _ => Consistencies { consistency: level.quorum(), serial: Some(level.serial()) },
        }
    }

    /// Tells if it has a condition, and so is answered with `[applied]`.
    pub fn is_conditional(&self) -> bool {
        !matches!(
            self,
            Statement::ReadFleet { .. } | Statement::ReadMembers { .. } | Statement::ReadMember(_)
        )
    }
}
