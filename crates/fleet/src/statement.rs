//! Statements of a member: text, bind values in order, and consistency.
//!
//! The caller encodes the values as its protocol version requires. [`Statement::read_answer`]
//! decodes a node's answer according to the statement.

use crate::ids::{Incarnation, View};

/// Consistency levels of a fleet, fixed in its row.
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

/// Consistency levels of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consistencies {
    /// Level of the message. A linearizable read has the serial level here.
    pub consistency: Consistency,
    /// Serial level of a conditional statement.
    pub serial: Option<Consistency>,
}

/// A value to bind, to be encoded as the CQL type of the same name.
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
    /// Format of all rows.
    pub format: i32,
    /// Consistency levels of all statements.
    pub level: Level,
    /// Datacentre of the fleet; empty with [`Level::Serial`].
    pub datacentre: String,
    /// Longest time to live of a memory lock, in milliseconds.
    pub max_ttl_ms: i32,
    /// Lease of a member, in milliseconds.
    pub lease_ms: i32,
}

/// A row of `shunt_meta.fleet` after a change of ownership. Each change writes all of it, so that a
/// reader never sees parts of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewChange {
    /// Epoch that the change replaces. A row with another epoch refuses it for ever, because epochs
    /// only rise.
    pub epoch_seen: i64,
    /// Owners after the change.
    pub view: View,
    /// Tokens of gained shards are above this, in microseconds.
    pub ts_floor_us: i64,
    /// Set of [`crate::Shards`] handed over in order, as bits.
    pub handed_over: i64,
    /// Format of all rows.
    pub format: i32,
}

/// A statement on the tables of `shunt_meta`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Writes the fleet's first row (`shunt fleet init`).
    Found(NewFleet),
    /// Reads the fleet's row.
    ReadFleet {
        /// Settles statements in doubt before it answers.
        serial: bool,
    },
    /// Reads the rows of all members.
    ReadMembers {
        /// Settles statements in doubt before it answers.
        serial: bool,
    },
    /// Reads the row of one member, and settles statements in doubt first.
    ReadMember(Incarnation),
    /// Writes a member's first row.
    Join {
        /// The new member.
        incarnation: Incarnation,
        /// Address for clients and other members.
        address: String,
        /// Limit of its first tokens, exclusive, in microseconds.
        ts_limit_us: i64,
        /// Newest format that it knows.
        format: i32,
    },
    /// Renews a lease.
    Renew {
        /// The member.
        incarnation: Incarnation,
        /// Beat in the row; the next one is written.
        beat_seen: i64,
        /// Limit of its tokens, exclusive, in microseconds.
        ts_limit_us: i64,
        /// The member is about to stop and wants no shards. If false, the row's `leaving` stays
        /// unchanged: an operator may have set it to make the member leave.
        leaving: bool,
    },
    /// Tells a live member, through its row, to hand over its shards and leave (`shunt fleet
    /// drain`).
    TellToLeave(Incarnation),
    /// Declares a member dead: it can never renew its lease again.
    DeclareDead {
        /// The member.
        incarnation: Incarnation,
        /// Beat that it was last seen with. A member that renewed its lease since is not dead.
        beat_seen: i64,
    },
    /// States that all work a dead member left undone is done.
    Seal(Incarnation),
    /// Ends the membership of a member that owns nothing any more.
    Leave {
        /// The member.
        incarnation: Incarnation,
        /// Beat in its row.
        beat_seen: i64,
    },
    /// Removes the row of a sealed member.
    Purge(Incarnation),
    /// Changes the owners of shards.
    ChangeView(Box<ViewChange>),
}

impl Statement {
    /// Text with a `?` for each of [`Statement::values`]. Each kind of statement has one text,
    /// except [`Statement::Renew`], which has two.
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
                // A member that was told to leave and died has not left, and its row must show that
                // to those who wait for it.
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

    /// Values for the markers of [`Statement::text`], in order. `cluster` is the fleet's name.
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

    /// Consistency levels to send it with. A plain read may miss statements in doubt, which every
    /// use of it allows for.
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

    /// True if it has a condition, and so is answered with `[applied]`.
    pub fn is_conditional(&self) -> bool {
        !matches!(
            self,
            Statement::ReadFleet { .. } | Statement::ReadMembers { .. } | Statement::ReadMember(_)
        )
    }
}
