//! `INSERT`, `UPDATE`, `DELETE` and `BATCH`.

use super::name::QualifiedName;
use super::select::{Comparison, Relation};
use super::term::Term;

/// A statement that writes rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// `INSERT .. VALUES`
    Insert(Insert),
    /// `INSERT .. JSON`
    InsertJson(InsertJson),
    /// `UPDATE`
    Update(Update),
    /// `DELETE`
    Delete(Delete),
}

impl Mutation {
    /// The table that the statement writes.
    #[must_use]
    pub fn table(&self) -> &QualifiedName {
        match self {
            Mutation::Insert(insert) => &insert.table,
            Mutation::InsertJson(insert) => &insert.table,
            Mutation::Update(update) => &update.table,
            Mutation::Delete(delete) => &delete.table,
        }
    }

    /// `USING ..`
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        match self {
            Mutation::Insert(insert) => &insert.attributes,
            Mutation::InsertJson(insert) => &insert.attributes,
            Mutation::Update(update) => &update.attributes,
            Mutation::Delete(delete) => &delete.attributes,
        }
    }

    /// True for a lightweight transaction.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        match self {
            Mutation::Insert(insert) => insert.if_not_exists,
            Mutation::InsertJson(insert) => insert.if_not_exists,
            Mutation::Update(update) => update.conditions != Conditions::None,
            Mutation::Delete(delete) => delete.conditions != Conditions::None,
        }
    }
}

/// `USING TIMESTAMP .. AND TTL ..`: literals or markers. The last of several counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    /// Microseconds since 1970.
    pub timestamp: Option<Term>,
    /// Seconds.
    pub time_to_live: Option<Term>,
}

/// `INSERT INTO table (columns) VALUES (values)`
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// The table.
    pub table: QualifiedName,
    /// Columns as written; Cassandra compares their number with the values later.
    pub columns: Vec<String>,
    /// Values.
    pub values: Vec<Term>,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `USING ..`
    pub attributes: Attributes,
}

/// `INSERT INTO table JSON '..'`
#[derive(Clone, Debug, PartialEq)]
pub struct InsertJson {
    /// The table.
    pub table: QualifiedName,
    /// A string literal or a marker.
    pub json: Term,
    /// `DEFAULT UNSET`: columns missing in the JSON keep their values.
    pub default_unset: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `USING ..`
    pub attributes: Attributes,
}

/// `UPDATE table SET assignments WHERE relations IF conditions`
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The table.
    pub table: QualifiedName,
    /// `USING ..`
    pub attributes: Attributes,
    /// The assignments of `SET`.
    pub assignments: Vec<Assignment>,
    /// The rows.
    pub relations: Vec<Relation>,
    /// `IF ..`
    pub conditions: Conditions,
}

/// One assignment of `SET`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The column.
    pub column: String,
    /// The operation on it.
    pub operation: Operation,
}

/// An operation on a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// `a = x`
    Set(Term),
    /// `a = a + x`, `a += x`
    Add(Term),
    /// `a = a - x`, `a -= x`
    Subtract(Term),
    /// `a = x + a`
    Prepend(Term),
    /// `a[k] = x`
    SetElement(Term, Term),
    /// `a.f = x`
    SetField(String, Term),
}

/// `DELETE deletions FROM table WHERE relations IF conditions`
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// The table.
    pub table: QualifiedName,
    /// `USING TIMESTAMP ..`
    pub attributes: Attributes,
    /// Parts of the rows to delete; empty for whole rows.
    pub deletions: Vec<Deletion>,
    /// The rows.
    pub relations: Vec<Relation>,
    /// `IF ..`
    pub conditions: Conditions,
}

/// A part of a row to delete.
#[derive(Clone, Debug, PartialEq)]
pub enum Deletion {
    /// A column.
    Column(String),
    /// `a[k]`
    Element(String, Term),
    /// `a.f`
    Field(String, String),
}

/// `IF ..`
#[derive(Clone, Debug, PartialEq)]
pub enum Conditions {
    /// No condition.
    None,
    /// `IF EXISTS`
    Exists,
    /// A list of conditions, all of which must hold.
    All(Vec<ColumnCondition>),
}

/// One condition on the current row.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnCondition {
    /// The column.
    pub column: String,
    /// `a[k]`
    pub element: Option<Term>,
    /// `a.f`
    pub field: Option<String>,
    /// The comparison; `None` for `IN`.
    pub comparison: Option<Comparison>,
    /// The compared value, or those of `IN`.
    pub values: Vec<Term>,
    /// True if `values` is the one marker of `IN ?`.
    pub in_marker: bool,
}

/// `BEGIN BATCH .. APPLY BATCH`
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Logged, unlogged or counter.
    pub kind: BatchKind,
    /// `USING ..` of the whole batch.
    pub attributes: Attributes,
    /// Statements of the batch.
    pub mutations: Vec<Mutation>,
}

/// Kinds of batches.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum BatchKind {
    /// `BEGIN BATCH`
    Logged,
    /// `BEGIN UNLOGGED BATCH`
    Unlogged,
    /// `BEGIN COUNTER BATCH`
    Counter,
}
