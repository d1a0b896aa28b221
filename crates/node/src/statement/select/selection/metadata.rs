//! `writetime`, `maxwritetime` and `ttl` of columns, or of parts of columns that are stored element
//! by element.

use shunt_language::ast::{CellMetadata, NativeType, Selector};
use shunt_language::error::InvalidRequest;
use shunt_language::types::CqlType;

use super::name::metadata_name;
use super::{Expression, Part, Preparer, Typed, element_types, field_of};
use crate::statement::restrictions::{column_of, invalid};

impl Preparer<'_, '_, '_> {
    pub(super) fn metadata(
        &mut self,
        what: CellMetadata,
        of: &Selector,
    ) -> Result<Typed, InvalidRequest> {
        // Checks the whole selector; a part nested more deeply has the cell of its outer part.
        if !matches!(of, Selector::Column(_)) {
            let terms = self.selection.terms.len();
            self.prepare(of, None)?;
            self.selection.terms.truncate(terms);
        }
        let mut outer = None;
        let mut inner = of;
        while let Selector::Field(next, _)
        | Selector::Element(next, _)
        | Selector::Slice(next, _, _) = inner
        {
            outer = Some(inner);
            inner = next;
        }
        let Selector::Column(name) = inner else {
            return invalid(format!(
                "Cannot use selection function {} on that",
                metadata_name(what)
            ));
        };
        let (position, column) = column_of(self.table, name)?;
        if column.is_primary_key() {
            let function = metadata_name(what);
            return invalid(format!(
                "Cannot use selection function {function} on PRIMARY KEY part {name}"
            ));
        }
        self.selection.uses[position] = true;
        let (part, single) = match outer {
            None => (Part::Whole, !column.is_multi_cell()),
            Some(_) if !column.is_multi_cell() => (Part::Whole, true),
            Some(Selector::Field(_, field)) => {
                (Part::Field(field_of(inner, &column.cql_type, field)?.0), true)
            }
            Some(Selector::Element(_, key)) => {
                let (key_name, key_type, _) = element_types(inner, &column.cql_type, "Element")?;
                (Part::Element(self.term(key, &key_name, &key_type)?), true)
            }
            Some(Selector::Slice(_, from, to)) => {
                let (from, to) =
                    self.slice_bounds(inner, &column.cql_type, from.as_ref(), to.as_ref())?;
                (Part::Slice(from, to), false)
            }
            Some(_) => (Part::Whole, true),
        };
        Ok((Expression::Metadata { what, column: position, part }, metadata_type(what, single)))
    }
}

/// Type of the metadata of one or several cells.
pub(super) fn metadata_type(what: CellMetadata, single: bool) -> CqlType {
    let one = match what {
        CellMetadata::TimeToLive => NativeType::Int,
        CellMetadata::WriteTime | CellMetadata::MaxWriteTime => NativeType::Bigint,
    };
    if single || what == CellMetadata::MaxWriteTime {
        one.into()
    } else {
        CqlType::list(one.into())
    }
}
