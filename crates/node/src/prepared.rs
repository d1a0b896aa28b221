//! Prepared statements, limited in number and memory, so that no client takes it all.
//!
//! Beyond either limit the oldest is dropped; its users are told to prepare it again. A statement
//! that would displace a large part of the others is not prepared at all.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::error::CqlError;
use crate::limits;
use crate::statement::Statement;

/// The prepared statements described above.
#[derive(Default)]
pub(crate) struct PreparedStatements {
    by_id: HashMap<[u8; 16], Arc<Statement>>,
    /// In the order of their first preparation.
    order: VecDeque<[u8; 16]>,
    bytes: usize,
}

/// Approximate memory of a statement: mostly its literals and markers.
fn bytes_of(text: &str) -> usize {
    limits::PREPARED_STATEMENT_BYTES + text.len() * limits::PREPARED_BYTES_PER_CHARACTER
}

/// Refuses a text too long to be kept, before preparing it.
pub(crate) fn check(text: &str) -> Result<(), CqlError> {
    let (bytes, most) = (bytes_of(text), limits::PREPARED_BYTES_MAX / limits::PREPARED_SHARE);
    if bytes <= most {
        return Ok(());
    }
    let characters =
        (most - limits::PREPARED_STATEMENT_BYTES) / limits::PREPARED_BYTES_PER_CHARACTER;
    Err(CqlError::Invalid(format!(
        "a statement of {} bytes is too long to prepare; the limit is {characters}: bind its values",
        text.len()
    )))
}

impl PreparedStatements {
    pub(crate) fn find(&self, id: &[u8; 16]) -> Option<Arc<Statement>> {
        self.by_id.get(id).cloned()
    }

    /// Keeps a statement, replacing one with its id.
    pub(crate) fn keep(&mut self, statement: &Arc<Statement>) {
        // The same id means the same text.
        if self.by_id.insert(statement.id, Arc::clone(statement)).is_none() {
            self.order.push_back(statement.id);
            self.bytes += bytes_of(&statement.text);
        }
        while self.order.len() > limits::PREPARED_MAX || self.bytes > limits::PREPARED_BYTES_MAX {
            let Some(oldest) = self.order.pop_front().and_then(|id| self.by_id.remove(&id)) else {
                return;
            };
            self.bytes -= bytes_of(&oldest.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;
    use crate::schema::Schema;

    fn prepared(schema: &Schema, text: &str) -> Arc<Statement> {
        Arc::new(Statement::prepare(text, Some("k"), schema, 0).expect("a statement"))
    }

    fn schema() -> Schema {
        let keyspace = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        let table = "CREATE TABLE k.t (p int, c int, m map<int, int>, PRIMARY KEY (p, c))";
        crate::schema::tests::after(&Schema::empty(), &[keyspace.to_owned(), table.to_owned()])
    }

    /// The values of literals take more memory than their text, but no more than is counted.
    #[test]
    fn statements_take_no_more_memory_than_is_counted() {
        let schema = schema();
        let (ones, markers) = (vec!["1"; 20_000].join(","), vec!["?"; 20_000].join(","));
        let pairs = vec!["1:1"; 20_000].join(",");
        for text in [
            "SELECT * FROM t WHERE p = ? AND c = ?".to_owned(),
            format!("SELECT c FROM t WHERE p IN ({ones})"),
            format!("SELECT c FROM t WHERE p IN ({markers})"),
            format!("INSERT INTO t (p, c, m) VALUES (1, 1, {{{pairs}}})"),
        ] {
            let mut kept = None;
            let taken = measure(|| kept = Some(prepared(&schema, &text))).bytes_current;
            let counted = bytes_of(&text);
            assert!(
                taken <= counted as i64,
                "{taken} bytes, counted {counted}: {} characters",
                text.len()
            );
        }
    }

    #[test]
    fn the_oldest_statements_are_forgotten_beyond_the_bound_in_bytes() {
        let schema = schema();
        let mut kept = PreparedStatements::default();
        let comment =
            "x".repeat(limits::PREPARED_BYTES_MAX / limits::PREPARED_BYTES_PER_CHARACTER / 10);
        let statements: Vec<_> = (0..15)
            .map(|number| {
                prepared(&schema, &format!("SELECT c FROM t WHERE p = {number} /* {comment} */"))
            })
            .collect();
        assert!(check(&statements[0].text).is_ok());
        assert!(check(&comment.repeat(2)).is_err(), "one takes no large part of all");
        for statement in &statements {
            kept.keep(statement);
            kept.keep(statement);
        }
        let there: Vec<bool> =
            statements.iter().map(|statement| kept.find(&statement.id).is_some()).collect();
        assert_eq!(there.iter().filter(|there| **there).count(), 9);
        assert!(
            there.is_sorted() && kept.bytes <= limits::PREPARED_BYTES_MAX && kept.order.len() == 9
        );
    }
}
