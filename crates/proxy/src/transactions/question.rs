//! Statements by which a node says if a role may read a table, or write to it, and that do nothing.

use shunt_language::ast::quoted_name;

/// A table's name with its keyspace.
pub(super) fn qualified(keyspace: &str, table: &str) -> Box<str> {
    format!("{}.{}", quoted_name(keyspace), quoted_name(table)).into()
}

/// A statement that does nothing: a LIMIT that there cannot be, or a row without a key.
pub(super) fn about(table: &str, writes: bool) -> String {
    if writes {
        format!("INSERT INTO {table} JSON '{{}}'")
    } else {
        format!("SELECT * FROM {table} LIMIT 0")
    }
}

/// True of what a node says of such a statement when the role may do it. Of a table that it does
/// not know it says so before it looks at any right.
pub(super) fn is_about_nothing(message: &str, writes: bool) -> bool {
    if writes {
        message.starts_with("Invalid null value")
    } else {
        message.starts_with("LIMIT must be strictly positive")
    }
}
