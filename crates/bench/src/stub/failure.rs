//! The reasons for ERROR answers, and their bodies.

use shunt_wire::{
    cql::message::{ErrorDetails, ErrorMessage, encode, error_code},
    error::DecodeError,
};

/// The reason for an ERROR.
#[derive(Debug)]
pub(super) enum Failure {
    Protocol(String),
    Invalid(String),
    Unprepared(Vec<u8>),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl Failure {
    pub(super) fn put(&self, out: &mut Vec<u8>, version: u8) {
        match self {
            Self::Protocol(text) => encode::error(out, error_code::PROTOCOL_ERROR, text),
            Self::Invalid(text) => encode::error(out, error_code::INVALID, text),
            Self::Unprepared(id) => put_unprepared(out, version, id),
        }
    }
}

/// Appends the body of ERROR UNPREPARED for this id.
pub(super) fn put_unprepared(out: &mut Vec<u8>, version: u8, id: &[u8]) {
    let message = ErrorMessage {
        code: error_code::UNPREPARED,
        message: "Prepared query is not known here",
        details: ErrorDetails::Unprepared { id },
    };
    encode::error_with(out, version, &message);
}
