//! `CREATE`, `ALTER` and `DROP` of keyspaces, tables, types and the rest of a schema.

use super::name::QualifiedName;
use super::select::{Relation, SelectClause};
use super::term::{LiteralKind, Term};
use super::type_name::TypeName;

/// A statement that changes the schema.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaStatement {
    /// `CREATE KEYSPACE`
    CreateKeyspace {
        /// The keyspace.
        name: String,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// `WITH ..`
        properties: Properties,
    },
    /// `ALTER KEYSPACE`
    AlterKeyspace {
        /// The keyspace.
        name: String,
        /// `IF EXISTS`
        if_exists: bool,
        /// `WITH ..`
        properties: Properties,
    },
    /// `CREATE TABLE`
    CreateTable(CreateTable),
    /// `ALTER TABLE`
    AlterTable(AlterTable),
    /// `CREATE TYPE`
    CreateType {
        /// The type.
        name: QualifiedName,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// Fields of the type.
        fields: Vec<(String, TypeName)>,
    },
    /// `ALTER TYPE`
    AlterType(AlterType),
    /// `CREATE INDEX`
    CreateIndex(CreateIndex),
    /// `CREATE MATERIALIZED VIEW`
    CreateView(Box<CreateView>),
    /// `ALTER MATERIALIZED VIEW`
    AlterView {
        /// The view.
        name: QualifiedName,
        /// `IF EXISTS`
        if_exists: bool,
        /// `WITH ..`
        properties: Properties,
    },
    /// `CREATE FUNCTION`
    CreateFunction(CreateFunction),
    /// `CREATE AGGREGATE`
    CreateAggregate(CreateAggregate),
    /// `CREATE TRIGGER`
    CreateTrigger {
        /// The trigger.
        name: String,
        /// Table of the trigger.
        table: QualifiedName,
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// `USING 'class'`
        class: String,
    },
    /// `DROP ..`
    Drop(Drop),
}

/// `WITH a = 1 AND b = {..}`, in order of writing; names are unique.
pub type Properties = Vec<(String, PropertyValue)>;

/// The value of a property.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PropertyValue {
    /// A constant, or a keyword as a string.
    Constant(LiteralKind, String),
    /// `{'a': 1}`: the texts of constants.
    Map(Vec<(String, String)>),
}

/// `CREATE TABLE`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// The table.
    pub name: QualifiedName,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Columns in the order they are written.
    pub columns: Vec<ColumnDefinition>,
    /// Every `PRIMARY KEY` of the statement (a valid one has exactly one): columns of the partition
    /// key, then clustering columns.
    pub primary_keys: Vec<(Vec<String>, Vec<String>)>,
    /// `WITH ..`
    pub options: TableOptions,
}

/// The options of a table or view, behind `WITH`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableOptions {
    /// Properties.
    pub properties: Properties,
    /// `CLUSTERING ORDER BY`: columns, and whether they are descending.
    pub clustering_order: Vec<(String, bool)>,
    /// `COMPACT STORAGE`
    pub compact_storage: bool,
}

/// A column of `CREATE TABLE` or `ALTER TABLE .. ADD`.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDefinition {
    /// Name of the column.
    pub name: String,
    /// Type of the column.
    pub type_name: TypeName,
    /// `STATIC`
    pub is_static: bool,
    /// `MASKED WITH ..`
    pub mask: Option<ColumnMask>,
}

/// `MASKED WITH f(..)`
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnMask {
    /// The function; `None` for `DEFAULT`.
    pub function: Option<QualifiedName>,
    /// Arguments of the function besides the column.
    pub arguments: Vec<Term>,
}

/// `ALTER TABLE`
#[derive(Clone, Debug, PartialEq)]
pub struct AlterTable {
    /// The table.
    pub name: QualifiedName,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The change.
    pub alteration: TableAlteration,
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum TableAlteration {
    /// `ADD`
    Add {
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// The columns.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP`
    Drop {
        /// `IF EXISTS`
        if_exists: bool,
        /// The columns.
        columns: Vec<String>,
        /// `USING TIMESTAMP`, in microseconds.
        timestamp: Option<i64>,
    },
    /// `RENAME`
    Rename {
        /// `IF EXISTS`
        if_exists: bool,
        /// Old and new names.
        columns: Vec<(String, String)>,
    },
    /// `ALTER a TYPE t`
    AlterType {
        /// The column.
        column: String,
        /// New type of the column.
        type_name: TypeName,
    },
    /// `ALTER a MASKED WITH ..` or `ALTER a DROP MASKED`
    Mask {
        /// `IF EXISTS`
        if_exists: bool,
        /// The column.
        column: String,
        /// Mask of the column; `None` drops it.
        mask: Option<ColumnMask>,
    },
    /// `DROP COMPACT STORAGE`
    DropCompactStorage,
    /// `WITH ..`
    With(Properties),
}

/// `ALTER TYPE`
#[derive(Clone, Debug, PartialEq)]
pub struct AlterType {
    /// The type.
    pub name: QualifiedName,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The change.
    pub alteration: TypeAlteration,
}

/// A change of a user-defined type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeAlteration {
    /// `ALTER f TYPE t`
    AlterField(String, TypeName),
    /// `ADD f t`
    Add {
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// The field.
        field: String,
        /// Type of the field.
        type_name: TypeName,
    },
    /// `RENAME f TO g`
    Rename {
        /// `IF EXISTS`
        if_exists: bool,
        /// Old and new names.
        fields: Vec<(String, String)>,
    },
}

/// `CREATE INDEX`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// `CUSTOM`
    pub custom: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The index, if it has a name.
    pub name: Option<String>,
    /// Table of the index.
    pub table: QualifiedName,
    /// The indexed columns, each with the part of it that is indexed.
    pub targets: Vec<(IndexTarget, String)>,
    /// `USING 'class'`
    pub class: Option<String>,
    /// `WITH ..`
    pub properties: Properties,
}

/// The part of a column that is indexed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum IndexTarget {
    /// The column.
    Simple,
    /// `VALUES(a)`
    Values,
    /// `KEYS(a)`
    Keys,
    /// `ENTRIES(a)`
    Entries,
    /// `FULL(a)`
    Full,
}

/// `CREATE MATERIALIZED VIEW`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateView {
    /// The view.
    pub name: QualifiedName,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Columns of the view.
    pub clause: SelectClause,
    /// Table of the view.
    pub table: QualifiedName,
    /// `WHERE ..`
    pub relations: Vec<Relation>,
    /// Columns of the partition key, then clustering columns.
    pub primary_key: (Vec<String>, Vec<String>),
    /// `WITH ..`
    pub options: TableOptions,
}

/// `CREATE FUNCTION`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateFunction {
    /// `OR REPLACE`
    pub or_replace: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The function.
    pub name: QualifiedName,
    /// Names and types of its arguments.
    pub arguments: Vec<(String, TypeName)>,
    /// `CALLED ON NULL INPUT`, against `RETURNS NULL ON NULL INPUT`.
    pub called_on_null: bool,
    /// `RETURNS t`
    pub returns: TypeName,
    /// `LANGUAGE l`
    pub language: String,
    /// `AS 'body'`
    pub body: String,
}

/// `CREATE AGGREGATE`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateAggregate {
    /// `OR REPLACE`
    pub or_replace: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The aggregate.
    pub name: QualifiedName,
    /// Types of its arguments.
    pub arguments: Vec<TypeName>,
    /// `SFUNC f`
    pub state_function: String,
    /// `STYPE t`
    pub state_type: TypeName,
    /// `FINALFUNC f`
    pub final_function: Option<String>,
    /// `INITCOND x`
    pub initial: Option<Term>,
}

/// `DROP ..`
#[derive(Clone, Debug, PartialEq)]
pub struct Drop {
    /// The kind of thing to drop.
    pub kind: DropKind,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// Name of the element; a keyspace's has no keyspace.
    pub name: QualifiedName,
    /// Types of the arguments, if the statement gives them for a function or aggregate.
    pub arguments: Option<Vec<TypeName>>,
    /// The table of a trigger.
    pub table: Option<QualifiedName>,
}

/// A kind of thing that can be dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum DropKind {
    /// `DROP KEYSPACE`
    Keyspace,
    /// `DROP TABLE`
    Table,
    /// `DROP TYPE`
    Type,
    /// `DROP INDEX`
    Index,
    /// `DROP MATERIALIZED VIEW`
    View,
    /// `DROP FUNCTION`
    Function,
    /// `DROP AGGREGATE`
    Aggregate,
    /// `DROP TRIGGER`
    Trigger,
}
