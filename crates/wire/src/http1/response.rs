//! The head of a response.

use super::body::Framing;
use super::error::Refusal;
use super::fields::{self, Found};
use super::head::Head;
use super::version::Version;

/// The bytes of a representation that a body holds, and the total length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, inclusive.
    pub last: u64,
    /// Total length of the representation.
    pub total: u64,
}

/// The checked head of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'h, 'd> {
    head: Head<'h, 'd>,
    /// The server's version.
    pub version: Version,
    /// The status.
    pub status: u16,
    /// End of the body.
    pub framing: Framing,
    /// The Content-Length, which answers to HEAD and 304 carry without a body.
    pub content_length: Option<u64>,
    /// The server wants to keep the connection after the answer.
    pub keep_alive: bool,
}

impl<'h, 'd> ResponseHead<'h, 'd> {
    /// Interprets the head. `to_head`: the response answers HEAD and has no body, whatever its
    /// fields say.
    ///
    /// # Errors
    /// The head is malformed or ambiguous.
    pub fn read(head: Head<'h, 'd>, to_head: bool) -> Result<Self, Refusal> {
        // RFC 9112, section 4: the reason may be empty; a missing blank in front of it is
        // tolerated.
        let mut parts = head.start_line().splitn(3, |byte| *byte == b' ');
        let (Some(version), Some(status)) = (parts.next(), parts.next()) else {
            return Err(Refusal::StartLine);
        };
        let version = Version::read(version)?;
        let status = match *status {
            [a @ b'1'..=b'9', b, c] if b.is_ascii_digit() && c.is_ascii_digit() => {
                u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
            }
            _ => return Err(Refusal::Status),
        };
        let found = Found::read(head, version)?;
        // RFC 9112, section 6.3, in its order.
        let framing = match (found.chunked, found.content_length) {
            _ if to_head || has_no_body(status) || status == 304 => Framing::None,
            (true, _) => Framing::Chunked,
            (false, Some(0)) => Framing::None,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        };
        // The announced body may follow anyway, and would be taken for the next answer.
        let says_more = has_no_body(status)
            && (found.chunked || found.content_length.is_some_and(|length| length > 0));
        let keep_alive = found.persists(version) && framing != Framing::UntilClose && !says_more;
        Ok(Self {
            head,
            version,
            status,
            framing,
            content_length: found.content_length,
            keep_alive,
        })
    }

    /// The underlying head.
    pub fn head(&self) -> Head<'h, 'd> {
        self.head
    }

    /// The ETag, if it is strong: equal strong tags mean equal bytes (RFC 9110, section 8.8.1).
    pub fn strong_etag(&self) -> Option<&'d [u8]> {
        self.head
            .field("etag")
            .filter(|tag| tag.len() >= 2 && tag.starts_with(b"\"") && tag.ends_with(b"\""))
    }

    /// The Content-Range, if its unit is bytes and it is complete (RFC 9110, section 14.4).
    pub fn content_range(&self) -> Option<ContentRange> {
        let mut values =
            self.head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"content-range"));
        let (_, value) = values.next()?;
        if values.next().is_some() {
            return None;
        }
        let (unit, rest) = value.split_at_checked(6)?;
        let slash = rest.iter().position(|byte| *byte == b'/')?;
        let dash = rest[..slash].iter().position(|byte| *byte == b'-')?;
        let [first, last, total] =
            [&rest[..dash], &rest[dash + 1..slash], &rest[slash + 1..]].map(fields::decimal);
        let range = ContentRange { first: first?, last: last?, total: total? };
        let is_right = unit.eq_ignore_ascii_case(b"bytes ")
            && range.first <= range.last
            && range.last < range.total;
        is_right.then_some(range)
    }

    /// Appends the head for the client: without hop-by-hop fields, without the length of an
    /// impossible body, with `extra` at the end, and always of version 1.1 (RFC 9110, section 2.5).
    pub fn forward(&self, extra: &[(&str, &str)], out: &mut Vec<u8>) {
        let line = self.head.start_line();
        out.extend_from_slice(Version::Http11.as_str().as_bytes());
        let has_framing = !has_no_body(self.status);
        fields::forward(self.head, &line[self.version.as_str().len()..], has_framing, extra, out);
    }
}

/// True for a status without a body. Such an answer may not frame a body either (RFC 9110, section
/// 8.6; RFC 9112, section 6.1); an answer to HEAD and a 304 may.
fn has_no_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204)
}
