//! Combined meaning of the fields of a head: where the body ends, whether the connection persists,
//! and which fields are hop-by-hop.

use super::error::Refusal;
use super::head::Head;
use super::limits::CONNECTION_OPTIONS_MAX;
use super::names;
use super::version::Version;

/// Findings in the fields of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
    pub(super) hosts: usize,
    /// Options in all Connection fields.
    options: usize,
}

impl Found {
    /// Reads the fields that affect framing and forwarding.
    pub(super) fn read(head: Head<'_, '_>, version: Version) -> Result<Found, Refusal> {
        let mut found = Found::default();
        let mut encodings = 0;
        for (name, value) in head.fields() {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            // Compares lengths first: few fields have one of these.
            match name.len() {
                4 if is("host") => found.hosts += 1,
                6 if is("expect") => found.expect(value)?,
                10 if is("connection") => found.connection(value)?,
                14 if is("content-length") => found.length(value)?,
                17 if is("transfer-encoding") => {
                    encodings += 1;
                    found.chunked = value.eq_ignore_ascii_case(b"chunked");
                    // RFC 9112, section 6.1: with HTTP/1.0 the framing is to be treated as faulty.
                    if encodings > 1 || !found.chunked || version == Version::Http10 {
                        return Err(Refusal::TransferEncoding);
                    }
                }
                _ => {}
            }
            if names::is_disguised(name) {
                return Err(Refusal::DisguisedField);
            }
        }
        // RFC 9112, section 6.3: such a message ought to be handled as an error.
        if found.chunked && found.content_length.is_some() {
            return Err(Refusal::LengthAndEncoding);
        }
        Ok(found)
    }

    /// True if the connection persists after this message, provided its end is known (RFC 9112,
    /// section 9.3).
    pub(super) fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Refusal::Expectation);
        }
        self.expects_continue = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for option in elements(value) {
            self.options += 1;
            if self.options > CONNECTION_OPTIONS_MAX {
                let limit = CONNECTION_OPTIONS_MAX;
                return Err(Refusal::TooManyConnectionOptions { limit });
            }
            let is = |other: &str| option.eq_ignore_ascii_case(other.as_bytes());
            self.close |= is("close");
            self.keep_alive |= is("keep-alive");
            if names::is_framing(option) {
                return Err(Refusal::ConnectionNamesFraming);
            }
            // Connection must not name an end-to-end field: it would be removed, and the server
            // would decide without it.
            if names::is_of_the_head(option) {
                return Err(Refusal::ConnectionNamesOther);
            }
        }
        Ok(())
    }

    fn length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let length = decimal(value).ok_or(match value.contains(&b',') {
            true => Refusal::SeveralContentLengths,
            false => Refusal::ContentLength,
        })?;
        match self.content_length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Refusal::SeveralContentLengths),
        }
    }
}

/// A decimal number of digits only, below 2^63.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    text.iter().try_fold(0, add).filter(|length| *length <= i64::MAX as u64)
}

/// The elements of a list (RFC 9110, section 5.6.1) without surrounding blanks; empty elements are
/// omitted.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Appends the head, optionally with another first line, without hop-by-hop fields and with `extra`
/// in their place. If `has_framing` is false, the fields that frame a body are omitted too.
pub(super) fn forward(
    head: Head<'_, '_>,
    start_line: &[u8],
    has_framing: bool,
    extra: &[(&str, &str)],
    out: &mut Vec<u8>,
) {
    out.reserve(head.len() + 64);
    out.extend_from_slice(start_line);
    out.extend_from_slice(b"\r\n");
    // Found once: a value of kilobytes may have a single option, and there are many fields.
    let mut options = [&[][..]; CONNECTION_OPTIONS_MAX];
    let connections = head.fields().filter(|(field, _)| field.eq_ignore_ascii_case(b"connection"));
    let found = connections.flat_map(|(_, value)| elements(value));
    options.iter_mut().zip(found).for_each(|(place, option)| *place = option);
    let is_named = |name: &[u8]| options.iter().any(|option| option.eq_ignore_ascii_case(name));
    for (name, value) in head.fields() {
        let is_own = names::is_of_one_connection(name) || !has_framing && names::is_framing(name);
        if is_own || is_named(name) {
            continue;
        }
        field(out, name, value);
    }
    for (name, value) in extra {
        field(out, name.as_bytes(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
