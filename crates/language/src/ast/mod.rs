//! Statements as the grammar sees them: names are folded to their case, but not looked up in a
//! schema.

mod describe;
mod display;
mod mutation;
mod name;
mod schema;
mod select;
mod term;
mod transaction;
pub(crate) mod type_name;

pub use describe::{Describe, DescribeTarget};
pub use display::{quoted_name, quoted_string, quoted_type_name};
pub use mutation::{
    Assignment, Attributes, Batch, BatchKind, ColumnCondition, Conditions, Delete, Deletion,
    Insert, InsertJson, Mutation, Operation, Update,
};
pub use name::QualifiedName;
pub use schema::{
    AlterTable, AlterType, ColumnDefinition, ColumnMask, CreateAggregate, CreateFunction,
    CreateIndex, CreateTable, CreateView, Drop, DropKind, IndexTarget, Properties, PropertyValue,
    SchemaStatement, TableAlteration, TableOptions, TypeAlteration,
};
pub use select::{
    CellMetadata, Comparison, Ordering, OrderingBy, Relation, Select, SelectClause, SelectedItem,
    Selector,
};
pub use term::{Literal, LiteralKind, Operator, Term};
pub use transaction::{
    CallValue, ClientMarker, Condition, Inner, Marker, MarkerPlace, MarkerSource, Reference,
    Returned, SelfAssignment, Test, Transaction, ValuePart,
};
pub use type_name::{NativeType, TypeName};

/// A statement with its bind markers.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The statement.
    pub statement: Statement,
    /// Names of the bind markers in order of appearance; `None` for `?`. A repeated name is listed
    /// each time.
    pub markers: Vec<Option<String>>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "statements are made once and kept, never moved in bulk"
)]
pub enum Statement {
    /// `SELECT`
    Select(Select),
    /// `INSERT`, `UPDATE` or `DELETE`
    Mutation(Mutation),
    /// `BEGIN BATCH .. APPLY BATCH`
    Batch(Batch),
    /// `TRUNCATE`
    Truncate(QualifiedName),
    /// `USE`
    Use(String),
    /// `CREATE`, `ALTER` and `DROP` of schema elements.
    Schema(SchemaStatement),
    /// A statement about roles, users, identities or permissions: its first words, such as
    /// `CREATE ROLE`.
    Access(&'static str),
    /// `DESCRIBE`
    Describe(Describe),
}
