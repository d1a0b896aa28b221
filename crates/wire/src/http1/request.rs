//! The head of a request.

use super::fields::{self, Found};
use super::{Framing, Head, Refusal, Version, is_token};

/// A request's head, checked.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'h, 'd> {
    head: Head<'h, 'd>,
    /// The method, case as it came (methods are told apart by case).
    pub method: &'d [u8],
    /// The target, as it came.
    pub target: &'d [u8],
    /// The client's version.
    pub version: Version,
    /// Where the body ends. A request's never ends with the connection.
    pub framing: Framing,
    /// The client would go on with this connection after the answer.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body; never without one, nor in
    /// HTTP/1.0.
    pub expects_continue: bool,
}

impl<'h, 'd> RequestHead<'h, 'd> {
    /// Reads what the head says.
    ///
    /// # Errors
    /// It is malformed, or could be understood in two ways.
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
        // RFC 9112, section 3.2: one, and with HTTP/1.0 at most one.
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

    /// The head it was read from.
    pub fn head(&self) -> Head<'h, 'd> {
        self.head
    }

    /// GET or HEAD: any copy of the data may answer.
    pub fn is_read(&self) -> bool {
        matches!(self.method, b"GET" | b"HEAD")
    }

    /// Whether sending it twice comes to the same as sending it once (RFC 9110, section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method, b"GET" | b"HEAD" | b"PUT" | b"DELETE" | b"OPTIONS" | b"TRACE")
    }

    /// Appends the head as the next server is to see it: without the fields of this connection,
    /// with `extra` at the end.
    pub fn forward(&self, extra: &[(&str, &str)], out: &mut Vec<u8>) {
        fields::forward(self.head, self.head.start_line(), true, extra, out);
    }
}

/// The host that an absolute URI names, and the port that is meant where none is named.
#[derive(Clone, Copy)]
struct Authority<'d> {
    text: &'d [u8],
    default_port: &'static [u8],
}

/// RFC 9112, section 3.2: a path, an absolute URI, or `*` with OPTIONS. Tells what host it names,
/// if it does.
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

/// That of an absolute URI (RFC 3986, section 3), without a login, which only phishing has there
/// (RFC 9110, section 4.2.4).
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

/// Whether it may be a host and a port (RFC 3986, section 3.2.2): else a server may find a path or
/// a login in it.
fn is_host(text: &[u8]) -> bool {
    let is_known =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    text.iter().all(is_known)
}

/// Servers go by the target's host, if it has one (RFC 9112, section 3.2.2), but what stands before
/// them may go by Host.
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

/// The host alone, if its port is this one or none.
fn without_port<'t>(text: &'t [u8], port: &[u8]) -> &'t [u8] {
    match text.strip_suffix(port).unwrap_or(text) {
        [host @ .., b':'] => host,
        _ => text,
    }
}
