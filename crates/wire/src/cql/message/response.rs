//! The small responses: AUTHENTICATE, AUTH_CHALLENGE, AUTH_SUCCESS, SUPPORTED (v5, section 4.2).

use super::collections::StringMultimap;
use super::primitive::Reader;
use crate::error::DecodeError;

/// AUTHENTICATE (section 4.2.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Authenticate<'a> {
    /// Full class name of the authenticator.
    pub class: &'a str,
}

impl<'a> Authenticate<'a> {
    /// Reads an AUTHENTICATE body.
    ///
    /// # Errors
    /// If it is not a `[string]`.
    pub fn decode(body: &'a [u8]) -> Result<Authenticate<'a>, DecodeError> {
        Ok(Authenticate { class: Reader::new(body).string("authenticator")? })
    }
}

/// AUTH_CHALLENGE and AUTH_SUCCESS (sections 4.2.7 and 4.2.8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuthToken<'a> {
    /// The server's SASL token; `None` is null.
    pub token: Option<&'a [u8]>,
}

impl<'a> AuthToken<'a> {
    /// Reads an AUTH_CHALLENGE or AUTH_SUCCESS body.
    ///
    /// # Errors
    /// If it is not `[bytes]`.
    pub fn decode(body: &'a [u8]) -> Result<AuthToken<'a>, DecodeError> {
        Ok(AuthToken { token: Reader::new(body).bytes("authentication token")? })
    }
}

/// SUPPORTED (section 4.2.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Supported<'a> {
    /// Options of STARTUP with the values that the server accepts, and others such as
    /// `PROTOCOL_VERSIONS`.
    pub options: StringMultimap<'a>,
}

impl<'a> Supported<'a> {
    /// Reads a SUPPORTED body.
    ///
    /// # Errors
    /// If it is not a `[string multimap]`.
    pub fn decode(body: &'a [u8]) -> Result<Supported<'a>, DecodeError> {
        Ok(Supported { options: Reader::new(body).string_multimap("supported options")? })
    }
}
