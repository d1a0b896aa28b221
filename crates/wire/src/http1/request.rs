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
    /// The client waits for `100 Continue` before it sends the body; never without one, nor in HTTP/1.0.
    pub expects_continue: bool,
}

impl<'h, 'd> RequestHead<'h, 'd> {
    /// Reads what the head says.
    ///
    /// # Errors
    /// It is malformed, or could be understood in two ways.
    pub fn read(head: Head<'h, 'd>) -> Result<Self, Refusal> {
        let mut parts = head.start_line().splitn(3, |byte| *byte == b' ');
        let (Some(method), Some(target), Some(version)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Refusal::StartLine);
        };
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(Refusal::Method);
        }
        let version = Version::read(version)?;
        check_target(method, target)?;
        let found = Found::read(head, version)?;
        // RFC 9112, section 3.2: one, and with HTTP/1.0 at most one.
        if found.hosts > 1 || found.hosts == 0 && version == Version::Http11 {
            return Err(Refusal::Host);
        }
        // RFC 9112, section 6.3: without either there is no body.
        let framing = match found.content_length {
            _ if found.chunked => Framing::Chunked,
            Some(length) if length > 0 => Framing::Length(length),
            _ => Framing::None,
        };
        let expects_continue = found.expects_continue && framing != Framing::None && version == Version::Http11;
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

    /// Appends the head as the next server is to see it: without the fields of this connection, with `extra` at the end.
    pub fn forward(&self, extra: &[(&str, &str)], out: &mut Vec<u8>) {
        fields::forward(self.head, self.head.start_line(), extra, out);
    }
}

/// RFC 9112, section 3.2: a path, an absolute URI, or `*` with OPTIONS.
fn check_target(method: &[u8], target: &[u8]) -> Result<(), Refusal> {
    if method == b"CONNECT" {
        return Err(Refusal::Connect);
    }
    let has_scheme = || target.windows(3).position(|part| part == b"://").is_some_and(|at| at > 0);
    let is_known = match target.first() {
        Some(b'/') => true,
        Some(b'*') => target == b"*" && method == b"OPTIONS",
        Some(first) => first.is_ascii_alphabetic() && has_scheme(),
        None => false,
    };
    if !is_known || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::Target);
    }
    Ok(())
}
