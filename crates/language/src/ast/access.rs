//! Roles and permissions, of which a node need say no more than which statement it was, and
//! `DESCRIBE`.

use super::name::QualifiedName;

/// A statement about roles, users, identities or permissions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessStatement {
    /// Its first words, such as `CREATE ROLE` or `GRANT PERMISSION`.
    pub name: &'static str,
    /// The role, user or identity it is about, if there is one.
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
        /// `FULL`: with the system keyspaces.
        full: bool,
    },
    /// `KEYSPACES`
    Keyspaces,
    /// `[ONLY] KEYSPACE [k]`
    Keyspace {
        /// The keyspace; none for the one in use.
        name: Option<String>,
        /// `ONLY`: without what it holds.
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
