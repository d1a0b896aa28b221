//! The token of a request (RFC 6750, section 2.1): `Authorization: Bearer TOKEN`.

use axum::http::{HeaderMap, header};
use shunt_tls::Tokens;

use crate::browser;
use crate::pages::Refusal;

/// Pages that orchestrators ask for, which have no tokens.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// True for a page that needs no token. The files of the page for browsers have no data; a browser
/// that opens them can send no token yet.
pub(crate) fn is_open(path: &str) -> bool {
    OPEN.contains(&path) || browser::has(path)
}

/// Decides about a request for a page that needs a token.
pub(crate) fn check(headers: &HeaderMap, tokens: &Tokens) -> Result<(), Refusal> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let Some(field) = fields.next() else { return Err(Refusal::NoToken) };
    let has_token = bearer(field.as_bytes()).is_some_and(|token| tokens.has(token));
    if has_token && fields.next().is_none() { Ok(()) } else { Err(Refusal::WrongToken) }
}

/// The token in a field.
fn bearer(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = field.split_at_checked(6)?;
    let token = token.strip_prefix(b" ")?.trim_ascii();
    scheme.eq_ignore_ascii_case(b"bearer").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_behind_the_scheme() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for wrong in [&b""[..], b"Bearer", b"Bearerabc", b"Basic abc", b"abc"] {
            assert_eq!(bearer(wrong), None);
        }
    }
}
