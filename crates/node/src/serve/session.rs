//! One connection to a node: how far its handshake is, how its bytes are framed, what it registered
//! for.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shunt_reactor::ConnId;
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::cql::writer::EnvelopeWriter;

use crate::execute::ClientState;

/// How far the handshake is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Before STARTUP.
    New,
    /// Requests are served.
    Open,
    /// An error was sent; nothing more is read.
    Closing,
}

/// Kinds of events a client can register for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Registered {
    pub(super) schema: bool,
    /// Topology and status: accepted, and never sent, because the nodes of one process come and go
    /// together.
    pub(super) ring: bool,
}

/// A connection's state.
pub(super) struct Session {
    pub(super) conn: ConnId,
    pub(super) reader: EnvelopeReader,
    pub(super) rest: SessionRest,
}

/// The state that requests change; apart from the reader, which is in use meanwhile.
pub(super) struct SessionRest {
    pub(super) stage: Stage,
    pub(super) version: u8,
    pub(super) output: EnvelopeWriter,
    /// Compression of bodies (v3, v4), for the entries of aggregated frames too.
    pub(super) compression: Option<Algorithm>,
    /// The state that statements of this connection share: the keyspace of USE.
    pub(super) client: ClientState,
    pub(super) registered: Registered,
    /// True if the output's open segment is already on the list of those to finish this turn.
    pub(super) unfinished: bool,
    /// It does not take its answers, and is not read from until it does.
    pub(super) held: bool,
    /// Aggregated frames come on it.
    pub(super) frames: bool,
    /// It has left so much that it is to be cut off.
    pub(super) deaf: bool,
    /// Requests of it that are with workers.
    pub(super) handed_over: u32,
    /// Set when the connection is closed: workers do no more for it. Made when the first request is
    /// handed over.
    gone: Option<Arc<AtomicBool>>,
}

impl SessionRest {
    /// False if the next request stays unread: for now, or because the connection ends.
    #[inline]
    pub(super) fn takes_requests(&self) -> bool {
        !self.held && !self.deaf && self.stage != Stage::Closing
    }

    /// Returns the flag that tells workers that nobody waits any more.
    pub(super) fn gone(&mut self) -> Arc<AtomicBool> {
        Arc::clone(self.gone.get_or_insert_default())
    }
}

impl Drop for SessionRest {
    fn drop(&mut self) {
        if let Some(gone) = &self.gone {
            gone.store(true, Ordering::Relaxed);
        }
    }
}

impl Session {
    pub(super) fn new(conn: ConnId, client: IpAddr) -> Self {
        let rest = SessionRest {
            stage: Stage::New,
            version: 0,
            output: EnvelopeWriter::default(),
            compression: None,
            client: ClientState { address: Some(client), ..ClientState::default() },
            registered: Registered::default(),
            unfinished: false,
            held: false,
            frames: false,
            deaf: false,
            handed_over: 0,
            gone: None,
        };
        Self { conn, reader: EnvelopeReader::default(), rest }
    }
}
