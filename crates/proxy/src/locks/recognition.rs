//! Recognition of statements on the tables of locks among all statements of clients.

use shunt_language::InvalidRequest;
use shunt_language::lock_tables::{self, Statement};
use shunt_wire::cql::statement::{Identifier, Kind, Statement as Classified};

/// True if a statement may be on one of the tables. A full parse of its text then decides.
#[inline]
pub(crate) fn may_be_on_locks(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    match parsed.kind {
        Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate => {
            if parsed.table.is_none() {
                // The classifier did not reach the table's name, so the statement may be on any
                // table.
                return session == Some(lock_tables::KEYSPACE)
                    || mentions(text, lock_tables::KEYSPACE);
            }
            let session = session.map(Identifier::exact);
            let keyspace = parsed
                .keyspace
                .or_else(|| parsed.selected_table().and_then(|(keyspace, _)| keyspace));
            keyspace.or(session).is_some_and(|keyspace| keyspace.matches(lock_tables::KEYSPACE))
        }
        // A batch may have such a statement, and the classifier does not look into changes of the
        // schema.
        Kind::Batch | Kind::Ddl => {
            session == Some(lock_tables::KEYSPACE) || mentions(text, lock_tables::KEYSPACE)
        }
        Kind::Use | Kind::Transaction | Kind::Other => false,
    }
}

/// True if a word, or its beginning, occurs in a text.
fn mentions(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// True if a text has this word, and not only a longer one that contains it.
fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.any(|found| found.eq_ignore_ascii_case(word))
}

/// The plan of a statement, if it is on the tables of locks.
pub(crate) fn read(
    parsed: &Classified<'_>,
    session: Option<&str>,
    text: &str,
) -> Option<Result<Statement, InvalidRequest>> {
    if !may_be_on_locks(parsed, session, text) {
        return None;
    }
    if is_too_long(parsed, session, text) {
        return Some(Err(too_long(text)));
    }
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    parse(parsed, session, text)
}

/// The plan of a statement that may be on the tables of locks. Parses the text once.
///
/// A text that names one of the tables and cannot be parsed is an error. A node that can parse it
/// would take the lock for a row, and tell the client that it holds a lock that no proxy keeps.
fn parse(
    parsed: &Classified<'_>,
    session: Option<&str>,
    text: &str,
) -> Option<Result<Statement, InvalidRequest>> {
    match shunt_language::parse(text) {
        Ok(whole) => lock_tables::of_parsed(whole, session).transpose(),
        Err(error) => {
            names_a_table(parsed, session, text).then(|| Err(InvalidRequest::new(error.message)))
        }
    }
}

/// True if a text is on one of the tables, supported or not.
#[cold]
pub(crate) fn is_on_locks(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    if text.len() > TEXT_BYTES_MAX {
        return is_too_long(parsed, session, text);
    }
    parse(parsed, session, text).is_some()
}

/// Like `is_on_locks`, for a text of a BATCH. `budget` is the rest of [`TEXT_BYTES_MAX`] for all
/// its texts. A text beyond it is not parsed, and counts as on a table if it names one.
#[cold]
pub(crate) fn is_on_locks_in_batch(
    parsed: &Classified<'_>,
    session: Option<&str>,
    text: &str,
    budget: &mut ParseBudget,
) -> bool {
    match budget.covers(text) {
        true => parse(parsed, session, text).is_some(),
        false => names_a_table(parsed, session, text),
    }
}

/// Bytes that may still be parsed of the texts of a BATCH, which has hundreds of texts of any
/// length.
pub(crate) struct ParseBudget(usize);

impl ParseBudget {
    /// The budget of a BATCH whose texts may have this many bytes together.
    pub(crate) fn of_bytes(bytes: usize) -> ParseBudget {
        ParseBudget(bytes)
    }

    /// The budget of a BATCH on the tables of locks.
    pub(crate) fn of_locks() -> ParseBudget {
        ParseBudget(TEXT_BYTES_MAX)
    }

    /// Takes the bytes of a text from the budget. Returns false if too few are left.
    pub(crate) fn covers(&mut self, text: &str) -> bool {
        let left = self.0.checked_sub(text.len());
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// True if a text names one of the tables, or may do so.
fn names_a_table(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    if parsed.kind == Kind::Ddl {
        return lock_tables::may_change(text, session);
    }
    let mut tables = lock_tables::Table::ALL.iter().map(|table| table.name());
    if parsed.kind == Kind::Batch {
        // The text is not parsed: anything may stand between the parts of a name, comments too.
        return session == Some(lock_tables::KEYSPACE)
            || has_word(text, lock_tables::KEYSPACE) && tables.any(|table| has_word(text, table));
    }
    let table = parsed.table.or_else(|| parsed.selected_table().map(|(_, table)| table));
    table.is_none_or(|table| tables.any(|known| table.matches(known)))
}

/// Longest statement on the tables. The longest batch is shorter, with names of the usual length. A
/// longer statement is not parsed, because its parts would take many times its size and hold the
/// core up.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

fn is_too_long(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    text.len() > TEXT_BYTES_MAX && names_a_table(parsed, session, text)
}

pub(super) fn too_long(text: &str) -> InvalidRequest {
    let bytes = text.len();
    InvalidRequest::new(format!(
        "a statement on the tables of shunt has {bytes} bytes; the limit is {TEXT_BYTES_MAX}"
    ))
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::statement::classify;

    use super::*;

    #[test]
    fn texts_of_one_batch_are_parsed_up_to_the_bytes_of_one() {
        let filler = format!("/* shunt {} */ ALTER TABLE x.y WITH a = 1", " ".repeat(30_000));
        let lock = "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 9";
        let mut budget = ParseBudget::of_locks();
        let mut is_on_locks =
            |text: &str| is_on_locks_in_batch(&classify(text), None, text, &mut budget);
        assert!(is_on_locks(lock));
        for text in [&filler, &filler, &filler] {
            assert!(!is_on_locks(text));
        }
        // What is left is not enough for a third filler, and still is for a short text.
        assert!(is_on_locks(lock));
        let named = filler.replace("x.y", "shunt.locks");
        assert!(is_on_locks(&named), "no longer parsed, so that the name alone counts");
        let left = budget.0;
        assert!((1..filler.len()).contains(&left), "{left}");
    }
}
