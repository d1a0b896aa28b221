//! Encryption of a connection, as the loop and the acceptor see it. The protocol itself (TLS) lives
//! in a crate above; the simulation has a session of its own that tears, pads and joins records.
//!
//! A session does no I/O. The loop gives it the bytes of the socket and presents to the service
//! what it opens; at the end of a turn the loop has it seal the output, and writes the result.

use std::fmt;
use std::io;

/// Result of [`Session::open`].
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Opened {
    /// Leading bytes that the session is done with. The rest is part of a record: the caller
    /// presents it again with more bytes behind it.
    pub consumed: usize,
    /// True if the peer has announced the end of its stream. Later bytes are ignored.
    pub ended: bool,
}

/// The reason why a session cannot go on, as a phrase for the log without a full stop: `the peer's
/// certificate has expired`.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct SessionFault(pub &'static str);

impl fmt::Display for SessionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SessionFault {}

impl From<SessionFault> for io::Error {
    fn from(fault: SessionFault) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, fault)
    }
}

/// Facts about a session after its handshake, for logs and `/status`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SessionInfo {
    /// Version of the protocol, such as `TLSv1.3`.
    pub version: &'static str,
    /// Name of the cipher suite.
    pub cipher: &'static str,
    /// True if the handshake resumed an earlier session.
    pub resumed: bool,
    /// Name that the client asked for (SNI).
    pub server_name: Option<Box<str>>,
    /// Names that the peer's verified certificate carries, the most specific first: URIs, DNS
    /// names, e-mail addresses, then the common name. Empty without a certificate.
    pub peer_names: Vec<PeerName>,
}

/// Kinds of names in a certificate.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NameKind {
    /// A URI of the subject's alternative names.
    Uri,
    /// A DNS name of the subject's alternative names.
    Dns,
    /// An e-mail address of the subject's alternative names.
    Email,
    /// A common name of the subject.
    CommonName,
}

/// A name in a certificate. Names of two kinds differ, even with the same text.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PeerName {
    /// Kind of the name.
    pub kind: NameKind,
    /// The name itself, as the certificate has it.
    pub text: Box<str>,
}

impl PeerName {
    /// A name of this kind.
    pub fn new(kind: NameKind, text: &str) -> PeerName {
        PeerName { kind, text: text.into() }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            NameKind::Uri => "URI:",
            NameKind::Dns => "DNS:",
            NameKind::Email => "email:",
            NameKind::CommonName => "CN=",
        };
        write!(f, "{prefix}{}", self.text)
    }
}

/// One side of an encrypted connection.
pub trait Session: Send {
    /// Opens the records at the start of `received`, which it may overwrite, and appends their
    /// content to `plain`. Handshake records have no content; what they are to be answered with is
    /// [pending](Session::take_pending) afterwards.
    ///
    /// # Errors
    /// The peer broke the protocol, or the handshake failed. An alert for the peer may be pending.
    /// The session must not be used for anything else afterwards.
    fn open(&mut self, received: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, SessionFault>;

    /// Appends `plain` to `out` as records. Must not be called during the handshake.
    ///
    /// # Errors
    /// The session has used up its keys, or has ended.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionFault>;

    /// True if the session has bytes for the peer that no caller asked it to seal: parts of the
    /// handshake, updates of keys, alerts.
    fn has_pending(&self) -> bool;

    /// Appends these bytes to `out`.
    fn take_pending(&mut self, out: &mut Vec<u8>);

    /// True until both sides can send and receive.
    fn is_handshaking(&self) -> bool;

    /// Appends to `out` the announcement that nothing follows.
    fn end(&mut self, out: &mut Vec<u8>);

    /// Facts about the session; empty during the handshake.
    fn info(&self) -> &SessionInfo;

    /// Memory that the session holds, in bytes, itself included. An estimate.
    fn bytes(&self) -> usize;
}
