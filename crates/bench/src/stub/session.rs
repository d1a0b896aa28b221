//! A connection to a stub node: handshake, framing, registrations, counts.

use shunt_reactor::{Accepted, ClientAddress, ConnId};
use shunt_wire::cql::{
    compression::Algorithm, envelope::Header, reader::EnvelopeReader, writer::EnvelopeWriter,
};

use crate::stub::counts::Counts;

/// Stage of the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Before STARTUP.
    New,
    /// AUTHENTICATE was sent.
    Login,
    /// Queries are served.
    Open,
}

/// A connection's state.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) conn: ConnId,
    pub(super) node: usize,
    pub(super) peer: ClientAddress,
    pub(super) reader: EnvelopeReader,
    pub(super) rest: SessionRest,
}

/// The part of a session that requests change. The reader is separate, because it is borrowed
/// meanwhile.
#[derive(Debug)]
pub(super) struct SessionRest {
    pub(super) stage: Stage,
    /// Port of the node that the client connected to.
    pub(super) port: u16,
    pub(super) version: u8,
    pub(super) output: EnvelopeWriter,
    pub(super) keyspace: Option<String>,
    pub(super) registered: Vec<String>,
    pub(super) counts: Counts,
    /// True if the output's open segment is on the list of those to finish in this turn.
    pub(super) unfinished: bool,
    /// Compression of bodies (v3, v4), including entries of aggregated frames.
    pub(super) compression: Option<Algorithm>,
}

impl Session {
    pub(super) fn new(conn: ConnId, node: usize, origin: &Accepted) -> Self {
        let rest = SessionRest {
            stage: Stage::New,
            port: origin.local.port(),
            version: 4,
            output: EnvelopeWriter::default(),
            keyspace: None,
            registered: Vec::new(),
            counts: Counts::default(),
            unfinished: false,
            compression: None,
        };
        Self { conn, node, peer: origin.peer, reader: EnvelopeReader::default(), rest }
    }
}

/// Builds the header of a response to `request`.
pub(super) fn response_to(request: Header, opcode: u8) -> Header {
    Header::response(request.version, request.stream, opcode)
}
