//! Optional fields in front of the message in a body, announced by the header's flags.
//!
//! v5, section 4: `[<tracing_id>][<warnings>][<custom_payload>]<message>`. A request has only the
//! custom payload; its tracing flag adds no bytes.

use super::collections::{BytesMap, StringList};
use super::primitive::Reader;
use super::put;
use crate::cql::envelope::flag;
use crate::error::DecodeError;

/// The parts before the message of a response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ResponsePrefix<'a> {
    /// Id of the trace, if the request asked for tracing.
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings of the server.
    pub warnings: Option<StringList<'a>>,
    /// Custom payload of the server.
    pub custom_payload: Option<BytesMap<'a>>,
    /// Total length of the parts in bytes.
    pub length: usize,
}

impl ResponsePrefix<'_> {
    /// The header flags that announce these parts.
    pub fn flags(&self) -> u8 {
        let bit = |flag: u8, present: bool| if present { flag } else { 0 };
        bit(flag::TRACING, self.tracing_id.is_some())
            | bit(flag::WARNING, self.warnings.is_some())
            | bit(flag::CUSTOM_PAYLOAD, self.custom_payload.is_some())
    }

    /// Appends the parts that are present.
    pub fn put(&self, out: &mut Vec<u8>) {
        if let Some(tracing_id) = self.tracing_id {
            out.extend_from_slice(&tracing_id);
        }
        if let Some(warnings) = self.warnings {
            put::string_list(out, warnings.iter());
        }
        if let Some(custom_payload) = self.custom_payload {
            put::bytes_map(out, custom_payload.iter());
        }
    }
}

/// Splits the body of a response into the parts that `flags` announce and the message.
///
/// # Errors
/// If an announced part is missing or invalid.
#[inline]
pub fn split_response_prefix(
    flags: u8,
    body: &[u8],
) -> Result<(ResponsePrefix<'_>, &[u8]), DecodeError> {
    let mut prefix = ResponsePrefix::default();
    if flags & (flag::TRACING | flag::WARNING | flag::CUSTOM_PAYLOAD) == 0 {
        return Ok((prefix, body));
    }
    let mut reader = Reader::new(body);
    if flags & flag::TRACING != 0 {
        prefix.tracing_id = Some(reader.uuid("tracing id")?);
    }
    if flags & flag::WARNING != 0 {
        prefix.warnings = Some(reader.string_list("warnings")?);
    }
    if flags & flag::CUSTOM_PAYLOAD != 0 {
        prefix.custom_payload = Some(reader.bytes_map("custom payload")?);
    }
    prefix.length = reader.position();
    Ok((prefix, reader.rest()))
}

/// Splits the body of a request into its custom payload, if `flags` announce one, and the message.
///
/// # Errors
/// If the payload is not a `[bytes map]`.
#[inline]
pub fn split_request_prefix(
    flags: u8,
    body: &[u8],
) -> Result<(Option<BytesMap<'_>>, &[u8]), DecodeError> {
    if flags & flag::CUSTOM_PAYLOAD == 0 {
        return Ok((None, body));
    }
    let mut reader = Reader::new(body);
    let payload = reader.bytes_map("custom payload")?;
    Ok((Some(payload), reader.rest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_in_the_specified_order() {
        let mut body = vec![7; 16];
        put::string_list(&mut body, ["slow"]);
        put::bytes_map(&mut body, [("k", Some(&b"v"[..])), ("n", None)]);
        body.extend_from_slice(b"rest");
        let flags = flag::TRACING | flag::WARNING | flag::CUSTOM_PAYLOAD;
        let (prefix, rest) = split_response_prefix(flags, &body).unwrap();
        assert_eq!(prefix.tracing_id, Some([7; 16]));
        assert_eq!(prefix.warnings.unwrap().iter().collect::<Vec<_>>(), ["slow"]);
        let payload = prefix.custom_payload.unwrap().iter().collect::<Vec<_>>();
        assert_eq!(payload, [("k", Some(&b"v"[..])), ("n", None)]);
        assert_eq!((rest, prefix.length), (&b"rest"[..], body.len() - 4));
        let mut again = Vec::new();
        prefix.put(&mut again);
        assert_eq!((&again[..], prefix.flags()), (&body[..prefix.length], flags));
    }

    #[test]
    fn a_traced_request_has_no_prefix() {
        assert_eq!(split_request_prefix(flag::TRACING, b"abc"), Ok((None, &b"abc"[..])));
    }
}
