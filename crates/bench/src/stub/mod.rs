//! A CQL node that answers at memory speed: protocol v3 to v5, the system tables that drivers read,
//! one table, optional aggregated frames, and intended misbehaviour.
//!
//! [`Stub`] is a [`Service`]: [`serve`] runs it on sockets, tests run it in the simulation. One
//! `Stub` can be several nodes of a ring (one per listener) or one of them.
//!
//! ```text
//! bytes -> reader -> dispatch -> answer (plan, system_tables) -> writer -> bytes
//!                        |-- hook: something else than the right answer
//!                        '-- aggregate: the entries of one frame, answered in one frame
//! ```

mod aggregate;
pub mod answer;
mod args;
pub mod counts;
mod dispatch;
mod encryption;
mod failure;
pub mod hook;
pub mod plan;
mod reads;
pub mod ring;
pub mod rows;
mod selection;
pub mod serve;
mod session;
mod statements;
pub mod system_tables;
pub mod table;
pub mod value;

use std::{collections::HashMap, net::SocketAddr, sync::mpsc::SyncSender};

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::{
    envelope::{BODY_BYTES_MAX, EVENT_STREAM, Header, opcode},
    frame_v5::FrameError,
    message::{Event, encode, error_code},
};

pub use self::{
    args::StubArgs,
    counts::{Counts, NodeReport, Report},
    dispatch::AggregateLimits,
    hook::{Action, Hook},
    ring::Ring,
    rows::{Memory, Rows},
};
use self::{
    counts::ConnectionReport,
    dispatch::{Delayed, Dispatcher},
    session::Session,
};

/// Unread answers of a connection, in bytes, above which the stub stops reading from it.
const BACKLOG_BYTES: usize = 8 << 20;

/// The options of a stub: its nodes, and how they answer.
pub struct StubOptions {
    /// Ring of the nodes.
    pub ring: Ring,
    /// Index in the ring of each listener's node.
    pub listeners: Vec<usize>,
    /// Bytes of the value that a SELECT finds without a memory.
    pub answer_bytes: usize,
    /// Memory for written values, which SELECTs then return.
    pub memory: Option<Memory>,
    /// Offer and execute aggregated frames within these limits.
    pub aggregate: Option<AggregateLimits>,
    /// Accept aggregated frames only on connections to this port, and announce it in SUPPORTED.
    pub aggregate_port: Option<u16>,
    /// Answer an EXECUTE from the kind in its statement id alone, without further reading (and
    /// without the hook).
    pub echo: bool,
    /// Highest protocol version, 3 to 5.
    pub protocol_max: u8,
    /// Users and passwords; without any, the nodes ask for no login.
    pub credentials: Vec<(String, String)>,
    /// Misbehaviour.
    pub hook: Option<Hook>,
}

impl StubOptions {
    /// Options for all nodes of `ring`, one listener each, without memory and misbehaviour.
    pub fn new(ring: Ring) -> Self {
        Self {
            listeners: (0..ring.nodes.len()).collect(),
            ring,
            answer_bytes: 100,
            memory: None,
            aggregate: None,
            aggregate_port: None,
            echo: false,
            protocol_max: 5,
            credentials: Vec::new(),
            hook: None,
        }
    }
}

/// A message to a running stub, from another thread or a test.
pub enum StubMail {
    /// Send the counts so far.
    Report(SyncSender<Report>),
    /// Show this ring from now on, without an event.
    Ring(Ring),
    /// Use this hook from now on.
    Hook(Option<Hook>),
    /// Offer and execute aggregated frames from now on, or stop doing so.
    Aggregate(Option<AggregateLimits>),
    /// Make this node forget all prepared statements.
    ForgetStatements(usize),
    /// Send a STATUS_CHANGE (`UP`, `DOWN`) from all nodes to the registered connections.
    Status(&'static str, SocketAddr),
    /// Send a TOPOLOGY_CHANGE (`NEW_NODE`, `REMOVED_NODE`) to the registered connections.
    Topology(&'static str, SocketAddr),
    /// Send an EVENT with this body to the connections that registered for the kind.
    Event(String, Vec<u8>),
}

/// The nodes of a stub, behind the connections of one event loop.
pub struct Stub {
    dispatcher: Dispatcher,
    listeners: Vec<usize>,
    sessions: Vec<Option<Box<Session>>>,
    closed_counts: Vec<Counts>,
    accepted: Vec<u64>,
    delayed: HashMap<u64, Delayed>,
    /// Buffers for decompressed segments and bodies.
    scratch: Vec<u8>,
}

impl Stub {
    /// Creates a stub that waits for connections.
    pub fn new(options: StubOptions) -> Self {
        let nodes = options.ring.nodes.len();
        Self {
            listeners: options.listeners.clone(),
            dispatcher: Dispatcher::new(options),
            sessions: Vec::new(),
            closed_counts: vec![Counts::default(); nodes],
            accepted: vec![0; nodes],
            delayed: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Returns the counts so far.
    pub fn report(&self, io: &Io) -> Report {
        let node = |index: usize| {
            let mut report = NodeReport {
                counts: self.closed_counts[index],
                accepted: self.accepted[index],
                connections: Vec::new(),
            };
            for session in self.sessions.iter().flatten().filter(|session| session.node == index) {
                report.counts += &session.rest.counts;
                if let Some(peer) = session.peer.direct() {
                    let counts = session.rest.counts;
                    report.connections.push(ConnectionReport { peer, counts });
                }
            }
            report
        };
        Report {
            nodes: (0..self.closed_counts.len()).map(node).collect(),
            turns: io.counters().turns,
            writes: io.counters().writes,
        }
    }

    /// Returns the sums over all connections of all nodes.
    pub fn counts(&self) -> Counts {
        let mut total = Counts::default();
        let open = self.sessions.iter().flatten().map(|session| &session.rest.counts);
        self.closed_counts.iter().chain(open).for_each(|counts| total += counts);
        total
    }

    /// Shows another ring from now on. The stub does not listen for added nodes and sends no event.
    pub fn set_ring(&mut self, ring: &Ring) {
        self.dispatcher.set_ring(ring);
        let nodes = ring.nodes.len().max(self.accepted.len());
        self.closed_counts.resize(nodes, Counts::default());
        self.accepted.resize(nodes, 0);
    }

    /// Replaces the hook.
    pub fn set_hook(&mut self, hook: Option<Hook>) {
        self.dispatcher.hook = hook;
    }

    /// Makes a node forget all prepared statements.
    pub fn forget_statements(&mut self, node: usize) {
        if let Some(node) = self.dispatcher.nodes.get_mut(node) {
            node.forget_statements();
        }
    }

    /// Sends an EVENT with this body to the connections that registered for `kind`.
    pub fn send_event(&mut self, io: &mut Io, kind: &str, body: &[u8]) {
        for session in self.sessions.iter_mut().flatten() {
            if session.rest.registered.iter().any(|registered| registered == kind) {
                let header = Header::response(session.rest.version, EVENT_STREAM, opcode::EVENT);
                self.dispatcher.send(io, session.conn, &mut session.rest, header, body);
            }
        }
    }

    fn send(&mut self, io: &mut Io, event: &Event<'_>) {
        let mut body = Vec::new();
        encode::event(&mut body, event);
        self.send_event(io, event.kind(), &body);
    }

    fn take(&mut self, conn: ConnId) -> Option<Box<Session>> {
        let slot = self.sessions.get_mut(conn.index as usize)?;
        if slot.as_ref()?.conn == conn { slot.take() } else { None }
    }

    /// Serves the requests in `data`. Returns the number of bytes consumed, or `None` if the
    /// connection has to be closed.
    fn serve_all(
        &mut self,
        io: &mut Io,
        session: &mut Session,
        data: &[u8],
    ) -> Result<Option<usize>, FrameError> {
        let Self { dispatcher, delayed, scratch, .. } = self;
        let Session { conn, node, reader, rest, .. } = session;
        let mut envelopes = reader.read(data, scratch);
        while let Some((header, body)) = envelopes.next(BODY_BYTES_MAX, rest.compression)? {
            if dispatcher.serve(io, *conn, *node, rest, header, body, delayed).is_break() {
                return Ok(None);
            }
            envelopes.follow(&rest.output);
        }
        Ok(Some(envelopes.finish()))
    }

    fn forget(&mut self, session: &Session) {
        self.closed_counts[session.node] += &session.rest.counts;
    }
}

impl Service for Stub {
    type Mail = StubMail;

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        let listener = usize::from(origin.listener);
        let Some(&node) = self.listeners.get(listener).filter(|&&node| node < self.accepted.len())
        else {
            return io.abort(conn);
        };
        self.accepted[node] += 1;
        let index = conn.index as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(Box::new(Session::new(conn, node, origin)));
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        io.abort(conn); // a stub opens no connections
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Some(mut session) = self.take(conn) else { return data.len() };
        session.rest.counts.reads += 1;
        let outcome = self.serve_all(io, &mut session, data);
        let rest = &mut session.rest;
        let stopped = !matches!(outcome, Ok(Some(_)));
        let used = match outcome {
            Ok(used) => used.unwrap_or(data.len()),
            Err(fault) => {
                rest.counts.protocol_errors += 1;
                let mut body = Vec::new();
                encode::error(&mut body, error_code::PROTOCOL_ERROR, &fault.to_string());
                let header = Header::response(rest.version, 0, opcode::ERROR);
                self.dispatcher.send(io, conn, rest, header, &body);
                data.len()
            }
        };
        rest.counts.bytes_in += used as u64;
        if stopped {
            rest.output.finish(io.output(conn));
            io.close(conn);
            self.forget(&session);
        } else {
            if io.backlog(conn) > BACKLOG_BYTES {
                io.pause_reading(conn);
                io.notify_drained(conn, BACKLOG_BYTES / 2);
            }
            self.sessions[conn.index as usize] = Some(session);
        }
        used
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        if let Some(session) = self.take(conn) {
            self.forget(&session);
        }
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        io.resume_reading(conn);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        let Some(delayed) = self.delayed.remove(&key) else { return };
        if let Some(mut session) = self.take(delayed.conn) {
            self.dispatcher.send(
                io,
                delayed.conn,
                &mut session.rest,
                delayed.header,
                &delayed.body,
            );
            self.sessions[delayed.conn.index as usize] = Some(session);
        }
    }

    fn mail(&mut self, io: &mut Io, mail: StubMail) {
        match mail {
            // The receiver may be gone; the report is then useless.
            StubMail::Report(asked_by) => drop(asked_by.try_send(self.report(io))),
            StubMail::Ring(ring) => self.set_ring(&ring),
            StubMail::Hook(hook) => self.set_hook(hook),
            StubMail::Aggregate(limits) => self.dispatcher.aggregate = limits,
            StubMail::ForgetStatements(node) => self.forget_statements(node),
            StubMail::Status(change, address) => {
                self.send(io, &Event::StatusChange { change, address })
            }
            StubMail::Topology(change, address) => {
                self.send(io, &Event::TopologyChange { change, address })
            }
            StubMail::Event(kind, body) => self.send_event(io, &kind, &body),
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        while let Some(conn) = self.dispatcher.unfinished.pop() {
            if let Some(mut session) = self.take(conn) {
                session.rest.unfinished = false;
                session.rest.output.finish(io.output(conn));
                self.sessions[conn.index as usize] = Some(session);
            }
        }
    }
}
