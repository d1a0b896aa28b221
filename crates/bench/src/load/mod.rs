//! The load generator: many connections with queries in flight, in a closed or an open loop, on one
//! event loop.
//!
//! [`Load`] is a [`Service`] like the proxy itself. So it costs less than what it measures, and
//! runs in the simulation too. [`command`] runs it on sockets.
//!
//! ```text
//! connect -> handshake (session, ring) -> prepare -> [populate] -> warm up -> round, round, .. -> drain
//!                                                             |  queries: mix, keys, template, pace
//!                                                             '  answers: checked, counted, timed
//! ```

mod args;
mod arrivals;
pub mod command;
pub mod distribution;
mod etcd;
mod foreign;
mod generator;
mod growth;
mod handshake;
pub mod keys;
mod locks;
pub mod mix;
mod operations;
mod moves;
mod options;
pub mod pace;
mod pairs;
mod permutation;
mod redis;
mod report;
pub mod result;
mod ring;
mod routes;
mod session;
pub mod template;
mod traffic;
mod timers;
mod transfers;
mod verify;
pub mod watch;
mod zipf;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

pub use self::{
    args::{CompressionChoice, LoadArgs},
    distribution::Distribution,
    generator::{Mark, Phase},
    locks::{LockKind, LockOptions},
    mix::{Mix, Operation, Workload},
    options::LoadOptions,
    report::{Latency, NodeSide, OperationReport, ProcessReport, RoundReport},
    result::{LoadCounts, OperationLatency, Round},
    transfers::TransferKind,
};
use self::{
    generator::Generator,
    session::{Session, Step},
    timers::{TIMER_ARRIVAL, TIMER_PHASE, TIMER_SESSION, TIMER_STALL},
};
use shunt_wire::cql::{envelope::BODY_BYTES_MAX, frame_v5::FrameError};

/// Most connects under way at once.
const CONNECTING_MAX: usize = 512;
const CONNECT_TIMEOUT_NS: u64 = 5_000_000_000;
/// Pause before another attempt to connect.
const RETRY_NS: u64 = 200_000_000;
/// Failed attempts in a row after which the run is given up.
const ATTEMPTS_MAX: u32 = 50;

/// A load on one event loop.
pub struct Load {
    generator: Generator,
    sessions: Vec<Session>,
    /// Session of each connection, by the connection's index.
    session_of: Vec<u32>,
    connecting: usize,
    next_to_connect: usize,
    /// Buffers for decompressed segments and bodies.
    scratch: Vec<u8>,
}

impl Load {
    /// Creates a load that begins when its loop starts. `observer` is called at the begin and end
    /// of rounds.
    pub fn new(options: LoadOptions, observer: Box<dyn FnMut(Mark)>) -> Self {
        let sessions =
            (0..options.connections as usize).map(|index| Session::new(index, &options)).collect();
        Self {
            generator: Generator::new(options, observer),
            sessions,
            session_of: Vec::new(),
            connecting: 0,
            next_to_connect: 0,
            scratch: Vec::new(),
        }
    }

    /// Calls `reader` with each round when the round is over.
    #[must_use]
    pub fn with_reader(mut self, reader: impl FnMut(&Round) + 'static) -> Self {
        self.generator.reader = Some(Box::new(reader));
        self
    }

    /// Returns the phase of the run.
    pub fn phase(&self) -> Phase {
        self.generator.phase
    }

    /// Counts since the start, warm-up included.
    pub fn counts(&self) -> &LoadCounts {
        &self.generator.counts
    }

    /// Returns the measured rounds so far.
    pub fn rounds(&self) -> &[Round] {
        &self.generator.rounds
    }

    /// Returns the reason why the run was given up, if it was.
    pub fn failure(&self) -> Option<&str> {
        self.generator.failure.as_deref()
    }

    fn connect_more(&mut self, io: &mut Io) {
        while self.connecting < CONNECTING_MAX && self.next_to_connect < self.sessions.len() {
            self.connect(io, self.next_to_connect);
            self.next_to_connect += 1;
        }
    }

    fn connect(&mut self, io: &mut Io, index: usize) {
        let target = self.generator.options.targets[self.sessions[index].rest.target];
        let conn = match &self.generator.options.tls {
            None => io.connect(target, CONNECT_TIMEOUT_NS),
            Some(tls) => io.connect_with(target, CONNECT_TIMEOUT_NS, tls.session(target, index)),
        };
        let slot = conn.index as usize;
        if self.session_of.len() <= slot {
            self.session_of.resize(slot + 1, u32::MAX);
        }
        self.session_of[slot] = index as u32;
        self.sessions[index].rest.conn = conn;
        self.sessions[index].rest.step = Step::Connecting;
        self.connecting += 1;
    }

    /// Handles the end of a connection.
    fn lost(&mut self, io: &mut Io, conn: ConnId, why: &str) {
        let index = self.session_of.get(conn.index as usize).copied().unwrap_or(u32::MAX);
        let session =
            self.sessions.get_mut(index as usize).filter(|session| session.rest.conn == conn);
        let Some(session) = session else { return };
        match session.rest.step {
            Step::Connecting => self.connecting -= 1,
            Step::Ready => self.generator.session_lost(&session.rest.slots),
            _ => {}
        }
        session.reset();
        session.rest.attempts += 1;
        let (index, attempts) = (session.rest.index, session.rest.attempts);
        if attempts >= ATTEMPTS_MAX {
            let target = self.generator.options.targets[session.rest.target];
            self.generator.fail(io, format!("no usable connection to {target}: {why}"));
        } else {
            io.set_timer(io.now_ns() + RETRY_NS, TIMER_SESSION + index as u64);
        }
    }
}

/// Reads the answers in `data`. Returns the number of bytes consumed, or `None` if the connection
/// is unusable.
fn take_all(
    generator: &mut Generator,
    io: &mut Io,
    session: &mut Session,
    data: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<Option<usize>, FrameError> {
    let Session { reader, rest } = session;
    let mut envelopes = reader.read(data, scratch);
    // Cassandra already compresses the answer to STARTUP.
    while let Some((header, body)) =
        envelopes.next(BODY_BYTES_MAX, generator.options.compression)?
    {
        if generator.envelope(io, rest, header, body).is_break() {
            return Ok(None);
        }
        envelopes.follow(&rest.output);
    }
    Ok(Some(envelopes.finish()))
}

impl Service for Load {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.generator.started(io);
        self.connect_more(io);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _origin: &Accepted) {
        io.abort(conn); // a load generator accepts no connections
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.connecting = self.connecting.saturating_sub(1);
        let Self { generator, sessions, session_of, .. } = self;
        let index = session_of.get(conn.index as usize).copied().unwrap_or(u32::MAX);
        if let Some(session) = sessions.get_mut(index as usize) {
            generator.send_startup(io, &mut session.rest);
        }
        self.connect_more(io);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Self { generator, sessions, session_of, scratch, .. } = self;
        let index = session_of.get(conn.index as usize).copied().unwrap_or(u32::MAX);
        let Some(session) =
            sessions.get_mut(index as usize).filter(|session| session.rest.conn == conn)
        else {
            return data.len();
        };
        let taken = match generator.foreign() {
            Some(foreign) => generator.take_foreign(io, &mut session.rest, foreign, data).map(Some),
            None => {
                take_all(generator, io, session, data, scratch).map_err(|fault| fault.to_string())
            }
        };
        let why = match taken {
            Ok(Some(used)) => return used,
            Ok(None) => "the handshake failed".to_owned(),
            Err(fault) => {
                generator.counts.wrong_answers += 1;
                fault
            }
        };
        io.abort(conn);
        self.lost(io, conn, &why);
        data.len()
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        self.lost(io, conn, &format!("{reason:?}"));
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, key: u64) {
        match key {
            TIMER_PHASE => self.generator.phase_timer(io),
            TIMER_ARRIVAL => self.generator.arrival_timer(),
            TIMER_STALL => self.generator.stall_timer(io),
            _ => {
                let index = (key.saturating_sub(TIMER_SESSION)) as usize;
                let Some(session) = self.sessions[..self.next_to_connect].get_mut(index) else {
                    return;
                };
                match session.rest.step {
                    Step::Idle => self.connect(io, index),
                    Step::Prepare => self.generator.send_prepare(io, &mut session.rest),
                    _ => {}
                }
            }
        }
    }

    fn mail(&mut self, _io: &mut Io, (): ()) {}

    fn turn_ended(&mut self, io: &mut Io) {
        self.generator.turn_ended(io, &mut self.sessions);
    }
}
