//! One connection to a node: state of its handshake, framing, and registrations.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shunt_reactor::ConnId;
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::cql::writer::EnvelopeWriter;

use crate::execute::ClientState;

/// Stage of the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Before STARTUP.
    New,
    /// Requests are served.
    Open,
    /// An error was sent; the node reads no further.
    Closing,
}

/// Kinds of events that a client registered for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Registered {
    pub(super) schema: bool,
    /// Topology and status: accepted but never sent, because the nodes of one process come and go
    /// together.
    pub(super) ring: bool,
}

/// A connection's state.
pub(super) struct Session {
    pub(super) conn: ConnId,
    pub(super) reader: EnvelopeReader,
    pub(super) rest: SessionRest,
}

/// State changed by requests; separate from the reader, which is in use at the same time.
pub(super) struct SessionRest {
    pub(super) stage: Stage,
    pub(super) version: u8,
    pub(super) output: EnvelopeWriter,
    /// Compression of bodies (v3, v4), including entries of aggregated frames.
    pub(super) compression: Option<Algorithm>,
    /// State shared by statements of this connection: the keyspace of USE.
    pub(super) client: ClientState,
    pub(super) registered: Registered,
    /// True if the output's open segment is already on the list to finish this turn.
    pub(super) unfinished: bool,
    /// The client does not read its answers, and is not read from until it does.
    pub(super) held: bool,
    /// The connection carries aggregated frames.
    pub(super) frames: bool,
    /// The backlog is so large that the connection is to be closed.
    pub(super) deaf: bool,
    /// Number of its requests at workers.
    pub(super) handed_over: u32,
    /// Set when the connection is closed: workers then drop its requests. Created with the first
    /// such request.
    gone: Option<Arc<AtomicBool>>,
}

impl SessionRest {
    /// False if the next request stays unread: temporarily, or because the connection ends.
    #[inline]
    pub(super) fn takes_requests(&self) -> bool {
        !self.held && !self.deaf && self.stage != Stage::Closing
    }

    /// Returns the flag that tells workers that the client is gone.
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
