//! Conflicting relations on one column outside the primary key, in Cassandra's words.

use shunt_language::ast::Comparison;
use shunt_language::error::InvalidRequest;

use super::{Test, invalid};
use crate::schema::Column;

/// Kind of the relations on a column.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Equal,
    In,
    Range,
    /// `CONTAINS`, `CONTAINS KEY` and `m[key] = value`, in any number.
    Element,
}

/// Relations on a column so far.
#[derive(Default)]
pub(super) struct Repetition {
    kind: Option<Kind>,
    has_lower: bool,
    has_upper: bool,
}

impl Repetition {
    /// Adds a relation.
    ///
    /// # Errors
    /// The relation conflicts with earlier ones.
    pub(super) fn add(
        &mut self,
        column: &Column,
        is_entry: bool,
        test: &Test,
    ) -> Result<(), InvalidRequest> {
        let name = &column.name;
        let kind = match test {
            _ if is_entry => Kind::Element,
            Test::OneOf(one_of) if one_of.is_in() => Kind::In,
            Test::OneOf(_) | Test::Compare(Comparison::Equal, _) => Kind::Equal,
            Test::Compare(Comparison::Contains | Comparison::ContainsKey, _) => Kind::Element,
            Test::Compare(..) => Kind::Range,
        };
        match self.kind.replace(kind) {
            Some(Kind::Equal) => {
                return invalid(format!(
                    "{name} cannot be restricted by more than one relation if it includes an Equal"
                ));
            }
            Some(Kind::In) => {
                return invalid(format!(
                    "{name} cannot be restricted by more than one relation if it includes a IN"
                ));
            }
            Some(Kind::Range) if kind != Kind::Range => {
                return invalid(format!(
                    "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
                ));
            }
            Some(Kind::Element) if kind != Kind::Element => {
                return invalid(format!(
                    "Collection column {name} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality"
                ));
            }
            _ => {}
        }
        let (side, end) = match test {
            Test::Compare(Comparison::Greater | Comparison::GreaterOrEqual, _) => {
                (&mut self.has_lower, "start")
            }
            Test::Compare(Comparison::Less | Comparison::LessOrEqual, _) => {
                (&mut self.has_upper, "end")
            }
            _ => return Ok(()),
        };
        if std::mem::replace(side, true) {
            return invalid(format!(
                "More than one restriction was found for the {end} bound on {name}"
            ));
        }
        Ok(())
    }
}
