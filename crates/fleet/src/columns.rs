//! Values of one row as a node sent them, found by column name, with checks of types, ranges and
//! lengths.

use std::fmt;

use crate::ids::{Incarnation, SHARDS, Shard, View};

/// Timestamps above this (the year 74,000) leave no room for arithmetic and are refused.
pub const TIMESTAMP_MAX_US: i64 = i64::MAX / 4;

/// One column of one row of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// Name of the column.
    pub name: &'a str,
    /// Value as serialised by Cassandra, protocol v3 and later; `None` is null.
    pub value: Option<&'a [u8]>,
}

/// An invalid column of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Name of the table.
    pub table: &'static str,
    /// Name of the column.
    pub column: &'static str,
    /// Fault of the value.
    pub why: &'static str,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row of {} cannot be used: {} {}", self.table, self.column, self.why)
    }
}

/// The columns of one row.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) table: &'static str,
    pub(crate) columns: &'a [Column<'a>],
}

impl<'a> Columns<'a> {
    pub(crate) fn bad(&self, column: &'static str, why: &'static str) -> BadRow {
        BadRow { table: self.table, column, why }
    }

    fn value(&self, name: &'static str) -> Result<&'a [u8], BadRow> {
        let column = self.columns.iter().find(|column| column.name == name);
        column.ok_or(self.bad(name, "is missing"))?.value.ok_or(self.bad(name, "is null"))
    }

    fn fixed<const N: usize>(&self, name: &'static str) -> Result<[u8; N], BadRow> {
        self.value(name)?.try_into().map_err(|_| self.bad(name, "has the wrong length"))
    }

    pub(crate) fn boolean(&self, name: &'static str) -> Result<bool, BadRow> {
        Ok(self.fixed::<1>(name)?[0] != 0)
    }

    pub(crate) fn tinyint(&self, name: &'static str) -> Result<i8, BadRow> {
        Ok(i8::from_be_bytes(self.fixed(name)?))
    }

    /// Reads an `int` of at least `min`.
    pub(crate) fn int(&self, name: &'static str, min: i32) -> Result<i32, BadRow> {
        let value = i32::from_be_bytes(self.fixed(name)?);
        if value < min { Err(self.bad(name, "is too small")) } else { Ok(value) }
    }

    /// Reads a `bigint` of any value.
    pub(crate) fn bits(&self, name: &'static str) -> Result<i64, BadRow> {
        Ok(i64::from_be_bytes(self.fixed(name)?))
    }

    /// Reads a `bigint` that is a count or a time.
    pub(crate) fn bigint(&self, name: &'static str) -> Result<i64, BadRow> {
        match self.bits(name)? {
            value if value < 0 => Err(self.bad(name, "is negative")),
            value if value > TIMESTAMP_MAX_US => Err(self.bad(name, "is too large")),
            value => Ok(value),
        }
    }

    pub(crate) fn text(&self, name: &'static str, bytes_max: usize) -> Result<&'a str, BadRow> {
        let value = self.value(name)?;
        if value.len() > bytes_max {
            return Err(self.bad(name, "is too long"));
        }
        std::str::from_utf8(value).map_err(|_| self.bad(name, "is not UTF-8"))
    }

    pub(crate) fn uuid(&self, name: &'static str) -> Result<Incarnation, BadRow> {
        Ok(Incarnation(self.fixed(name)?))
    }

    /// Reads a `map<int, uuid>` from shards to their owners.
    pub(crate) fn owners(&self, name: &'static str) -> Result<View, BadRow> {
        let mut rest = self.value(name)?;
        let entries = self.take::<4>(name, &mut rest).map(i32::from_be_bytes)?;
        if !(0..=SHARDS as i32).contains(&entries) {
            return Err(self.bad(name, "has an impossible number of entries"));
        }
        let mut view = View::default();
        for _ in 0..entries {
            self.length(name, &mut rest, 4)?;
            let shard = i32::from_be_bytes(self.take(name, &mut rest)?);
            self.length(name, &mut rest, 16)?;
            let owner = Incarnation(self.take(name, &mut rest)?);
            let shard = Shard::try_from(shard).ok().filter(|shard| (*shard as usize) < SHARDS);
            let shard = shard.ok_or(self.bad(name, "names a shard that does not exist"))?;
            if view.owner(shard).is_some() {
                return Err(self.bad(name, "names a shard twice"));
            }
            view.give(shard, Some(owner));
        }
        if rest.is_empty() { Ok(view) } else { Err(self.bad(name, "is followed by other bytes")) }
    }

    fn length(&self, name: &'static str, rest: &mut &[u8], expected: i32) -> Result<(), BadRow> {
        if i32::from_be_bytes(self.take(name, rest)?) == expected {
            Ok(())
        } else {
            Err(self.bad(name, "has an entry of the wrong length"))
        }
    }

    fn take<const N: usize>(
        &self,
        name: &'static str,
        rest: &mut &[u8],
    ) -> Result<[u8; N], BadRow> {
        let (taken, left) =
            rest.split_first_chunk::<N>().ok_or(self.bad(name, "ends too early"))?;
        *rest = left;
        Ok(*taken)
    }
}
