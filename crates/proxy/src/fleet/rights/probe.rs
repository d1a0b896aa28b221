//! Probes of rights: statements by which a node decides on a right, and that do nothing.

use std::borrow::Cow;

use shunt_language::ast::quoted_name;
use shunt_language::lock_tables::Table;
use shunt_wire::cql::message::{Consistency, ErrorMessage, ResultMessage, error_code};

use super::right::Action;
use crate::fault::is_right_missing;
use crate::fleet::statements::Heard;

/// The meaning of a node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Granted,
    /// The role lacks the right, with the node's message.
    Refused(Box<str>),
    /// The node rejects the statement for another reason, such as a table that does not exist.
    Invalid(Box<str>),
    /// No node has decided, with the reason.
    Unknown(Box<str>),
}

/// A table's name with its keyspace.
pub(crate) fn qualified(keyspace: &str, table: &str) -> Box<str> {
    format!("{}.{}", quoted_name(keyspace), quoted_name(table)).into()
}

/// The statement that a node decides on: a SELECT without keys from a table of locks, a LIMIT that
/// no SELECT can have, or a row without a key.
pub(super) fn statement(action: &Action) -> Cow<'static, str> {
    match action {
        Action::UseLocks(Table::Locks) => "SELECT name FROM shunt.locks WHERE name IN ()".into(),
        Action::UseLocks(Table::FastLocks) => {
            "SELECT name FROM shunt.fast_locks WHERE name IN ()".into()
        }
        Action::UseLocks(Table::RwLocks) => {
            "SELECT name FROM shunt.rwlocks WHERE name IN ()".into()
        }
        Action::UseLocks(Table::FastRwLocks) => {
            "SELECT name FROM shunt.fast_rwlocks WHERE name IN ()".into()
        }
        Action::UseLocks(Table::LockQueue) => {
            "SELECT name FROM shunt.lock_queue WHERE name IN ()".into()
        }
        Action::Read(table) => format!("SELECT * FROM {table} LIMIT 0").into(),
        Action::Write(table) => write_to(table).into(),
    }
}

/// The consistency level of the statement. No replica takes part.
pub(super) fn level(action: &Action) -> Consistency {
    match action {
        Action::UseLocks(_) => Consistency::LOCAL_QUORUM,
        Action::Read(_) | Action::Write(_) => Consistency::LOCAL_ONE,
    }
}

/// A write to a table, by its qualified name, that a node refuses in any case.
pub(crate) fn write_to(table: &str) -> String {
    format!("INSERT INTO {table} JSON '{{}}'")
}

/// A column of which no table needs to know.
const COLUMN: &str = "shunt_asks_for_alter";

/// A change of a table, by its qualified name, that a node refuses in any case: no column can get
/// its own name.
pub(crate) fn alter(table: &str) -> String {
    format!("ALTER TABLE {table} RENAME {COLUMN} TO {COLUMN}")
}

/// True if an answer to [`alter`] shows the right to change the table: the node has found it, and
/// came as far as its columns, or allows no role to change those.
pub(crate) fn shows_alter(error: &ErrorMessage<'_>) -> bool {
    let starts = ["Column ", "Undefined column name ", "Cannot rename "];
    let names_column = starts.iter().any(|start| error.message.starts_with(start))
        && error.message.contains(COLUMN);
    error.code == error_code::INVALID
        && (names_column || error.message.contains(": ALTER TABLE changing columns is not allowed"))
}

/// Reads a node's answer. A node that does not know the table says so before it looks at rights.
pub(super) fn read_answer(heard: &Heard<'_>, action: &Action) -> Reading {
    let nothing_done = match action {
        Action::UseLocks(_) => None,
        Action::Read(_) => Some("LIMIT must be strictly positive"),
        Action::Write(_) => Some("Invalid null value"),
    };
    match heard {
        Heard::Result(ResultMessage::Rows(_)) if nothing_done.is_none() => Reading::Granted,
        Heard::Error(error) if is_right_missing(error.code, error.message) => {
            Reading::Refused(error.message.into())
        }
        Heard::Error(error) if error.code == error_code::INVALID => match nothing_done {
            Some(start) if error.message.starts_with(start) => Reading::Granted,
            _ => Reading::Invalid(error.message.into()),
        },
        Heard::Error(error) => {
            Reading::Unknown(format!("error {:#06x}: {}", error.code, error.message).into())
        }
        _ => Reading::Unknown("the answer does not fit the question".into()),
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::{ErrorDetails, encode};

    use super::*;

    fn reading(code: i32, message: &str, action: &Action) -> Reading {
        let mut body = Vec::new();
        encode::error(&mut body, code, message);
        let error = ErrorMessage::decode(4, &body).expect("an error");
        read_answer(&Heard::Error(error), action)
    }

    /// Only the one answer that shows the right grants it.
    #[test]
    fn a_right_is_granted_by_its_own_answer_and_no_other() {
        const INVALID: i32 = error_code::INVALID;
        let all = [
            Action::UseLocks(Table::Locks),
            Action::Read("ks.t".into()),
            Action::Write("ks.t".into()),
        ];
        let is_unknown = |reading: Reading| matches!(reading, Reading::Unknown(_));
        for action in &all {
            let missing = reading(error_code::UNAUTHORIZED, "User ann has no SELECT", action);
            assert_eq!(missing, Reading::Refused("User ann has no SELECT".into()));
            for (code, message) in [
                (error_code::UNAUTHORIZED, "Unable to perform authorization"),
                (error_code::OVERLOADED, "Invalid null value"),
                (error_code::SERVER_ERROR, "LIMIT must be strictly positive"),
                (error_code::SYNTAX_ERROR, "LIMIT must be strictly positive"),
            ] {
                assert!(is_unknown(reading(code, message, action)), "{message}");
            }
            let invalid = reading(INVALID, "table t does not exist", action);
            assert_eq!(invalid, Reading::Invalid("table t does not exist".into()));
            assert!(is_unknown(read_answer(&Heard::Unreadable, action)));
            assert!(is_unknown(read_answer(&Heard::Result(ResultMessage::Void), action)));
        }
        let limit = |action: &Action| reading(INVALID, "LIMIT must be strictly positive", action);
        let null = |action: &Action| reading(INVALID, "Invalid null value in condition", action);
        let granted = |reading: Reading| reading == Reading::Granted;
        assert_eq!(all.each_ref().map(|action| granted(limit(action))), [false, true, false]);
        assert_eq!(all.each_ref().map(|action| granted(null(action))), [false, false, true]);
    }
    #[test]
    fn the_right_to_change_a_table_is_shown_by_an_error_behind_it_and_no_other() {
        let shows = |code, message: &str| {
            shows_alter(&ErrorMessage { code, message, details: ErrorDetails::None })
        };
        for granted in [
            "Column shunt_asks_for_alter was not found in table ks.t",
            "Undefined column name shunt_asks_for_alter in table ks.t",
            "Cannot rename unknown column shunt_asks_for_alter in keyspace t",
            "Cannot rename non PRIMARY KEY column shunt_asks_for_alter",
            "Guardrail alter_table violated: ALTER TABLE changing columns is not allowed",
        ] {
            assert!(shows(error_code::INVALID, granted), "{granted}");
            for code in [error_code::UNAUTHORIZED, error_code::SERVER_ERROR] {
                assert!(!shows(code, granted), "{code:#x} {granted}");
            }
        }
        for other in [
            "Table 'ks.t' doesn't exist",
            "unconfigured table in: ALTER TABLE t RENAME shunt_asks_for_alter TO shunt_asks_for_alter",
            "Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead",
        ] {
            assert!(!shows(error_code::INVALID, other), "{other}");
        }
        assert!(!shows(error_code::UNAUTHORIZED, "User ann has no ALTER permission"));
    }
}
