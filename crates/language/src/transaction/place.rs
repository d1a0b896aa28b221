//! Places of errors in a text, for messages.

use crate::ast::{Condition, Reference};
use crate::error::InvalidRequest;
use crate::parser;

/// An error about a reference.
pub(super) fn at_reference(reference: &Reference, text: &str, problem: &str) -> InvalidRequest {
    let shown = text.get(reference.range.clone()).unwrap_or(&reference.row);
    InvalidRequest::new(format!(
        "{shown} {}: {problem}",
        parser::shown_place(text, reference.range.start)
    ))
}

/// An error about a condition.
pub(super) fn at_condition(condition: &Condition, text: &str, problem: &str) -> InvalidRequest {
    InvalidRequest::new(format!(
        "IF {}: {problem}",
        parser::shown_place(text, condition.range.start)
    ))
}
