//! Errors in answers to clients.

use shunt_language::{InvalidRequest, SyntaxError};
use shunt_wire::cql::message::error_code;
use shunt_wire::error::DecodeError;

/// An error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// One of [`error_code`].
    pub(crate) code: i32,
    /// The reason and its remedy.
    pub(crate) message: String,
}

impl Fault {
    /// A statement that has no meaning here.
    pub(crate) fn invalid(message: impl Into<String>) -> Fault {
        Fault { code: error_code::INVALID, message: message.into() }
    }

    /// A request that breaks the protocol.
    pub(crate) fn protocol(message: impl Into<String>) -> Fault {
        Fault { code: error_code::PROTOCOL_ERROR, message: message.into() }
    }

    /// A fault of this process.
    pub(crate) fn server(message: impl Into<String>) -> Fault {
        Fault { code: error_code::SERVER_ERROR, message: message.into() }
    }
}

impl From<InvalidRequest> for Fault {
    fn from(error: InvalidRequest) -> Fault {
        Fault::invalid(error.message)
    }
}

impl From<SyntaxError> for Fault {
    fn from(error: SyntaxError) -> Fault {
        Fault { code: error_code::SYNTAX_ERROR, message: error.message }
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Fault {
        Fault::protocol(error.to_string())
    }
}
