//! Statements on the tables of locks, found among all that clients send.

use shunt_language::InvalidRequest;
use shunt_language::facade::{self, Statement};
use shunt_wire::cql::statement::{Identifier, Kind, Statement as Classified};

/// True if a statement may be on one of the tables. Its text is then read as a whole, which shows if it is.
#[inline]
pub(crate) fn may_be_facade(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    match parsed.kind {
        Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate => {
            let session = session.map(Identifier::exact);
            let keyspace = parsed.keyspace.or_else(|| parsed.selected_table().and_then(|(keyspace, _)| keyspace));
            keyspace.or(session).is_some_and(|keyspace| keyspace.matches(facade::KEYSPACE))
        }
        // Each of its statements may be.
        Kind::Batch => {
            session == Some(facade::KEYSPACE)
                || text.as_bytes().windows(facade::KEYSPACE.len()).any(|part| part.eq_ignore_ascii_case(b"shunt"))
        }
        Kind::Ddl | Kind::Use | Kind::Other => false,
    }
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
    facade::parse(text, session).transpose()
}

/// True if a text is on one of the tables, allowed or not.
#[cold]
pub(crate) fn is_on_locks(session: Option<&str>, text: &str) -> bool {
    !matches!(facade::parse(text, session), Ok(None))
}
