//! Decides whether a statement may be sent twice while the fate of a first copy is unknown: in
//! transit, executed, or to be executed when a stalled node continues, long after the second copy
//! was answered.
//!
//! A statement must never count as repeatable if a second execution, at any time, could leave an
//! effect that one execution would not. Never repeatable are therefore:
//!
//! * statements not understood to their end, conditions, counters, functions (their value may
//!   differ);
//! * writes to a list that is not frozen: each execution puts the elements into new cells, or finds
//!   an element by its current position;
//! * JSON, which may name any column, and unknown tables or columns;
//! * values with a time to live: it begins when a node executes the write, so that an expired value
//!   could come back.
//!
//! Any other write may be repeated if its client gave a timestamp, because the write keeps its age
//! whenever it is executed. Otherwise a node stamps the write on execution, and a late copy would
//! overwrite or delete data acknowledged in the meantime.

use super::classification::{Kind, TEXT_BYTES_MAX};
use super::parser;
use super::setting::Setting;

/// Permission to send a statement a second time, in ascending order.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub enum Repeatable {
    /// Must not be repeated.
    Never,
    /// Repeatable if its message carries a default timestamp.
    WithTimestamp,
    /// Always repeatable: it reads, or has an explicit timestamp.
    Always,
}

/// Decides whether a statement may be sent twice. Always [`Repeatable::Never`] for a text longer
/// than [`TEXT_BYTES_MAX`]: reading it to its end would hold up all other work.
#[must_use]
pub fn repeatable(text: &str, setting: &dyn Setting) -> Repeatable {
    if text.len() > TEXT_BYTES_MAX {
        return Repeatable::Never;
    }
    let (statement, verdict) = parser::judged(text, setting);
    match statement.kind {
        _ if !verdict.repeatable || statement.conditional => Repeatable::Never,
        Kind::Select => Repeatable::Always,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch if verdict.stamped => {
            Repeatable::Always
        }
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch => Repeatable::WithTimestamp,
        Kind::Use | Kind::Ddl | Kind::Truncate | Kind::Transaction | Kind::Other => {
            Repeatable::Never
        }
    }
}
