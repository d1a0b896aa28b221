//! `BEGIN TRANSACTION .. COMMIT TRANSACTION`, after the grammar of Cassandra 6.

use std::ops::Range;

use super::Statement;
use super::name::QualifiedName;
use super::select::Comparison;
use super::term::Term;

/// A transaction. Places in the text are bytes from its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// The names of the rows that `LET` reads, in order: the first statements of `statements`.
    pub lets: Vec<String>,
    /// What it answers.
    pub returned: Returned,
    /// The conditions of `IF`, all of which must hold; none if there is no `IF`.
    pub conditions: Vec<Condition>,
    /// The statements in it: those of `LET`, then the `SELECT` that is returned, if there is one,
    /// then those that write.
    pub statements: Vec<Inner>,
    /// The bind markers of the whole text, in the order in which a client sends their values.
    pub markers: Vec<ClientMarker>,
    /// It is one statement, whose text says nothing of a transaction.
    pub is_alone: bool,
}

/// What a transaction answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Returned {
    /// No rows.
    Nothing,
    /// `SELECT .. FROM ..`: the rows of the statement that follows those of `LET`.
    Select,
    /// `SELECT v.a, w.b`: one row of values that `LET` has read.
    References(Vec<Reference>),
}

/// A statement in a transaction.
///
/// Where the text refers to a row (`SET a = v.b`), the statement has a marker, as the text that
/// [`Inner::standalone`] gives has; so a marker in it is one of `markers`, not one of the client's.
#[derive(Clone, Debug, PartialEq)]
pub struct Inner {
    /// A `SELECT`, `INSERT`, `UPDATE` or `DELETE`.
    pub statement: Statement,
    /// Its place in the text.
    pub range: Range<usize>,
    /// Its markers in order.
    pub markers: Vec<Marker>,
    /// Assignments such as `a = a + 1`, in order.
    pub self_assignments: Vec<SelfAssignment>,
    /// Values with function calls in them, such as `to_timestamp(now())`, in order.
    pub calls: Vec<CallValue>,
    /// The place of its own `IF ..`, which only a statement that stands alone may have.
    pub condition: Option<Range<usize>>,
}

/// A bind marker of a statement in a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    /// The place of `?` or `:name`, or of the reference that it stands for.
    pub range: Range<usize>,
    /// Its value.
    pub source: MarkerSource,
}

/// Where the value of a marker comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum MarkerSource {
    /// It is the client's, with this index in [`Transaction::markers`].
    Client(u16),
    /// A row that `LET` has read.
    Reference(Reference),
}

/// A bind marker of the client's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientMarker {
    /// Its name; none for `?`. A name that occurs twice is there twice.
    pub name: Option<String>,
    /// The place that its value goes to.
    pub place: MarkerPlace,
}

/// The place of a client's bind marker: it says which type its values have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MarkerPlace {
    /// In a statement: that which a node says of the marker.
    Statement {
        /// Its index in [`Transaction::statements`].
        statement: usize,
        /// Its index in [`Inner::markers`].
        marker: usize,
    },
    /// In the term of a condition, or in the brackets of its reference.
    Condition(usize),
    /// In the brackets of a reference that is returned.
    Returned(usize),
    /// In the brackets of a reference in a statement.
    Element {
        /// Its index in [`Transaction::statements`].
        statement: usize,
        /// The index in [`Inner::markers`] of the marker that stands for the reference.
        marker: usize,
    },
}

/// `a = a + x`, `a += x` and the same with a minus, where `x` is one term or reference.
///
/// Of lists, sets, maps and counters nodes know how to do that. Of other columns the new value has
/// to be computed from the row as it is; [`Inner::computed`] gives the text for it.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfAssignment {
    /// The column.
    pub column: String,
    /// True for a minus.
    pub subtract: bool,
    /// The term; a marker in it is one of [`Inner::markers`].
    pub term: Term,
    /// The text behind the name of the column: `= a + x` or `+= x`.
    pub range: Range<usize>,
}

/// A value of an `INSERT`, or on the right side of an assignment, with a function call in it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallValue {
    /// The value; a marker in it is one of [`Inner::markers`].
    pub term: Term,
    /// Its place in the text.
    pub range: Range<usize>,
}

/// `v`, `v.a`, `v.a['k']` or `v.a.f`
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The name that `LET` gave the row.
    pub row: String,
    /// The column; none for the row as a whole.
    pub column: Option<String>,
    /// The part of the column's value.
    pub part: Option<ValuePart>,
    /// Its place in the text.
    pub range: Range<usize>,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValuePart {
    /// `[key]`: an element of a list, set or map. A marker in it is one of
    /// [`Transaction::markers`].
    Element(Term),
    /// `.field` of a value of a user-defined type.
    Field(String),
}

/// One condition of `IF`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What is compared.
    pub reference: Reference,
    /// How.
    pub test: Test,
    /// Its place in the text.
    pub range: Range<usize>,
}

/// What a condition says of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// `IS NULL`
    IsNull,
    /// `IS NOT NULL`
    IsNotNull,
    /// A comparison with a term. If the text has the term first, the comparison is turned round. A
    /// marker in the term is one of [`Transaction::markers`].
    Compare(Comparison, Term),
}

impl Transaction {
    /// The statements that write.
    #[must_use]
    pub fn mutations(&self) -> &[Inner] {
        let first = self.lets.len() + usize::from(self.returned == Returned::Select);
        self.statements.get(first..).unwrap_or_default()
    }

    /// The one statement that writes, if it stands alone: such a one may have conditions, and a
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

    /// The index in `lets`, and in `statements`, of the row that a reference names.
    #[must_use]
    pub fn row(&self, reference: &Reference) -> Option<usize> {
        self.lets.iter().position(|name| *name == reference.row)
    }

    /// The table that the row is of.
    #[must_use]
    pub fn table(&self, reference: &Reference) -> Option<&QualifiedName> {
        match &self.statements.get(self.row(reference)?)?.statement {
            Statement::Select(select) => Some(&select.table),
            _ => None,
        }
    }
}
