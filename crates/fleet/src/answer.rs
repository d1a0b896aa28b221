//! Decoding of a node's answer according to its statement.

use crate::columns::{BadRow, Column, Columns};
use crate::ids::{Incarnation, Shards, View};
use crate::schema::{FORMAT, FORMAT_MIN};
use crate::statement::{Level, Statement};

/// Rows of `member` that are read; an answer with more is refused.
pub const MEMBER_ROWS_MAX: usize = 4096;
/// Longest address of a member, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

const FLEET: &str = "shunt_meta.fleet";
const MEMBER: &str = "shunt_meta.member";

/// A row of `shunt_meta.fleet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRow {
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
    /// Number of changes of ownership.
    pub epoch: i64,
    /// Owners of all shards.
    pub view: View,
    /// Tokens of shards that change hands are above this, in microseconds.
    pub ts_floor_us: i64,
    /// Shards whose memory locks had run out when their last owner handed them over in order.
    pub handed_over: Shards,
}

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The member may have a lease.
    Live = 1,
    /// The member has no lease and will never have one again.
    Dead = 2,
    /// All work that the member began is done; its later writes have no effect.
    Sealed = 3,
}

impl State {
    /// Name of the state for operators, given the row's `leaving`: a declaration of death clears
    /// that, so that members which left by themselves stay distinguishable.
    pub fn word(self, leaving: bool) -> &'static str {
        match (self, leaving) {
            (State::Live, false) => "live",
            (State::Live, true) => "leaving",
            (State::Dead, _) => "dead",
            (State::Sealed, true) => "left",
            (State::Sealed, false) => "sealed",
        }
    }
}

/// A row of `shunt_meta.member`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    /// The member's incarnation.
    pub incarnation: Incarnation,
    /// Address for clients and other members.
    pub address: String,
    /// State of the member.
    pub state: State,
    /// Number of lease renewals.
    pub beat: i64,
    /// Limit of its tokens, exclusive, in microseconds.
    pub ts_limit_us: i64,
    /// Newest format that it knows. The row itself has the fleet's.
    pub format: i32,
    /// The member is about to stop.
    pub leaving: bool,
}

/// Outcome of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The condition held, and the write was done.
    Applied,
    /// The condition did not hold. (A node returns only the condition's columns, so the row is read
    /// afterwards.)
    NotApplied,
    /// The fleet's row, if it has one.
    Fleet(Option<Box<FleetRow>>),
    /// The rows of all members.
    Members {
        /// Valid rows.
        rows: Vec<MemberRow>,
        /// Invalid rows. Their members are never declared dead.
        unreadable: Vec<(Incarnation, BadRow)>,
    },
    /// The row of one member, if it has one.
    Member(Option<Box<MemberRow>>),
    /// The fleet's row names a format that this version does not know. No other column is read.
    UnknownFormat(i32),
    /// The answer is invalid.
    Unreadable(BadRow),
    /// No answer, or one that leaves open whether the statement was or will be carried out.
    Timeout,
    /// A node's error, with its text. The statement counts as possibly carried out.
    Failed(String),
}

impl Statement {
    /// Decodes the rows that answered this statement. Never panics, whatever they hold.
    pub fn read_answer(&self, rows: &[&[Column<'_>]]) -> Outcome {
        let read = match self {
            Statement::ReadFleet { .. } => {
                rows.first().map_or(Ok(Outcome::Fleet(None)), |row| fleet(row))
            }
            Statement::ReadMembers { .. } => member_rows(rows),
            Statement::ReadMember(_) => rows
                .first()
                .map(|row| member_row(row).map(Box::new))
                .transpose()
                .map(Outcome::Member),
            _ => applied(rows),
        };
        read.unwrap_or_else(Outcome::Unreadable)
    }
}

fn applied(rows: &[&[Column<'_>]]) -> Result<Outcome, BadRow> {
    let columns = Columns {
        table: "a conditional statement",
        columns: rows.first().copied().unwrap_or_default(),
    };
    Ok(if columns.boolean("[applied]")? { Outcome::Applied } else { Outcome::NotApplied })
}

/// Reads the format first: it determines the meaning of the rest.
fn fleet(row: &[Column<'_>]) -> Result<Outcome, BadRow> {
    let format = Columns { table: FLEET, columns: row }.int("format", 1)?;
    if !(FORMAT_MIN..=FORMAT).contains(&format) {
        return Ok(Outcome::UnknownFormat(format));
    }
    fleet_row(row).map(|row| Outcome::Fleet(Some(Box::new(row))))
}

fn fleet_row(row: &[Column<'_>]) -> Result<FleetRow, BadRow> {
    let columns = Columns { table: FLEET, columns: row };
    let level = Level::from_name(columns.text("serial", 64)?);
    Ok(FleetRow {
        format: columns.int("format", 1)?,
        level: level.ok_or(columns.bad("serial", "is neither SERIAL nor LOCAL_SERIAL"))?,
        datacentre: columns.text("dc", 256)?.to_owned(),
        max_ttl_ms: columns.int("max_ttl_ms", 1)?,
        lease_ms: columns.int("lease_ms", 1)?,
        epoch: columns.bigint("view_epoch")?,
        view: columns.owners("owners")?,
        ts_floor_us: columns.bigint("ts_floor")?,
        handed_over: Shards::from_bits(columns.bits("handed_over")?),
    })
}

fn member_rows(rows: &[&[Column<'_>]]) -> Result<Outcome, BadRow> {
    if rows.len() > MEMBER_ROWS_MAX {
        return Err(BadRow { table: MEMBER, column: "inc", why: "is there too often" });
    }
    let (mut good, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        let incarnation = Columns { table: MEMBER, columns: row }.uuid("inc")?;
        match member_row(row) {
            Ok(row) => good.push(row),
            Err(bad) => unreadable.push((incarnation, bad)),
        }
    }
    Ok(Outcome::Members { rows: good, unreadable })
}

fn member_row(row: &[Column<'_>]) -> Result<MemberRow, BadRow> {
    let columns = Columns { table: MEMBER, columns: row };
    let state = match columns.tinyint("state")? {
        1 => State::Live,
        2 => State::Dead,
        3 => State::Sealed,
        _ => return Err(columns.bad("state", "is none of 1 (live), 2 (dead) and 3 (sealed)")),
    };
    Ok(MemberRow {
        incarnation: columns.uuid("inc")?,
        address: columns.text("addr", ADDRESS_BYTES_MAX)?.to_owned(),
        state,
        beat: columns.bigint("beat")?,
        ts_limit_us: columns.bigint("ts_limit")?,
        format: columns.int("format", 1)?,
        leaving: columns.boolean("leaving")?,
    })
}
