//! Transactions in the syntax of Cassandra 6 (Accord's): from their text to a plan that whoever
//! executes it can follow statement by statement.
//!
//! ```text
//! BEGIN TRANSACTION
//!   LET v = (SELECT a, b FROM t WHERE k = ?);              -- any number of them: one row each
//!   SELECT v.a, v.b;                                       -- or SELECT .. FROM ..; or nothing
//!   IF v.a >= ? AND v.b IS NOT NULL THEN                   -- or without IF and END IF
//!     UPDATE t SET a = a - ? WHERE k = ?;                  -- any number of INSERT, UPDATE and DELETE
//!     INSERT INTO u (k, c) VALUES (?, v.b);
//!   END IF
//! COMMIT TRANSACTION
//! ```
//!
//! 1. [`parse`] reads the text and checks all that it shows: [`Transaction`] has the statements,
//!    each with its place in the text and its bind markers, the conditions, and for each marker of
//!    the client's the place that its value goes to.
//! 2. [`Transaction::check`] checks what takes the keys of the tables: each `LET` reads one row,
//!    each write names one.
//! 3. [`Inner::standalone`] is the text of a statement by itself, for a node to prepare: a marker
//!    stands where the text refers to a row. [`Inner::computed`] has one for each assignment such
//!    as `a = a - 1` besides, of which nodes know nothing but for counters and collections, and for
//!    each value that would be another if the statement were executed again (`now()`). The types of
//!    a statement's markers, and of the columns that a `LET` reads, are those that the node
//!    answers.
//! 4. [`Condition::prepare`] and [`SelfAssignment::prepare`] take these types; what they make is
//!    evaluated over the rows as they are.
//!
//! The rules are those of Cassandra's `Parser.g`, `TransactionStatement` and the classes in
//! `cql3/transactions`, their words too. What is refused besides: `INSERT JSON` and `IN` for a
//! partition key, because a key must be known before anything is read; conditions with nothing to
//! write; and what has more statements or bytes than [`STATEMENTS_MAX`] and [`TEXT_BYTES_MAX`].
//!
//! [`guard`] takes out of a single statement or a batch what names the lock that it relies on;
//! [`mode`] reads the `ALTER TABLE` that says whether a table takes part in transactions.

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

/// Most statements of one transaction: those of `LET`, that which is returned and those that write.
pub const STATEMENTS_MAX: usize = 100;
/// Most rows that the `SELECT` of a transaction may return.
pub const ROWS_MAX: usize = 100;
/// Most bind markers of a transaction: each is looked for among what is read.
pub const MARKERS_MAX: usize = 4_096;
/// Longest text of a transaction.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Reads a transaction.
///
/// # Errors
/// When the text is no transaction, or one that cannot be whatever the tables are. The message says
/// in which part, and where that is.
pub fn parse(text: &str) -> Result<Transaction, Refusal> {
    read(text, parser::transaction)
}

/// Reads `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `TRUNCATE`, or `BEGIN BATCH .. APPLY BATCH` of the
/// first three that write, as a transaction that is this alone. Whether a single statement may have
/// conditions and a time to live, and whether it may be a `TRUNCATE`, its table's mode says:
/// [`Transaction::check_alone`].
///
/// # Errors
/// When the text is none of these, or cannot be a transaction: one has no timestamps of its own,
/// nor conditions and TTLs in a batch.
pub fn parse_alone(text: &str) -> Result<Transaction, Refusal> {
    read(text, parser::alone)
}

fn read(
    text: &str,
    rule: impl Fn(&str, usize) -> Result<Transaction, Refusal>,
) -> Result<Transaction, Refusal> {
    if text.len() > TEXT_BYTES_MAX {
        let bytes = text.len();
        let message = format!("a transaction has {bytes} bytes: {TEXT_BYTES_MAX} are the most");
        return Err(InvalidRequest::new(message).into());
    }
    let transaction = rule(text, STATEMENTS_MAX)?;
    rules::check(&transaction, text)?;
    Ok(transaction)
}

impl Transaction {
    /// What a statement is called in messages: `LET v at [2:12]`, with its line and character. A
    /// node's message about it goes behind that.
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

    /// Checks that a single statement has nothing that only
    /// [`mode::TransactionalMode::Conditional`] takes.
    ///
    /// # Errors
    /// When it has conditions or a time to live, or is a `TRUNCATE`.
    pub fn check_alone(&self, text: &str) -> Result<(), InvalidRequest> {
        rules::check_alone(self, text)
    }

    /// What is wrong with a reference to a column that the row does not have. Only the columns that
    /// a node names for `SELECT *` can tell.
    #[must_use]
    pub fn unknown_column(&self, reference: &Reference, text: &str) -> InvalidRequest {
        let (row, column) = (&reference.row, reference.column.as_deref().unwrap_or_default());
        at_reference(
            reference,
            text,
            &format!("Column '{column}' does not exist in tuple '{row}'."),
        )
    }

    /// The references in it: those that are returned, those of conditions and those of statements,
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
