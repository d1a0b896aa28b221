//! The login: SASL PLAIN (RFC 4616), with one of the admin pages' tokens as the password.

use shunt_admin::{Pages, Refusal};

/// The authenticator for which drivers send a name and a password.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// True if clients must log in.
pub(crate) fn is_needed(pages: &Pages) -> bool {
    pages.access().tokens.is_some()
}

/// True if the message has a right password. The name says nothing: every token has all rights.
pub(crate) fn check(pages: &Pages, message: &[u8]) -> Result<(), Refusal> {
    let Some(tokens) = &pages.access().tokens else { return Ok(()) };
    let mut parts = message.splitn(3, |byte| *byte == 0);
    let (_, _, password) = (parts.next(), parts.next(), parts.next());
    match password {
        None | Some([]) => Err(Refusal::NoToken),
        Some(password) if tokens.has(password) => Ok(()),
        Some(_) => Err(Refusal::WrongToken),
    }
}
