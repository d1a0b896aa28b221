//! Roles, permissions and `DESCRIBE`; of a statement about roles, a node needs only its kind.

use super::name::QualifiedName;

/// A statement about roles, users, identities or permissions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessStatement {
    /// First words of the statement, such as `CREATE ROLE` or `GRANT PERMISSION`.
    pub name: &'static str,
    /// The role, user or identity in question, if any.
    pub subject: Option<String>,
    /// `IF EXISTS` or `IF NOT EXISTS`
    pub if_condition: bool,
}

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
