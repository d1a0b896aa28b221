//! A statement as routing sees it: its kind, its table, and where its terms stand.

use super::identifier::Identifier;
use super::key_terms::KeyTerms;
use super::parser;
use super::selection::{SelectedColumns, SelectedTexts};
use super::terms::TermSource;

/// The kinds of statements.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Kind {
    /// `SELECT`
    Select,
    /// `INSERT`, including `INSERT JSON`
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
    /// `CREATE`, `ALTER` or `DROP` of a schema element (not of roles)
    Ddl,
    /// `TRUNCATE`
    Truncate,
    /// `BEGIN TRANSACTION ..`; the rest of the text is not read.
    Transaction,
    /// Any other statement, and text that was not understood.
    Other,
}

/// A classified statement. Borrows from its text.
#[derive(Copy, Clone, Debug)]
pub struct Statement<'a> {
    /// Kind of the statement.
    pub kind: Kind,
    /// Keyspace written before the table's name; for [`Kind::Use`] the new keyspace of the session.
    pub keyspace: Option<Identifier<'a>>,
    /// The table; for a batch, the table of its first statement.
    pub table: Option<Identifier<'a>>,
    /// A lightweight transaction: has an `IF`.
    pub conditional: bool,
    /// Number of bind markers in the part that was understood.
    pub markers: u16,
    /// True if `WHERE` is absent or consists only of `column = literal or marker` joined by `AND`,
    /// so that [`Statement::key_terms`] is complete.
    pub plain_where: bool,
    /// `SELECT` only: a clause follows `WHERE` (`LIMIT`, `ORDER BY`, `ALLOW FILTERING`, ..).
    pub has_tail: bool,
    pub(super) selection: &'a str,
    pub(super) tail: &'a str,
    pub(super) terms: TermSource<'a>,
}

/// Number of bytes of a text that [`classify`] reads, from its first word on.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Classifies query text. Never fails and never allocates: text that is not understood is
/// [`Kind::Other`], or has its kind but no terms.
///
/// Reads at most [`TEXT_BYTES_MAX`] bytes, because a text of megabytes would hold up all other
/// work. A longer statement has no terms, and counts as conditional unless it is a `SELECT`: a
/// condition may follow.
#[must_use]
pub fn classify(text: &str) -> Statement<'_> {
    if text.len() <= TEXT_BYTES_MAX { parser::statement(text) } else { parser::head(text) }
}

/// Classifies a text of any length by reading it to its end. Must not be used on the data path.
#[must_use]
pub fn classify_whole(text: &str) -> Statement<'_> {
    parser::statement(text)
}

impl<'a> Statement<'a> {
    /// The `column = term` pairs that fix columns to one value: equalities of `WHERE`, or the
    /// columns and values of `INSERT`. A batch returns the pairs of its first statement. Terms
    /// other than a single literal or bind marker are omitted.
    #[must_use]
    pub fn key_terms(&self) -> KeyTerms<'a> {
        KeyTerms::new(self.terms)
    }

    /// Keyspace (if written) and table that a `SELECT` reads; `None` for other statements. The
    /// proxy uses it to recognise reads of `system.local` and `system.peers`.
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

    /// The text behind the `WHERE` clause of a `SELECT`, or behind its table.
    #[must_use]
    pub fn tail(&self) -> &'a str {
        self.tail
    }

    /// The columns that a `SELECT` lists, in order.
    #[must_use]
    pub fn selected_columns(&self) -> SelectedColumns<'a> {
        SelectedColumns::new(self.selection)
    }

    /// The text of each item that a `SELECT` lists, one per column of its result.
    #[must_use]
    pub fn selected_texts(&self) -> SelectedTexts<'a> {
        SelectedTexts::new(self.selection)
    }

    pub(super) fn unknown(kind: Kind) -> Statement<'a> {
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
