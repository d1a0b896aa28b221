//! Connections to a node: bytes in, answers out.
//!
//! ```text
//! bytes -> reader -> handshake
//!                 -> requests  -> execute -> writer -> bytes
//!                 -> aggregate -> execute, entry by entry -> one frame of answers
//!                                  |-- writes: gathered, executed together at the end of the turn
//!                                  '-- blocking requests: hand_over -> workers -> answers -> bytes
//! ```
//!
//! One [`NodeService`] serves the connections of one event loop. Answers that wait for the disk are
//! ordered by their place in the log and leave when the store reports that place durable; nothing
//! here blocks.

mod aggregate;
mod deferred_answers;
mod hand_over;
mod handshake;
mod requests;
mod session;
pub(crate) mod workers;

use std::collections::VecDeque;
use std::sync::Arc;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::aggregate::Limits;
use shunt_wire::cql::envelope::{EVENT_STREAM, Header, opcode};
use shunt_wire::cql::frame_v5::FrameError;
use shunt_wire::cql::message::{encode, error_code};

use crate::execute::Executor;
use crate::limits;
use crate::mail::NodeMail;
use crate::metrics::{LoopMetrics, RequestKind};
use deferred_answers::HeldAnswers;
use requests::Waiting;
use session::{Session, SessionRest, Stage};
use workers::WorkerLink;

/// Limits of aggregated frames that a node offers in SUPPORTED.
pub const AGGREGATE_LIMITS: Limits = Limits { count_max: 1024, bytes_max: 1 << 20 };

/// The only timer of a loop.
const TICK: u64 = 1;

/// The connections of one event loop to one node.
pub struct NodeService {
    executor: Executor,
    /// Link for passing requests to workers and receiving answers.
    workers: WorkerLink,
    sessions: Vec<Option<Box<Session>>>,
    /// Connections whose output has an open segment.
    unfinished: Vec<ConnId>,
    /// Answers waiting for the durability of their writes, in log order.
    waiting: VecDeque<Waiting>,
    /// Answers to writes that are executed when the turn ends.
    held: HeldAnswers,
    /// Buffer for decompressed segments and bodies.
    scratch: Vec<u8>,
    /// Buffer for the current body.
    body: Vec<u8>,
    draining: bool,
    metrics: Arc<LoopMetrics>,
}

impl NodeService {
    /// A node's service without connections.
    pub(crate) fn new(executor: Executor, workers: WorkerLink, metrics: Arc<LoopMetrics>) -> Self {
        Self {
            executor,
            workers,
            sessions: Vec::new(),
            unfinished: Vec::new(),
            waiting: VecDeque::new(),
            held: HeldAnswers::default(),
            scratch: Vec::new(),
            body: Vec::new(),
            draining: false,
            metrics,
        }
    }

    fn take(&mut self, conn: ConnId) -> Option<Box<Session>> {
        let slot = self.sessions.get_mut(conn.index as usize)?;
        if slot.as_ref()?.conn == conn { slot.take() } else { None }
    }

    fn count(&self, opcode: u8) {
        let kind = match opcode {
            opcode::QUERY => RequestKind::Query,
            opcode::EXECUTE => RequestKind::Execute,
            opcode::BATCH => RequestKind::Batch,
            opcode::PREPARE => RequestKind::Prepare,
            _ => RequestKind::Other,
        };
        self.metrics.requests.of(kind).add(1);
    }

    /// Appends a response to the connection's output.
    fn send(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) {
        if header.opcode == opcode::ERROR {
            self.metrics.errors.add(1);
        }
        rest.output.push(io.output(conn), header, body);
        if rest.output.is_segmented() && !rest.unfinished {
            rest.unfinished = true;
            self.unfinished.push(conn);
        }
        self.watch_backlog(io, conn, rest);
    }

    /// Checks a connection after output was added: a client with a large backlog is no longer read
    /// from, and one with too large a backlog (possibly from answers to earlier requests) is marked
    /// for disconnection.
    fn watch_backlog(&self, io: &mut Io, conn: ConnId, rest: &mut SessionRest) {
        let backlog = io.backlog(conn);
        if backlog > limits::CLIENT_BACKLOG_BYTES && !rest.held {
            rest.held = true;
            io.pause_reading(conn);
            io.notify_drained(conn, limits::CLIENT_BACKLOG_BYTES / 2);
        }
        // A connection with aggregated frames has many clients behind it.
        let most = if rest.frames {
            limits::LOOP_BACKLOG_BYTES_MAX
        } else {
            limits::CLIENT_BACKLOG_BYTES_MAX
        };
        rest.deaf |= backlog > most;
    }

    /// Puts a session back, or ends it if its backlog is too large.
    fn put_back(&mut self, io: &mut Io, session: Box<Session>) {
        if session.rest.deaf {
            return self.cut_off(io, &session);
        }
        let index = session.conn.index as usize;
        self.sessions[index] = Some(session);
    }

    fn cut_off(&self, io: &mut Io, session: &Session) {
        let (client, bytes) = (session.rest.client.address, io.backlog(session.conn));
        tracing::warn!(?client, bytes, "cut off a client that does not take its answers");
        self.metrics.cut_off.add(1);
        io.abort(session.conn);
    }

    /// Disconnects the clients with the largest backlogs while the total is too large.
    fn bound_backlogs(&mut self, io: &mut Io) {
        let mut backlogs: Vec<(usize, ConnId)> = self
            .sessions
            .iter()
            .flatten()
            .map(|session| (io.backlog(session.conn), session.conn))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        let mut total: usize = backlogs.iter().map(|(bytes, _)| bytes).sum();
        if total <= limits::LOOP_BACKLOG_BYTES_MAX {
            return;
        }
        backlogs.sort_unstable_by_key(|(bytes, _)| *bytes);
        while total > limits::LOOP_BACKLOG_BYTES_MAX
            && let Some((bytes, conn)) = backlogs.pop()
        {
            total -= bytes;
            if let Some(session) = self.take(conn) {
                self.cut_off(io, &session);
            }
        }
    }

    /// Answers with an error that ends the connection.
    fn refuse(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        problem: &str,
    ) {
        tracing::debug!(problem, "refused a client");
        self.metrics.protocol_errors.add(1);
        let mut body = Vec::new();
        encode::error(&mut body, error_code::PROTOCOL_ERROR, problem);
        self.send(
            io,
            conn,
            rest,
            Header::response(header.version, header.stream, opcode::ERROR),
            &body,
        );
        rest.stage = Stage::Closing;
    }

    /// Reads the carried-over bytes and `data`, until the connection accepts no more requests,
    /// which may be in the middle of a segment. Returns the consumed part of `data`.
    fn read(&mut self, io: &mut Io, mut session: Box<Session>, data: &[u8]) -> usize {
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self.serve_all(io, &mut session, data, &mut scratch);
        self.scratch = scratch;
        let Session { conn, rest, .. } = &mut *session;
        let used = outcome.unwrap_or_else(|fault| {
            let header = Header::request(rest.version.max(3), 0, opcode::ERROR);
            self.refuse(io, *conn, rest, header, &fault.to_string());
            data.len()
        });
        // Like `turn_ended`: the connection may be closed before.
        if rest.stage == Stage::Closing {
            rest.output.finish(io.output(*conn));
            io.close(*conn);
            return data.len();
        }
        self.put_back(io, session);
        used
    }

    fn serve_all(
        &mut self,
        io: &mut Io,
        session: &mut Session,
        data: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<usize, FrameError> {
        let Session { conn, reader, rest } = session;
        let mut envelopes = reader.read(data, scratch);
        while rest.takes_requests() {
            // An unknown version may have its length elsewhere.
            if rest.version == 0
                && let Some(header) = envelopes.header()?
                && !is_spoken(&header)
            {
                self.refuse_version(io, *conn, rest, header);
                break;
            }
            let Some((header, body)) =
                envelopes.next(limits::REQUEST_BYTES_MAX, rest.compression)?
            else {
                break;
            };
            self.serve(io, *conn, rest, header, body);
            envelopes.follow(&rest.output);
        }
        Ok(envelopes.finish())
    }

    fn serve(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) {
        if !is_spoken(&header) {
            return self.refuse_version(io, conn, rest, header);
        }
        if rest.version != 0 && rest.version != header.version {
            return self.refuse(
                io,
                conn,
                rest,
                header,
                "the version of a connection cannot change",
            );
        }
        match (rest.stage, header.opcode) {
            (Stage::Open, opcode::QUERY | opcode::EXECUTE | opcode::PREPARE | opcode::BATCH) => {
                self.request(io, conn, rest, header, body)
            }
            (Stage::Open, opcode::AGGREGATE) => self.aggregate(io, conn, rest, header, body),
            _ => {
                self.metrics.requests.of(RequestKind::Other).add(1);
                self.handshake(io, conn, rest, header, body)
            }
        }
    }

    fn schema_event(&mut self, io: &mut Io, body: &[u8]) {
        let registered =
            self.sessions.iter().flatten().filter(|session| session.rest.registered.schema);
        let conns: Vec<ConnId> = registered.map(|session| session.conn).collect();
        for conn in conns {
            let Some(mut session) = self.take(conn) else { continue };
            let header = Header::response(session.rest.version, EVENT_STREAM, opcode::EVENT);
            self.send(io, conn, &mut session.rest, header, body);
            self.put_back(io, session);
        }
    }

    /// Closes idle connections without unsent answers; the loop ends with the last of them.
    fn drain_step(&mut self, io: &mut Io) {
        if !self.draining {
            return;
        }
        let waiting = &self.waiting;
        let idle = self.sessions.iter().flatten().filter(|session| session.rest.handed_over == 0);
        let idle = idle.map(|session| session.conn).filter(|conn| io.backlog(*conn) == 0);
        let idle: Vec<ConnId> =
            idle.filter(|conn| !waiting.iter().any(|waiting| waiting.conn() == *conn)).collect();
        for conn in idle {
            self.take(conn);
            io.close(conn);
        }
        if io.connections() == 0 {
            io.stop();
        }
    }
}

/// True for a request header in a version that the node supports.
fn is_spoken(header: &Header) -> bool {
    !header.response && (3..=5).contains(&header.version)
}

impl Service for NodeService {
    type Mail = NodeMail;

    fn started(&mut self, io: &mut Io) {
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, accepted: &Accepted) {
        if self.draining {
            io.close(conn);
            return;
        }
        self.metrics.accepted.add(1);
        let index = conn.index as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(Box::new(Session::new(conn, accepted.peer.ip())));
    }

    fn connected(&mut self, _: &mut Io, _: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Some(session) = self.take(conn) else { return data.len() };
        self.read(io, session, data)
    }

    fn closed(&mut self, _: &mut Io, conn: ConnId, _: CloseReason) {
        self.take(conn);
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        let Some(mut session) = self.take(conn) else { return };
        session.rest.held = false;
        // The reader has the rest of a segment: no further byte may arrive for it.
        if session.reader.carried_bytes() > 0 {
            self.read(io, session, &[]);
        } else {
            self.put_back(io, session);
        }
        let session = self.sessions.get(conn.index as usize).and_then(Option::as_ref);
        if session.is_some_and(|session| session.conn == conn && !session.rest.held) {
            io.resume_reading(conn);
        }
    }

    /// A report of durable writes may be lost when the mailbox is full: waiting answers are checked
    /// here too.
    fn timer(&mut self, io: &mut Io, key: u64) {
        if key == TICK {
            self.became_durable(io, self.executor.durable());
            if let Some(why) =
                self.waiting.front().and_then(|first| self.executor.lost(first.durable_at()))
            {
                self.lost_durability(io, &why);
            }
            self.bound_backlogs(io);
            io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
        }
    }

    fn mail(&mut self, io: &mut Io, mail: NodeMail) {
        match mail {
            NodeMail::Durable(place) => self.became_durable(io, place),
            NodeMail::DurabilityLost(why) => self.lost_durability(io, &why),
            NodeMail::SchemaEvent(body) => self.schema_event(io, &body),
            NodeMail::Answers => self.answers_came(io),
            NodeMail::Drain => self.draining = true,
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        self.finish_gathered(io);
        // A report of answers may be lost when the mailbox is full.
        if self.workers.has_answers() {
            self.answers_came(io);
        }
        while let Some(conn) = self.unfinished.pop() {
            let Some(mut session) = self.take(conn) else { continue };
            session.rest.unfinished = false;
            session.rest.output.finish(io.output(conn));
            self.sessions[conn.index as usize] = Some(session);
        }
        self.metrics.turns.add(1);
        self.metrics.connections.set(io.connections() as u64);
        self.metrics.waiting.set(self.waiting.len() as u64);
        self.drain_step(io);
    }
}
