//! A connection of the load generator: its handshake, and the stream ids in use.

use shunt_reactor::ConnId;

use shunt_wire::cql::{reader::EnvelopeReader, writer::EnvelopeWriter};

use crate::load::{etcd, mix::Operation, options::LoadOptions, template::Statement};

/// Stage of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Not started, or waiting for another attempt.
    Idle,
    Connecting,
    /// STARTUP was sent.
    Startup,
    /// AUTH_RESPONSE was sent.
    Login,
    /// CREATE KEYSPACE was sent.
    CreateKeyspace,
    /// CREATE TABLE was sent.
    CreateTable,
    /// `system.local` was queried, for routing.
    ReadLocal,
    /// `system.peers_v2` was queried.
    ReadPeers,
    /// `system.peers` was queried, because the server lacks `system.peers_v2`.
    ReadOldPeers,
    /// The keyspace's replication was queried.
    ReadKeyspace,
    /// Waits until the table exists and the ring is known.
    Gate,
    /// The statement number `preparing` was sent.
    Prepare,
    /// Queries may be sent.
    Ready,
}

/// A query in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// Time at which its operation was or should have been sent; 0 = the stream id is free.
    pub(super) intended_ns: u64,
    /// Key of the query; the first one for a multiget.
    pub(super) key: u64,
    pub(super) operation: Operation,
    pub(super) statement: Statement,
}

/// State of a connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) reader: EnvelopeReader,
    pub(super) rest: SessionRest,
}

/// The part of a session that answers change. The reader is separate, because it is borrowed
/// meanwhile.
#[derive(Debug)]
pub(super) struct SessionRest {
    pub(super) index: usize,
    /// Index of the connected target.
    pub(super) target: usize,
    pub(super) conn: ConnId,
    pub(super) step: Step,
    /// Position in the list of statements to prepare.
    pub(super) preparing: usize,
    pub(super) output: EnvelopeWriter,
    pub(super) slots: Vec<Slot>,
    /// Keys of multigets, a fixed number per stream id.
    pub(super) keys: Vec<u64>,
    pub(super) in_flight: u32,
    pub(super) unfinished: bool,
    /// The HTTP/2 connection, for etcd.
    pub(super) http: etcd::Connection,
    /// Failed attempts in a row to connect or prepare.
    pub(super) attempts: u32,
}

/// A placeholder for no connection.
pub(super) const NO_CONNECTION: ConnId = ConnId { index: u32::MAX, generation: 0 };

impl Session {
    pub(super) fn new(index: usize, options: &LoadOptions) -> Self {
        let outstanding = options.outstanding as usize;
        let multigets = options.mix().share(Operation::Multiget) > 0.0;
        let keys_each = if multigets { usize::from(options.multiget) } else { 0 };
        let rest = SessionRest {
            index,
            target: index % options.targets.len(),
            conn: NO_CONNECTION,
            step: Step::Idle,
            preparing: 0,
            output: EnvelopeWriter::default(),
            slots: vec![Slot::default(); outstanding],
            keys: vec![0; outstanding * keys_each],
            in_flight: 0,
            unfinished: false,
            http: etcd::Connection::default(),
            attempts: 0,
        };
        Self { reader: EnvelopeReader::default(), rest }
    }

    /// Returns the session to the state before its connect.
    pub(super) fn reset(&mut self) {
        self.reader = EnvelopeReader::default();
        self.rest.output = EnvelopeWriter::default();
        self.rest.slots.fill(Slot::default());
        self.rest.conn = NO_CONNECTION;
        self.rest.step = Step::Idle;
        self.rest.in_flight = 0;
        self.rest.unfinished = false;
        self.rest.http = etcd::Connection::default();
    }
}
