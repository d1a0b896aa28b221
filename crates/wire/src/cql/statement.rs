//! Reads from query text what routing must know: kind, table and partition key terms; and, when a
//! node is lost, whether it may be repeated.
//!
//! This is not a CQL parser: it recognises the statements applications send and answers "do not
//! know" to the rest. It errs to one side only. A statement not fully understood has no key terms
//! (it goes to any node, which coordinates it) and is never repeated. Nothing here allocates; terms
//! are found again on demand from slices of the text.
//!
//! The tokens are those of Cassandra's `Lexer.g`, the clauses those of its `Parser.g`.

mod identifier;
mod lexer;
mod parser;
mod repeat;
mod routing;
mod terms;
#[cfg(test)]
mod tests;

pub use identifier::Identifier;
pub use repeat::{Cells, ColumnKind, Repeatable, Setting, repeatable};
pub use routing::{Bind, routing_key};
pub use terms::{KeyTerm, KeyTerms, Selected, SelectedColumns, SelectedTexts, Term};

use terms::TermSource;

/// The kinds of statements, by what they do.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Kind {
    /// `SELECT`
    Select,
    /// `INSERT`, also of JSON
    Insert,
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
    /// `BEGIN [UNLOGGED | COUNTER] BATCH .. APPLY BATCH`
    Batch,
    /// `USE`: changes the session. Every text that a server would take as `USE` has this kind,
    /// well-formed or not.
    Use,
    /// `CREATE`, `ALTER` or `DROP` of anything in the schema (not of roles)
    Ddl,
    /// `TRUNCATE`
    Truncate,
    /// `BEGIN TRANSACTION ..`, of which no more than these words is looked at.
    Transaction,
    /// Anything else, and anything not understood.
    Other,
}

/// A classified statement. Borrows from its text.
#[derive(Copy, Clone, Debug)]
pub struct Statement<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Keyspace written in front of the table's name; for [`Kind::Use`] the keyspace it changes to.
    pub keyspace: Option<Identifier<'a>>,
    /// The table. For a batch, that of its first statement.
    pub table: Option<Identifier<'a>>,
    /// A lightweight transaction: has an `IF`.
    pub conditional: bool,
    /// How many bind markers it has (as far as it was understood).
    pub markers: u16,
    /// `WHERE` is absent or nothing but `column = literal or marker` joined by `AND`, so that
    /// [`Statement::key_terms`] says all of it.
    pub plain_where: bool,
    /// `SELECT` only: something follows `WHERE` (`LIMIT`, `ORDER BY`, `ALLOW FILTERING`, ..).
    pub has_tail: bool,
    selection: &'a str,
    tail: &'a str,
    terms: TermSource<'a>,
}

/// Bytes of a text that [`classify`] reads, from its first word on.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Classifies query text. Never fails and never allocates: what is not understood is
/// [`Kind::Other`], or has its kind but no terms.
///
/// Of a text that goes on behind [`TEXT_BYTES_MAX`] bytes no more is read, for a text of megabytes
/// would hold up all other work. Such a statement has no terms, and counts as conditional unless it
/// is a `SELECT`: a condition may follow.
#[must_use]
pub fn classify(text: &str) -> Statement<'_> {
    if text.len() <= TEXT_BYTES_MAX { parser::statement(text) } else { parser::head(text) }
}

/// Classifies a text of any length. Not for the data path: it reads the text to its end.
#[must_use]
pub fn classify_whole(text: &str) -> Statement<'_> {
    parser::statement(text)
}

impl<'a> Statement<'a> {
    /// The `column = term` pairs that fix columns to one value: equalities of `WHERE`, or the
    /// columns and values of `INSERT`. Of a batch, those of its first statement. Terms that are not
    /// one literal or bind marker are left out.
    #[must_use]
    pub fn key_terms(&self) -> KeyTerms<'a> {
        self.terms.iter()
    }

    /// Keyspace (if written) and table that a `SELECT` reads; `None` for other statements. The
    /// proxy recognises reads of `system.local` and `system.peers` by it.
    #[must_use]
    pub fn selected_table(&self) -> Option<(Option<Identifier<'a>>, Identifier<'a>)> {
        if self.kind != Kind::Select {
            return None;
        }
        Some((self.keyspace, self.table?))
    }

    /// The text between `SELECT` and `FROM`.
    #[must_use]
    pub fn selection(&self) -> &'a str {
        self.selection
    }

    /// The text that follows the `WHERE` of a `SELECT`, or its table.
    #[must_use]
    pub fn tail(&self) -> &'a str {
        self.tail
    }

    /// The columns that a `SELECT` asks for, in order.
    #[must_use]
    pub fn selected_columns(&self) -> SelectedColumns<'a> {
        SelectedColumns::new(self.selection)
    }

    /// The texts of what a `SELECT` asks for, one for each column of its result.
    #[must_use]
    pub fn selected_texts(&self) -> SelectedTexts<'a> {
        SelectedTexts::new(self.selection)
    }

    fn unknown(kind: Kind) -> Statement<'a> {
        Statement {
            kind,
            keyspace: None,
            table: None,
            conditional: false,
            markers: 0,
            plain_where: false,
            has_tail: false,
            selection: "",
            tail: "",
            terms: TermSource::None,
        }
    }
}
