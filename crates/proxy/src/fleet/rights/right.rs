//! Rights: what nodes are asked to decide.

use shunt_language::lock_tables::Table;

use crate::client::account::LoginId;

/// A right: that the role of this login may do this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Right {
    pub(crate) login: LoginId,
    pub(crate) action: Action,
}

/// An action of a role on a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Uses the locks of a table: the right to SELECT from the table is the right to its locks.
    UseLocks(Table),
    /// Reads a table, by its qualified name.
    Read(Box<str>),
    /// Writes to a table, by its qualified name.
    Write(Box<str>),
}
