//! `BEGIN TRANSACTION .. COMMIT TRANSACTION`, after the grammar of Cassandra 6.

use std::ops::Range;

use super::Statement;
use super::name::QualifiedName;
use super::select::Comparison;
use super::term::Term;

/// A transaction. Places in the text are byte offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// Names of the rows that `LET` reads, in order: the first of `statements`.
    pub lets: Vec<String>,
    /// Result of the transaction.
    pub returned: Returned,
    /// Conditions of `IF`, all of which must hold; empty without `IF`.
    pub conditions: Vec<Condition>,
    /// Statements of the transaction: those of `LET`, then the returned `SELECT`, if any, then
    /// those that write.
    pub statements: Vec<Inner>,
    /// Bind markers of the whole text, in the order in which a client sends their values.
    pub markers: Vec<ClientMarker>,
    /// True for a single statement outside a transaction block.
    pub is_alone: bool,
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Returned {
    /// No rows.
    Nothing,
    /// `SELECT .. FROM ..`: the rows of the statement behind those of `LET`.
    Select,
    /// `SELECT v.a, w.b`: one row of values read by `LET`.
    References(Vec<Reference>),
}

/// A statement in a transaction.
///
/// Where the text refers to a row (`SET a = v.b`), the statement has a marker, like the text of
/// [`Inner::standalone`]. A marker in the statement is therefore an index into `markers`, not into
/// the client's.
#[derive(Clone, Debug, PartialEq)]
pub struct Inner {
    /// A `SELECT`, `INSERT`, `UPDATE` or `DELETE`.
    pub statement: Statement,
    /// Place in the text.
    pub range: Range<usize>,
    /// Markers of the statement in order.
    pub markers: Vec<Marker>,
    /// Assignments such as `a = a + 1`, in order.
    pub self_assignments: Vec<SelfAssignment>,
    /// Values with function calls, such as `to_timestamp(now())`, in order.
    pub calls: Vec<CallValue>,
    /// Place of the statement's own `IF ..`, which only a single statement may have.
    pub condition: Option<Range<usize>>,
}

/// A bind marker of a statement in a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    /// Place of `?` or `:name`, or of the reference that the marker replaces.
    pub range: Range<usize>,
    /// Source of the value.
    pub source: MarkerSource,
}

/// Source of a marker's value.
#[derive(Clone, Debug, PartialEq)]
pub enum MarkerSource {
    /// A client's marker, with its index in [`Transaction::markers`].
    Client(u16),
    /// A row read by `LET`.
    Reference(Reference),
}

/// A bind marker sent by the client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientMarker {
    /// Name of the marker; `None` for `?`. A repeated name is listed each time.
    pub name: Option<String>,
    /// The place where its value is used.
    pub place: MarkerPlace,
}

/// Place of a client's bind marker, which determines the type of its values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MarkerPlace {
    /// In a statement: the node reports the marker's type.
    Statement {
        /// Index in [`Transaction::statements`].
        statement: usize,
        /// Index in [`Inner::markers`].
        marker: usize,
    },
    /// In the term of a condition, or in the brackets of its reference.
    Condition(usize),
    /// In the brackets of a returned reference.
    Returned(usize),
    /// In the brackets of a reference in a statement.
    Element {
        /// Index in [`Transaction::statements`].
        statement: usize,
        /// Index in [`Inner::markers`] of the marker that replaces the reference.
        marker: usize,
    },
}

/// `a = a + x`, `a += x` and the same with a minus, where `x` is one term or reference.
///
/// Nodes can execute this for lists, sets, maps and counters. For other columns the new value must
/// be computed from the current row; [`Inner::computed`] gives the text for it.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfAssignment {
    /// The column.
    pub column: String,
    /// True for a minus.
    pub subtract: bool,
    /// The term; markers in it are indexes into [`Inner::markers`].
    pub term: Term,
    /// The text behind the name of the column: `= a + x` or `+= x`.
    pub range: Range<usize>,
}

/// A value of an `INSERT`, or the right side of an assignment, that contains a function call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallValue {
    /// The value; markers in it are indexes into [`Inner::markers`].
    pub term: Term,
    /// Place in the text.
    pub range: Range<usize>,
}

/// `v`, `v.a`, `v.a['k']` or `v.a.f`
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Name of the row in `LET`.
    pub row: String,
    /// The column; `None` for the whole row.
    pub column: Option<String>,
    /// The part of the column's value.
    pub part: Option<ValuePart>,
    /// Place in the text.
    pub range: Range<usize>,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValuePart {
    /// `[key]`: an element of a list, set or map. A marker in it is an index into
    /// [`Transaction::markers`].
    Element(Term),
    /// `.field` of a value of a user-defined type.
    Field(String),
}

/// One condition of `IF`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The compared value.
    pub reference: Reference,
    /// The test of the value.
    pub test: Test,
    /// Place in the text.
    pub range: Range<usize>,
}

/// Test of a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// `IS NULL`
    IsNull,
    /// `IS NOT NULL`
    IsNotNull,
    /// A comparison with a term. If the text has the term first, the comparison is reversed. A
    /// marker in the term is an index into [`Transaction::markers`].
    Compare(Comparison, Term),
}

impl Transaction {
    /// The statements that write.
    #[must_use]
    pub fn mutations(&self) -> &[Inner] {
        let first = self.lets.len() + usize::from(self.returned == Returned::Select);
        self.statements.get(first..).unwrap_or_default()
    }

    /// The one writing statement of a single-statement transaction: it may have conditions and a
    /// time to live.
    #[must_use]
    pub fn lone_mutation(&self) -> Option<&Inner> {
        match &self.statements[..] {
            [inner] if self.is_alone && !matches!(inner.statement, Statement::Select(_)) => {
                Some(inner)
            }
            _ => None,
        }
    }

    /// Index in `lets`, and in `statements`, of the row that a reference names.
    #[must_use]
    pub fn row(&self, reference: &Reference) -> Option<usize> {
        self.lets.iter().position(|name| *name == reference.row)
    }

    /// Table of the row.
    #[must_use]
    pub fn table(&self, reference: &Reference) -> Option<&QualifiedName> {
        match &self.statements.get(self.row(reference)?)?.statement {
            Statement::Select(select) => Some(&select.table),
            _ => None,
        }
    }
}
