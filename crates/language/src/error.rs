//! Errors in statements: text that is no CQL, or CQL that means nothing.

use std::fmt;

/// Text that is not a CQL statement: protocol error code 0x2000.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError {
    /// Line of the offending text, from 1; 0 at the end of the text, as Cassandra has it.
    pub line: u32,
    /// Characters in front of it in its line; -1 at the end of the text.
    pub column: i32,
    /// The message a client sees, with line and column where Cassandra gives them.
    pub message: String,
}

impl SyntaxError {
    /// An error of the statement as a whole, which Cassandra reports without a position.
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

/// A statement or value that is well-formed and still cannot be: protocol error code 0x2200, or
/// 0x1400 if it is a function that failed for the arguments it was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidRequest {
    /// The message a client sees.
    pub message: String,
    /// The function that failed, if that is what happened.
    pub function: Option<Box<FailedFunction>>,
}

/// A native function without a result for its arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FailedFunction {
    /// Its name.
    pub name: String,
    /// CQL types of its arguments.
    pub arguments: Vec<String>,
}

impl InvalidRequest {
    /// From the message a client will see.
    pub fn new(message: impl Into<String>) -> InvalidRequest {
        InvalidRequest { message: message.into(), function: None }
    }
}

/// Why a text is not accepted, where it may be either.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// It is not a statement.
    Syntax(SyntaxError),
    /// It is one that cannot be.
    Invalid(InvalidRequest),
}

impl Refusal {
    /// The message a client sees.
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
