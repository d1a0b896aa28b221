//! Execution of requests, and answers that wait for the disk.

use shunt_reactor::{ConnId, Io};
use shunt_wire::aggregate::AggregateWriter;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{encode, error_code};

use super::session::SessionRest;
use super::{AGGREGATE_LIMITS, NodeService};
use crate::execute::{Outcome, Request};
use crate::trace::Trace;

/// Destination of an answer.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// A separate envelope.
    Envelope { conn: ConnId },
    /// An aggregated frame, for this client of the connected proxy.
    Entry { conn: ConnId, client_id: u32 },
}

impl Place {
    pub(super) fn conn(self) -> ConnId {
        match self {
            Place::Envelope { conn } | Place::Entry { conn, .. } => conn,
        }
    }
}

/// An answer that waits until the store's log is durable up to a place.
pub(super) struct Waiting {
    durable_at: u64,
    place: Place,
    header: Header,
    body: Vec<u8>,
    trace: Option<Box<Trace>>,
}

impl Waiting {
    pub(super) fn new(
        durable_at: u64,
        place: Place,
        header: Header,
        body: Vec<u8>,
        trace: Option<Box<Trace>>,
    ) -> Self {
        Self { durable_at, place, header, body, trace }
    }

    /// Turns the answer into an error: the fate of its write is unknown.
    pub(super) fn fail(&mut self, why: &str) {
        self.body.clear();
        encode::error(
            &mut self.body,
            error_code::SERVER_ERROR,
            &format!("the write could not be made durable: {why}"),
        );
        self.header = Header { flags: 0, opcode: opcode::ERROR, ..self.header };
    }

    #[cfg(test)]
    pub(super) fn is_error(&self, code: i32) -> bool {
        self.header.opcode == opcode::ERROR && self.body[..4] == code.to_be_bytes()
    }

    #[cfg(test)]
    pub(super) fn is_any_error(&self) -> bool {
        self.header.opcode == opcode::ERROR
    }

    pub(super) fn take_trace(&mut self) -> Option<Box<Trace>> {
        self.trace.take()
    }

    pub(super) fn durable_at(&self) -> u64 {
        self.durable_at
    }

    pub(super) fn conn(&self) -> ConnId {
        self.place.conn()
    }
}

impl NodeService {
    /// Executes one request from a separate envelope.
    pub(super) fn request(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) {
        self.count(header.opcode);
        let mut answer = std::mem::take(&mut self.body);
        answer.clear();
        let request =
            Request { version: header.version, flags: header.flags, opcode: header.opcode, body };
        let done = match self.executor.execute_at_once(&mut rest.client, &request, &mut answer) {
            Outcome::Done(done) => Some(done),
            Outcome::WouldWait(given_up) => {
                self.hand_over(rest, Place::Envelope { conn }, header, body, given_up, &mut answer)
            }
        };
        let Some(done) = done else {
            self.body = answer;
            return;
        };
        let response = Header {
            flags: done.flags,
            ..Header::response(header.version, header.stream, done.opcode)
        };
        match done.durable_at {
            _ if done.gathered => {
                self.held.push(
                    Place::Envelope { conn },
                    header,
                    &rest.client,
                    body,
                    &done,
                    &answer,
                );
            }
            None => {
                self.send(io, conn, rest, response, &answer);
                self.keep_trace(done.trace);
            }
            Some(place) => {
                self.wait(Waiting::new(
                    place,
                    Place::Envelope { conn },
                    response,
                    answer.clone(),
                    done.trace,
                ));
            }
        }
        self.body = answer;
    }

    /// Keeps the trace of an answer being sent, if any.
    pub(super) fn keep_trace(&self, trace: Option<Box<Trace>>) {
        if trace.is_some_and(|trace| !self.executor.keep_trace(trace)) {
            self.metrics.traces_lost.add(1);
        }
    }

    /// Holds an answer in log order, which is nearly always the order of arrival.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        let after =
            self.waiting.iter().rposition(|earlier| earlier.durable_at <= waiting.durable_at);
        self.waiting.insert(after.map_or(0, |index| index + 1), waiting);
    }

    /// Sends the answers that waited for this place in the log.
    pub(super) fn became_durable(&mut self, io: &mut Io, place: u64) {
        let count = self.waiting.partition_point(|waiting| waiting.durable_at <= place);
        let mut ready: Vec<Waiting> = self.waiting.drain(..count).collect();
        self.send_waiting(io, &ready);
        for trace in ready.iter_mut().filter_map(|waiting| waiting.trace.take()) {
            self.keep_waited(trace, "The log is on disk");
        }
    }

    /// Answers all waiting requests with an error, since no more writes become durable: the fate of
    /// their writes is unknown.
    pub(super) fn lost_durability(&mut self, io: &mut Io, why: &str) {
        let mut failed: Vec<Waiting> = self.waiting.drain(..).collect();
        failed.iter_mut().for_each(|waiting| waiting.fail(why));
        self.send_waiting(io, &failed);
        for trace in failed.iter_mut().filter_map(|waiting| waiting.trace.take()) {
            self.keep_waited(trace, "The log could not be written to disk");
        }
    }

    /// Keeps the trace of a request whose answer has waited for the disk.
    pub(super) fn keep_waited(&self, mut trace: Box<Trace>, outcome: &str) {
        trace.note(outcome.to_owned());
        self.keep_trace(Some(trace));
    }

    pub(super) fn send_waiting(&mut self, io: &mut Io, ready: &[Waiting]) {
        let mut rest = ready;
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|waiting| waiting.conn() == first.conn()).count();
            let (batch, later) = rest.split_at(same);
            rest = later;
            let Some(mut session) = self.take(first.conn()) else { continue };
            self.send_batch(io, &mut session.rest, batch);
            self.put_back(io, session);
        }
    }

    /// Sends answers to one connection; those to entries of aggregated frames share a frame again.
    fn send_batch(&mut self, io: &mut Io, rest: &mut SessionRest, batch: &[Waiting]) {
        let mut writer = AggregateWriter::responses(AGGREGATE_LIMITS);
        for waiting in batch {
            let Header { version, flags, stream, opcode, .. } = waiting.header;
            match waiting.place {
                Place::Envelope { conn } => {
                    writer.finish(io.output(conn));
                    self.send(io, conn, rest, waiting.header, &waiting.body);
                }
                Place::Entry { conn, client_id } => {
                    writer.push(
                        io.output(conn),
                        stream,
                        client_id,
                        version,
                        flags,
                        opcode,
                        &waiting.body,
                    );
                }
            }
        }
        if let Some(last) = batch.last() {
            writer.finish(io.output(last.conn()));
            self.watch_backlog(io, last.conn(), rest);
        }
    }
}
