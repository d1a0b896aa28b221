//! Assignments whose new value is computed from the row as it is.

use crate::ast::{NativeType, SelfAssignment};
use crate::error::InvalidRequest;
use crate::functions::{self, Function, is_number};
use crate::terms::{self, Bindings, Prepared, Scope, Value};
use crate::types::CqlType;

/// An assignment that can be computed.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedSelfAssignment {
    column: String,
    function: Function,
    term: Prepared,
}

impl SelfAssignment {
    /// True if the new value of a column of this type has to be computed: a number's, or that of a
    /// text that something is added to. Of other types nodes know what to do, or say that nothing
    /// can be done.
    #[must_use]
    pub fn is_computed(&self, column: &CqlType) -> bool {
        match column {
            CqlType::Native(NativeType::Text | NativeType::Ascii) => !self.subtract,
            CqlType::Native(native) => is_number(*native) && *native != NativeType::Counter,
            _ => false,
        }
    }

    /// Takes the type of its column. Markers, which are the statement's (see
    /// [`crate::ast::Inner::markers`]), are recorded in `scope`.
    ///
    /// # Errors
    /// When the term is not of the type, or nothing can be added to values of it.
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
    /// The new value. `None`: the column has none, and stays as it is.
    ///
    /// # Errors
    /// When there is nothing to add, or no result.
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
