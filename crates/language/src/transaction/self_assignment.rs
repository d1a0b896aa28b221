//! Assignments whose new value is computed from the current row.

use crate::ast::{NativeType, SelfAssignment};
use crate::error::InvalidRequest;
use crate::functions::{self, Function, is_number};
use crate::terms::{self, Bindings, Prepared, Scope, Value};
use crate::types::CqlType;

/// An assignment ready for evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedSelfAssignment {
    column: String,
    function: Function,
    term: Prepared,
}

impl SelfAssignment {
    /// True if the new value of a column of this type must be computed: a number, or a text that
    /// something is appended to. Nodes handle or refuse other types.
    #[must_use]
    pub fn is_computed(&self, column: &CqlType) -> bool {
        match column {
            CqlType::Native(NativeType::Text | NativeType::Ascii) => !self.subtract,
            CqlType::Native(native) => is_number(*native) && *native != NativeType::Counter,
            _ => false,
        }
    }

    /// Prepares the assignment for its column's type. Records its markers, which are the
    /// statement's (see [`crate::ast::Inner::markers`]), in `scope`.
    ///
    /// # Errors
    /// If the term is not of the type, or nothing can be added to its values.
    pub fn prepare(
        &self,
        column: &CqlType,
        scope: &mut Scope<'_>,
    ) -> Result<PreparedSelfAssignment, InvalidRequest> {
        if !self.is_computed(column) {
            let (name, sign) = (&self.column, if self.subtract { '-' } else { '+' });
            let message = format!(
                "Invalid operation ({name} = {name} {sign} {}) for column {name} of type {column}",
                self.term
            );
            return Err(InvalidRequest::new(message));
        }
        let function = if self.subtract { "_-" } else { "_+" };
        let function = functions::resolve(function, &[column, column], Some(column), None)?;
        let term = terms::prepare(&self.term, &self.column, column, scope)?;
        Ok(PreparedSelfAssignment { column: self.column.clone(), function, term })
    }
}

impl PreparedSelfAssignment {
    /// Computes the new value. `None` if the column is null and stays null.
    ///
    /// # Errors
    /// If there is nothing to add, or no result.
    pub fn evaluate(
        &self,
        current: Option<&[u8]>,
        bindings: &dyn Bindings,
    ) -> Result<Option<Vec<u8>>, InvalidRequest> {
        let operand = match self.term.evaluate(bindings)? {
            Value::Bytes(operand) => operand,
            Value::Null => {
                return Err(InvalidRequest::new(format!(
                    "Invalid null value for increment of {}",
                    self.column
                )));
            }
            Value::Unset => return Ok(None),
        };
        let Some(current) = current else { return Ok(None) };
        self.function.evaluate(&[Some(current), Some(&operand)], bindings)
    }
}
