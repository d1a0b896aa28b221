//! Statements on the tables of locks, found among all that clients send.

use shunt_language::InvalidRequest;
use shunt_language::lock_tables::{self, Statement};
use shunt_wire::cql::statement::{Identifier, Kind, Statement as Classified};

/// True if a statement may be on one of the tables. Its text is then read as a whole, which shows
/// if it is.
#[inline]
pub(crate) fn may_be_facade(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    match parsed.kind {
        Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate => {
            if parsed.table.is_none() {
                // It comes late, or behind what is not understood, and may be any.
                return session == Some(lock_tables::KEYSPACE)
                    || mentions(text, lock_tables::KEYSPACE);
            }
            let session = session.map(Identifier::exact);
            let keyspace = parsed
                .keyspace
                .or_else(|| parsed.selected_table().and_then(|(keyspace, _)| keyspace));
            keyspace.or(session).is_some_and(|keyspace| keyspace.matches(lock_tables::KEYSPACE))
        }
        // Each statement of a batch may be; and a change of the schema is not looked at any closer
        // by the classifier.
        Kind::Batch | Kind::Ddl => {
            session == Some(lock_tables::KEYSPACE) || mentions(text, lock_tables::KEYSPACE)
        }
        Kind::Use | Kind::Transaction | Kind::Other => false,
    }
}

/// True if a word, or the beginning of one, stands anywhere in a text.
fn mentions(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// True if a word stands anywhere in a text, and no longer one that has it in it.
fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.any(|found| found.eq_ignore_ascii_case(word))
}

/// The plan of a statement, if it is one on the tables of locks.
pub(crate) fn read(
    parsed: &Classified<'_>,
    session: Option<&str>,
    text: &str,
) -> Option<Result<Statement, InvalidRequest>> {
    if !may_be_facade(parsed, session, text) {
        return None;
    }
    if is_too_long(parsed, session, text) {
        return Some(Err(too_long(text)));
    }
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    match lock_tables::parse(text, session) {
        Ok(None) => unreadable(parsed, session, text).map(Err),
        read => read.transpose(),
    }
}

/// True if a text is on one of the tables, allowed or not.
#[cold]
pub(crate) fn is_on_locks(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    if text.len() > TEXT_BYTES_MAX {
        return is_too_long(parsed, session, text);
    }
    match lock_tables::parse(text, session) {
        Ok(None) => unreadable(parsed, session, text).is_some(),
        _ => true,
    }
}

/// The error in a text that names one of the tables and cannot be parsed. A node that could parse
/// it would take a lock for a row, and tell a client that it holds a lock that no proxy keeps.
fn unreadable(
    parsed: &Classified<'_>,
    session: Option<&str>,
    text: &str,
) -> Option<InvalidRequest> {
    let error = shunt_language::parse(text).err()?;
    names_a_table(parsed, session, text).then(|| InvalidRequest::new(error.message))
}

/// True if one of the tables is named, or may be.
fn names_a_table(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    if parsed.kind == Kind::Ddl {
        return lock_tables::may_change(text, session);
    }
    let mut tables = lock_tables::Table::ALL.iter().map(|table| table.name());
    if parsed.kind == Kind::Batch {
        // It is not taken apart: anything may stand between the parts of a name, comments too.
        return session == Some(lock_tables::KEYSPACE)
            || has_word(text, lock_tables::KEYSPACE) && tables.any(|table| has_word(text, table));
    }
    let table = parsed.table.or_else(|| parsed.selected_table().map(|(_, table)| table));
    table.is_none_or(|table| tables.any(|known| table.matches(known)))
}

/// Bytes of a statement on the tables; a batch of as many as there may be is shorter too, with
/// names of the usual length. What is longer is not even read: its parts would take many times as
/// much, and hold the core up.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

fn is_too_long(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    text.len() > TEXT_BYTES_MAX && names_a_table(parsed, session, text)
}

pub(super) fn too_long(text: &str) -> InvalidRequest {
    let bytes = text.len();
    InvalidRequest::new(format!(
        "a statement on the tables of shunt has {bytes} bytes: {TEXT_BYTES_MAX} are the most"
    ))
}
