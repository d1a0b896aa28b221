//! Transactions in the syntax of Cassandra 6 (Accord's): from text to a plan that can be executed
//! statement by statement.
//!
//! ```text
//! BEGIN TRANSACTION
//!   LET v = (SELECT a, b FROM t WHERE k = ?);          -- any number of them: one row each
//!   SELECT v.a, v.b;                                   -- or SELECT .. FROM ..; or nothing
//!   IF v.a >= ? AND v.b IS NOT NULL THEN               -- or without IF and END IF
//!     UPDATE t SET a = a - ? WHERE k = ?;              -- any number of INSERT, UPDATE and DELETE
//!     INSERT INTO u (k, c) VALUES (?, v.b);
//!   END IF
//! COMMIT TRANSACTION
//! ```
//!
//! 1. [`parse`] reads the text and checks everything visible in it: [`Transaction`] has the
//!    statements, each with its place in the text and its bind markers, the conditions, and the
//!    place where each of the client's markers is used.
//! 2. [`Transaction::check`] checks the keys of the tables: each `LET` reads one row, each write
//!    names one.
//! 3. [`Inner::standalone`] is the text of a single statement for a node to prepare: a marker
//!    replaces each reference to a row. [`Inner::computed`] also has a marker for each assignment
//!    such as `a = a - 1`, which nodes support only for counters and collections, and for each
//!    value that would differ at another execution (`now()`). The node reports the types of a
//!    statement's markers, and of the columns that a `LET` reads.
//! 4. [`Condition::prepare`] and [`SelfAssignment::prepare`] take these types; their results are
//!    evaluated over the current rows.
//!
//! The rules are those of Cassandra's `Parser.g`, `TransactionStatement` and the classes in
//! `cql3/transactions`, including messages. Refused in addition: `INSERT JSON` and `IN` for a
//! partition key, because a key must be known before any read; conditions without a write; and
//! transactions beyond [`STATEMENTS_MAX`] and [`TEXT_BYTES_MAX`].
//!
//! [`guard`] removes the names of locks from a single statement or a batch; [`mode`] parses the
//! `ALTER TABLE` that sets a table's transactional mode.

mod condition;
pub mod guard;
mod keys;
pub mod mode;
mod place;
mod rules;
mod self_assignment;
mod standalone;
#[cfg(test)]
mod tests;

pub use crate::ast::{
    CallValue, ClientMarker, Condition, Inner, Marker, MarkerPlace, MarkerSource, Reference,
    Returned, SelfAssignment, Test, Transaction, ValuePart,
};
pub use condition::{PreparedCondition, PreparedReference};
pub use keys::{OneRow, TableKeys, Tables};
pub use self_assignment::PreparedSelfAssignment;
pub use standalone::{Computed, ComputedMarker, is_pure};

use crate::ast::{Mutation, Statement};
use crate::error::{InvalidRequest, Refusal};
use crate::parser;
use place::at_reference;

/// Most statements of one transaction: those of `LET`, the returned one and those that write.
pub const STATEMENTS_MAX: usize = 100;
/// Most rows that the `SELECT` of a transaction may return.
pub const ROWS_MAX: usize = 100;
/// Most bind markers of a transaction, because each is searched for.
pub const MARKERS_MAX: usize = 4_096;
/// Longest text of a transaction.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Parses a transaction.
///
/// # Errors
/// If the text is not a transaction, or invalid for any tables. The message names the part and its
/// place.
pub fn parse(text: &str) -> Result<Transaction, Refusal> {
    read(text, parser::transaction)
}

/// Parses `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `TRUNCATE`, or `BEGIN BATCH .. APPLY BATCH` of
/// the writes among them, as a transaction of that alone. The table's mode decides whether a single
/// statement may have conditions and a time to live, and whether it may be a `TRUNCATE`:
/// [`Transaction::check_alone`].
///
/// # Errors
/// If the text is none of these, or cannot be a transaction: no explicit timestamps, and no
/// conditions and TTLs in a batch.
pub fn parse_alone(text: &str) -> Result<Transaction, Refusal> {
    read(text, parser::alone)
}

fn read(
    text: &str,
    rule: impl Fn(&str, usize) -> Result<Transaction, Refusal>,
) -> Result<Transaction, Refusal> {
    if text.len() > TEXT_BYTES_MAX {
        let bytes = text.len();
        let message = format!("a transaction has {bytes} bytes; the limit is {TEXT_BYTES_MAX}");
        return Err(InvalidRequest::new(message).into());
    }
    let transaction = rule(text, STATEMENTS_MAX)?;
    rules::check(&transaction, text)?;
    Ok(transaction)
}

impl Transaction {
    /// Name of a statement in messages: `LET v at [2:12]`, with its line and character. A node's
    /// message about it follows.
    #[must_use]
    pub fn name_of(&self, statement: usize, text: &str) -> String {
        let Some(inner) = self.statements.get(statement) else { return "transaction".to_owned() };
        let name = match (self.lets.get(statement), &inner.statement) {
            (Some(row), _) => format!("LET {row}"),
            (None, Statement::Mutation(Mutation::Insert(_) | Mutation::InsertJson(_))) => {
                "INSERT".to_owned()
            }
            (None, Statement::Mutation(Mutation::Update(_))) => "UPDATE".to_owned(),
            (None, Statement::Mutation(Mutation::Delete(_))) => "DELETE".to_owned(),
            (None, Statement::Truncate(_)) => "TRUNCATE".to_owned(),
            _ => "SELECT".to_owned(),
        };
        format!("{name} {}", parser::shown_place(text, inner.range.start))
    }

    /// Checks that a single statement uses nothing reserved for
    /// [`mode::TransactionalMode::Conditional`].
    ///
    /// # Errors
    /// If it has conditions or a time to live, or is a `TRUNCATE`.
    pub fn check_alone(&self, text: &str) -> Result<(), InvalidRequest> {
        rules::check_alone(self, text)
    }

    /// Error for a reference to a column that the row lacks. Only the columns that a node returns
    /// for `SELECT *` reveal it.
    #[must_use]
    pub fn unknown_column(&self, reference: &Reference, text: &str) -> InvalidRequest {
        let (row, column) = (&reference.row, reference.column.as_deref().unwrap_or_default());
        at_reference(
            reference,
            text,
            &format!("Column '{column}' does not exist in tuple '{row}'."),
        )
    }

    /// References of the transaction: returned ones, those of conditions and those of statements,
    /// in order.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        let returned = match &self.returned {
            Returned::References(references) => &references[..],
            _ => &[],
        };
        let of_statements =
            self.statements.iter().flat_map(|inner| &inner.markers).filter_map(|marker| {
                let MarkerSource::Reference(reference) = &marker.source else { return None };
                Some(reference)
            });
        let of_conditions = self.conditions.iter().map(|condition| &condition.reference);
        returned.iter().chain(of_conditions).chain(of_statements)
    }
}
