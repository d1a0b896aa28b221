//! One connection of the load generator: its handshake, and the stream ids that are in use.

use shunt_reactor::ConnId;

use shunt_wire::cql::framing::{Input, Output};

/// How far a connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Not begun, or waiting to be connected again.
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
    /// Waits until the table is there.
    Gate,
    PrepareInsert,
    PrepareSelect,
    /// Queries may be sent.
    Ready,
}

/// A query in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// When it was sent, or should have been; 0 = the stream id is free.
    pub(super) intended_ns: u64,
    pub(super) key: u64,
    pub(super) select: bool,
}

/// A connection's state.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) input: Input,
    pub(super) rest: SessionRest,
}

/// What answers change, apart from the input that is being read meanwhile.
#[derive(Debug)]
pub(super) struct SessionRest {
    pub(super) index: usize,
    pub(super) conn: ConnId,
    pub(super) step: Step,
    pub(super) output: Output,
    pub(super) slots: Vec<Slot>,
    pub(super) in_flight: u32,
    pub(super) unfinished: bool,
    /// Failed attempts in a row to connect or prepare.
    pub(super) attempts: u32,
}

/// Names no connection.
pub(super) const NO_CONNECTION: ConnId = ConnId { index: u32::MAX, generation: 0 };

impl Session {
    pub(super) fn new(index: usize, outstanding: u32) -> Self {
        let rest = SessionRest {
            index,
            conn: NO_CONNECTION,
            step: Step::Idle,
            output: Output::default(),
            slots: vec![Slot::default(); outstanding as usize],
            in_flight: 0,
            unfinished: false,
            attempts: 0,
        };
        Self { input: Input::default(), rest }
    }

    /// Back to before the connect; returns how many queries were in flight.
    pub(super) fn reset(&mut self) -> u32 {
        let lost = self.rest.in_flight;
        self.input = Input::default();
        self.rest.output = Output::default();
        self.rest.slots.fill(Slot::default());
        self.rest.conn = NO_CONNECTION;
        self.rest.step = Step::Idle;
        self.rest.in_flight = 0;
        self.rest.unfinished = false;
        lost
    }
}
