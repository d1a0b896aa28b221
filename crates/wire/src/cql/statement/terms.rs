//! Terms of a statement: what a column is compared or assigned to, and the value of a bind marker.

use super::identifier::Identifier;
use crate::cql::message::{Value, Values};

/// A term compared with or assigned to a column.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Term<'a> {
    /// A literal of one token as written, with its quotes; also `true`, `false`, `null`, `NaN` and
    /// `Infinity`. [`crate::cql::types::literal`] reads it.
    Literal(&'a str),
    /// `?`, with its position among the statement's markers, from 0.
    Marker(u16),
    /// `:name`
    NamedMarker {
        /// The name.
        name: Identifier<'a>,
        /// Position among the statement's markers, from 0; every appearance of a name counts.
        index: u16,
    },
}

/// A column fixed to one value.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct KeyTerm<'a> {
    /// The column.
    pub column: Identifier<'a>,
    /// Value of the column.
    pub term: Term<'a>,
}

/// The place of key terms. Only created for text that the parser has read once.
#[derive(Copy, Clone, Debug)]
pub(super) enum TermSource<'a> {
    None,
    /// Text between `WHERE` and the next clause.
    Where {
        text: &'a str,
        marker: u16,
    },
    /// The texts between the two pairs of parentheses.
    Insert {
        columns: &'a str,
        values: &'a str,
        marker: u16,
    },
}

/// A bind marker whose value is requested.
#[derive(Copy, Clone, Debug)]
pub struct Bind<'a> {
    /// Position among the statement's markers, from 0, in order of appearance.
    pub index: u16,
    /// Name of the value in a message with named values: the name in `:name`, or for `?` the column
    /// it is compared or assigned to.
    pub name: Identifier<'a>,
}

/// Most named values of a message that are searched.
const NAMED_VALUES_MAX: usize = 2_048;

impl Bind<'_> {
    /// The marker's value in a message. `None` if the message has more than 2,048 named values,
    /// which would take long to search.
    #[must_use]
    pub fn of<'v>(&self, values: &Values<'v>) -> Option<Value<'v>> {
        if values.is_named() {
            if values.len() > NAMED_VALUES_MAX {
                return None;
            }
            values
                .iter()
                .find(|(name, _)| name.is_some_and(|name| self.name.matches(name)))
                .map(|(_, value)| value)
        } else {
            values.get(usize::from(self.index))
        }
    }
}
