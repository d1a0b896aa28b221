//! The head of a request.

use super::body::Framing;
use super::error::Refusal;
use super::fields::{self, Found};
use super::head::Head;
use super::names::is_token;
use super::version::Version;

/// The checked head of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'h, 'd> {
    head: Head<'h, 'd>,
    /// The method as received (methods are case-sensitive).
    pub method: &'d [u8],
    /// The target as received.
    pub target: &'d [u8],
    /// The client's version.
    pub version: Version,
    /// End of the body; a request's body never ends with the connection.
    pub framing: Framing,
    /// The client wants to keep the connection after the answer.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before sending the body; never set without a body or in
    /// HTTP/1.0.
    pub expects_continue: bool,
}

impl<'h, 'd> RequestHead<'h, 'd> {
    /// Interprets the head.
    ///
    /// # Errors
    /// The head is malformed or ambiguous.
    pub fn read(head: Head<'h, 'd>) -> Result<Self, Refusal> {
        let mut parts = head.start_line().splitn(3, |byte| *byte == b' ');
        let (Some(method), Some(target), Some(version)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::StartLine);
        };
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(Refusal::Method);
        }
        let version = Version::read(version)?;
        let authority = check_target(method, target)?;
        let found = Found::read(head, version)?;
        // RFC 9112, section 3.2: exactly one, and with HTTP/1.0 at most one.
        if found.hosts > 1 || found.hosts == 0 && version == Version::Http11 {
            return Err(Refusal::Host);
        }
        check_host(head, authority)?;
        // RFC 9112, section 6.3: without either there is no body.
        let framing = match found.content_length {
            _ if found.chunked => Framing::Chunked,
            Some(length) if length > 0 => Framing::Length(length),
            _ => Framing::None,
        };
        let expects_continue =
            found.expects_continue && framing != Framing::None && version == Version::Http11;
        let keep_alive = found.persists(version);
        Ok(Self { head, method, target, version, framing, keep_alive, expects_continue })
    }

    /// The underlying head.
    pub fn head(&self) -> Head<'h, 'd> {
        self.head
    }

    /// True for GET and HEAD, which any copy of the data may answer.
    pub fn is_read(&self) -> bool {
        matches!(self.method, b"GET" | b"HEAD")
    }

    /// True if sending the request twice equals sending it once (RFC 9110, section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method, b"GET" | b"HEAD" | b"PUT" | b"DELETE" | b"OPTIONS" | b"TRACE")
    }

    /// Appends the head for the next server: without hop-by-hop fields, with `extra` at the end.
    pub fn forward(&self, extra: &[(&str, &str)], out: &mut Vec<u8>) {
        fields::forward(self.head, self.head.start_line(), true, extra, out);
    }
}

/// The host that an absolute URI names, and its scheme's default port.
#[derive(Clone, Copy)]
struct Authority<'d> {
    text: &'d [u8],
    default_port: &'static [u8],
}

/// Checks the target (RFC 9112, section 3.2): a path, an absolute URI, or `*` with OPTIONS. Returns
/// the host that it names, if any.
fn check_target<'d>(method: &[u8], target: &'d [u8]) -> Result<Option<Authority<'d>>, Refusal> {
    if method == b"CONNECT" {
        return Err(Refusal::Connect);
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::Target);
    }
    match target.first() {
        Some(b'/') => Ok(None),
        Some(b'*') if target == b"*" && method == b"OPTIONS" => Ok(None),
        Some(first) if first.is_ascii_alphabetic() => {
            authority(target).map(Some).ok_or(Refusal::Target)
        }
        _ => Err(Refusal::Target),
    }
}

/// The authority of an absolute URI (RFC 3986, section 3). Refuses user information, which is used
/// only for phishing (RFC 9110, section 4.2.4).
fn authority(target: &[u8]) -> Option<Authority<'_>> {
    let at = target.windows(3).position(|part| part == b"://")?;
    let scheme = &target[..at];
    if !scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    {
        return None;
    }
    let rest = &target[at + 3..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let is_tls = [&b"https"[..], b"wss"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let default_port: &[u8] = if is_tls { b"443" } else { b"80" };
    (end > 0 && is_host(&rest[..end])).then_some(Authority { text: &rest[..end], default_port })
}

/// True if the text can be a host and a port (RFC 3986, section 3.2.2). Otherwise a server might
/// find a path or a login in it.
fn is_host(text: &[u8]) -> bool {
    let is_known =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    text.iter().all(is_known)
}

/// Servers use the target's host if it has one (RFC 9112, section 3.2.2), but an intermediary may
/// use Host, so the two must agree.
fn check_host(head: Head<'_, '_>, authority: Option<Authority<'_>>) -> Result<(), Refusal> {
    let Some(host) = head.field("host") else { return Ok(()) };
    if !is_host(host) {
        return Err(Refusal::Host);
    }
    let Some(Authority { text, default_port }) = authority else { return Ok(()) };
    let without_port = |text| without_port(text, default_port);
    match without_port(text).eq_ignore_ascii_case(without_port(host)) {
        true => Ok(()),
        false => Err(Refusal::TargetAndHost),
    }
}

/// The host alone, if the text has this port or none.
fn without_port<'t>(text: &'t [u8], port: &[u8]) -> &'t [u8] {
    match text.strip_suffix(port).unwrap_or(text) {
        [host @ .., b':'] => host,
        _ => text,
    }
}
