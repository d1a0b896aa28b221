//! `DESCRIBE`.

use super::name::QualifiedName;

/// `DESCRIBE ..`
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Describe {
    /// The thing to describe.
    pub target: DescribeTarget,
    /// `WITH INTERNALS`
    pub with_internals: bool,
}

/// A thing that can be described.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DescribeTarget {
    /// `CLUSTER`
    Cluster,
    /// `[FULL] SCHEMA`
    Schema {
        /// `FULL`: includes the system keyspaces.
        full: bool,
    },
    /// `KEYSPACES`
    Keyspaces,
    /// `[ONLY] KEYSPACE [k]`
    Keyspace {
        /// The keyspace; `None` for the one in use.
        name: Option<String>,
        /// `ONLY`: excludes its content.
        only: bool,
    },
    /// `TABLES`
    Tables,
    /// `TABLE t`
    Table(QualifiedName),
    /// `INDEX i`
    Index(QualifiedName),
    /// `MATERIALIZED VIEW v`
    View(QualifiedName),
    /// `TYPES`
    Types,
    /// `TYPE t`
    Type(QualifiedName),
    /// `FUNCTIONS`
    Functions,
    /// `FUNCTION f`
    Function(QualifiedName),
    /// `AGGREGATES`
    Aggregates,
    /// `AGGREGATE a`
    Aggregate(QualifiedName),
    /// A name that may be any of these.
    Any(QualifiedName),
}
