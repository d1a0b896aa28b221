//! Errors of the native protocol (section 9) that a node returns.

use shunt_language::error::FailedFunction;
use shunt_language::{InvalidRequest, SyntaxError};
use shunt_storage::StoreError;
use shunt_storage::engine::EngineError;
use shunt_wire::cql::message::{
    Consistency, ErrorDetails, ErrorMessage, ReplicaCounts, encode, error_code, put,
};

use crate::limits;

/// Keyspace of native functions.
const NATIVE_KEYSPACE: &str = "system";

/// An error as seen by clients.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum CqlError {
    /// The text is not CQL.
    Syntax(String),
    /// The text is CQL but cannot be executed.
    Invalid(String),
    /// A function has no result for its arguments.
    Function { message: String, function: Box<FailedFunction> },
    /// The action is not permitted.
    Unauthorized(String),
    /// A property of a keyspace or table is wrong.
    Config(String),
    /// A keyspace (with an empty table) or a table exists already.
    AlreadyExists { keyspace: String, table: String },
    /// No statement with this id is prepared here.
    Unprepared(Vec<u8>),
    /// The request violates the protocol.
    Protocol(String),
    /// The node cannot execute the request: its disk failed, or a limit was reached.
    Server(String),
    /// The consistency level needs more replicas than there are nodes.
    Unavailable { consistency: Consistency, required: u32, alive: u32 },
    /// The node is overloaded and did not execute the request.
    Overloaded(String),
    /// Some of the nodes that a write goes to have executed their part, and another could not.
    WrittenInPart(String),
    /// A read exceeded its time limit, or its client is gone.
    TimedOut,
    /// Not for clients: the request must be executed where it may wait. It has changed nothing yet.
    WouldWait {
        /// True if it will take long even without waiting.
        long: bool,
    },
}

impl CqlError {
    pub(crate) fn invalid(message: impl Into<String>) -> CqlError {
        CqlError::Invalid(message.into())
    }

    /// Appends the body of ERROR.
    pub(crate) fn put(&self, out: &mut Vec<u8>, version: u8) {
        let plain = |out: &mut Vec<u8>, code, message: &str| encode::error(out, code, message);
        match self {
            CqlError::Syntax(message) => plain(out, error_code::SYNTAX_ERROR, message),
            CqlError::Invalid(message) => plain(out, error_code::INVALID, message),
            CqlError::Unauthorized(message) => plain(out, error_code::UNAUTHORIZED, message),
            CqlError::Function { message, function } => {
                plain(out, error_code::FUNCTION_FAILURE, message);
                put::string(out, NATIVE_KEYSPACE);
                put::string(out, &function.name);
                put::short(out, u16::try_from(function.arguments.len()).unwrap_or(u16::MAX));
                function.arguments.iter().for_each(|argument| put::string(out, argument));
            }
            CqlError::Config(message) => plain(out, error_code::CONFIG_ERROR, message),
            CqlError::Protocol(message) => plain(out, error_code::PROTOCOL_ERROR, message),
            CqlError::Server(message) => plain(out, error_code::SERVER_ERROR, message),
            CqlError::Overloaded(message) => plain(out, error_code::OVERLOADED, message),
            CqlError::Unavailable { consistency, required, alive } => {
                let message = &format!("Cannot achieve consistency level {consistency}");
                let (consistency, required, alive) =
                    (*consistency, *required as i32, *alive as i32);
                let details = ErrorDetails::Unavailable { consistency, required, alive };
                ErrorMessage { code: error_code::UNAVAILABLE, message, details }.put(out, version);
            }
            CqlError::WrittenInPart(message) => {
                // Drivers retry after other errors, and after this one only for the type
                // `BATCH_LOG`.
                let counts =
                    ReplicaCounts { consistency: Consistency::ONE, received: 0, block_for: 1 };
                let details =
                    ErrorDetails::WriteTimeout { counts, write_type: "BATCH", contentions: None };
                ErrorMessage { code: error_code::WRITE_TIMEOUT, message, details }
                    .put(out, version);
            }
            CqlError::TimedOut => {
                let message =
                    &format!("the read took longer than {} s", limits::READ_TIME_MAX.as_secs());
                let counts =
                    ReplicaCounts { consistency: Consistency::ONE, received: 0, block_for: 1 };
                let details = ErrorDetails::ReadTimeout { counts, data_present: false };
                ErrorMessage { code: error_code::READ_TIMEOUT, message, details }.put(out, version);
            }
            CqlError::WouldWait { .. } => {
                plain(out, error_code::OVERLOADED, "the request has to wait for the disk")
            }
            CqlError::Unprepared(id) => {
                let message = "Prepared query with this ID not found (either the query was not prepared on this host \
                               or the host has been restarted since then)";
                let details = ErrorDetails::Unprepared { id };
                ErrorMessage { code: error_code::UNPREPARED, message, details }.put(out, version);
            }
            CqlError::AlreadyExists { keyspace, table } => {
                let message = match table.as_str() {
                    "" => format!("Cannot add existing keyspace \"{keyspace}\""),
                    table => format!(
                        "Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\""
                    ),
                };
                let details = ErrorDetails::AlreadyExists { keyspace, table };
                ErrorMessage { code: error_code::ALREADY_EXISTS, message: &message, details }
                    .put(out, version);
            }
        }
    }
}

impl From<InvalidRequest> for CqlError {
    fn from(error: InvalidRequest) -> CqlError {
        match error.function {
            Some(function) => CqlError::Function { message: error.message, function },
            None => CqlError::Invalid(error.message),
        }
    }
}

impl From<StoreError> for CqlError {
    fn from(error: StoreError) -> CqlError {
        match error {
            StoreError::Engine(EngineError::WouldBlock) => CqlError::WouldWait { long: false },
            StoreError::Engine(EngineError::Busy) | StoreError::Stalled(_) => {
                CqlError::Overloaded(error.to_string())
            }
            // Drivers repeat after a server's error.
            StoreError::TooLarge { .. } => CqlError::Invalid(error.to_string()),
            error => CqlError::Server(error.to_string()),
        }
    }
}

impl From<SyntaxError> for CqlError {
    fn from(error: SyntaxError) -> CqlError {
        CqlError::Syntax(error.message)
    }
}
