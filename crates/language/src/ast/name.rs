//! Names of schema elements.

/// The name of a table, type, function or index, with its keyspace if the statement gives one.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct QualifiedName {
    /// The keyspace.
    pub keyspace: Option<String>,
    /// The name in it.
    pub name: String,
}

impl QualifiedName {
    /// A name without a keyspace.
    pub fn local(name: impl Into<String>) -> QualifiedName {
        QualifiedName { keyspace: None, name: name.into() }
    }
}
