//! Logins of HTTP requests: Basic credentials (RFC 7617). They are passed on unchanged to a node,
//! which decides.

use shunt_proxy::config::{Credentials, Secret};

/// A role and its password, exactly as sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    username: String,
    password: String,
}

impl Login {
    /// Credentials for the CQL client.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials {
            username: self.username.clone(),
            password: Secret::new(self.password.as_str()),
        }
    }

    /// Reads the value of an Authorization header.
    ///
    /// # Errors
    /// A description of the fault.
    pub(crate) fn read(header: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(header).map_err(|_| "Authorization is not UTF-8")?;
        let (scheme, encoded) =
            text.split_once(' ').ok_or("Authorization has to be `Basic` and credentials")?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err("only Basic credentials are taken");
        }
        let bytes =
            decode(encoded.trim_matches(' ').as_bytes()).ok_or("the credentials are not base64")?;
        let text = String::from_utf8(bytes).map_err(|_| "the credentials are not UTF-8")?;
        // RFC 7617, section 2: the first colon ends the user-id.
        let (username, password) = text.split_once(':').ok_or("the credentials have no colon")?;
        // SASL PLAIN (RFC 4616), which passes the login on, separates its parts with zero bytes.
        if text.contains('\0') {
            return Err("neither role nor password may have a zero byte");
        }
        Ok(Self { username: username.to_owned(), password: password.to_owned() })
    }
}

/// Decodes Base64 (RFC 4648, section 4), with or without padding.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (digits, padding) = text.split_at(end);
    let is_padded = padding.is_empty() || text.len().is_multiple_of(4) && padding.len() <= 2;
    if !is_padded || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0u32, 0);
    for digit in digits {
        bits = bits << 6 | u32::from(value_of(*digit)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    Some(out)
}

fn value_of(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> Result<(String, String), &'static str> {
        Login::read(header.as_bytes()).map(|login| (login.username, login.password))
    }

    fn pair(username: &str, password: &str) -> Result<(String, String), &'static str> {
        Ok((username.to_owned(), password.to_owned()))
    }

    #[test]
    fn basic_credentials_are_read() {
        // RFC 7617, section 2, and section 2.1 for UTF-8.
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), pair("Aladdin", "open sesame"));
        assert_eq!(read("basic dGVzdDoxMjPCow=="), pair("test", "123\u{a3}"));
        assert_eq!(
            read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ"),
            pair("Aladdin", "open sesame"),
            "without padding"
        );
        assert_eq!(read("Basic YTpiOmM="), pair("a", "b:c"), "a password may have colons");
        assert_eq!(read("Basic Og=="), pair("", ""), "a node decides about that too");
    }

    #[test]
    fn malformed_logins_are_refused() {
        for wrong in [
            "",
            "Basic",
            "Bearer abc",
            "Basic ****",
            "Basic YTpi!",
            "Basic Y",
            "Basic YTpi=",
            "Basic =",
            "Basic Y===",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("Basic YWI="), Err("the credentials have no colon"));
        assert_eq!(read("Basic /zo="), Err("the credentials are not UTF-8"));
        assert!(Login::read(b"Basic \xff").is_err());
    }

    #[test]
    fn nobody_gets_another_part_of_the_login_in_by_a_zero_byte() {
        // "a\0b:c" and "a:b\0c"
        for wrong in ["Basic YQBiOmM=", "Basic YTpiAGM="] {
            assert_eq!(read(wrong), Err("neither role nor password may have a zero byte"));
        }
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648, section 10.
        for (text, expected) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(expected.as_bytes()));
        }
        assert_eq!(decode(b"+/8=").as_deref(), Some(&[0xfb, 0xff][..]));
    }
}
