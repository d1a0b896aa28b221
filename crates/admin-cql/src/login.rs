//! The login: SASL PLAIN (RFC 4616), with one of the admin pages' tokens as the password.

use std::sync::OnceLock;

use shunt_admin::{Pages, Refusal};

/// The authenticator for which drivers send a name and a password.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// The login of a connection: its password, once the login has ended.
#[derive(Default)]
pub(crate) struct Login(OnceLock<Box<[u8]>>);

impl Login {
    /// Ends the login with this password, which is empty where clients need none.
    pub(crate) fn end(&self, password: &[u8]) {
        // A connection has one login.
        let _ = self.0.set(password.into());
    }

    /// True if the login has ended and its password is still a token: the file of tokens may have
    /// changed since.
    pub(crate) fn is_valid(&self, pages: &Pages) -> bool {
        let Some(password) = self.0.get() else { return false };
        pages.access().tokens.as_ref().is_none_or(|tokens| tokens.has(password))
    }
}

/// True if clients must log in.
pub(crate) fn is_needed(pages: &Pages) -> bool {
    pages.access().tokens.is_some()
}

/// Returns the password of a message if it is a token. The name does not matter, as every token
/// has all rights.
pub(crate) fn check<'m>(pages: &Pages, message: &'m [u8]) -> Result<&'m [u8], Refusal> {
    let password = message.splitn(3, |byte| *byte == 0).nth(2);
    let password = password.filter(|password| !password.is_empty()).ok_or(Refusal::NoToken)?;
    match &pages.access().tokens {
        Some(tokens) if !tokens.has(password) => Err(Refusal::WrongToken),
        _ => Ok(password),
    }
}
