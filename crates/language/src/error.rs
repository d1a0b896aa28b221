//! Errors in statements: text that is not CQL, or CQL without a valid meaning.

use std::fmt;

/// Text that is not a CQL statement: protocol error code 0x2000.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError {
    /// Line of the offending text, from 1; 0 at the end of the text, as in Cassandra.
    pub line: u32,
    /// Number of characters before it in its line; -1 at the end of the text.
    pub column: i32,
    /// The message for the client, with line and column where Cassandra gives them.
    pub message: String,
}

impl SyntaxError {
    /// An error of the whole statement, which Cassandra reports without a position.
    pub(crate) fn unplaced(message: impl Into<String>) -> SyntaxError {
        SyntaxError { line: 0, column: -1, message: message.into() }
    }

    pub(crate) fn at(line: u32, column: i32, problem: &str) -> SyntaxError {
        SyntaxError { line, column, message: format!("line {line}:{column} {problem}") }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// A well-formed but invalid statement or value: protocol error code 0x2200, or 0x1400 for a
/// function that failed for its arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidRequest {
    /// The message for the client.
    pub message: String,
    /// The failed function, if that is the cause.
    pub function: Option<Box<FailedFunction>>,
}

/// A native function without a result for its arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FailedFunction {
    /// Name of the function.
    pub name: String,
    /// CQL types of its arguments.
    pub arguments: Vec<String>,
}

impl InvalidRequest {
    /// An error with this message for the client.
    pub fn new(message: impl Into<String>) -> InvalidRequest {
        InvalidRequest { message: message.into(), function: None }
    }
}

/// Reason to refuse a text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The text is not a statement.
    Syntax(SyntaxError),
    /// The statement is invalid.
    Invalid(InvalidRequest),
}

impl Refusal {
    /// The message for the client.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Refusal::Syntax(error) => &error.message,
            Refusal::Invalid(error) => &error.message,
        }
    }
}

impl From<SyntaxError> for Refusal {
    fn from(error: SyntaxError) -> Refusal {
        Refusal::Syntax(error)
    }
}

impl From<InvalidRequest> for Refusal {
    fn from(error: InvalidRequest) -> Refusal {
        Refusal::Invalid(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InvalidRequest {}
