//! Answers to gathered writes, held until the turn ends and the writes are executed together.

use std::ops::Range;
use std::sync::Arc;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, opcode};

use super::NodeService;
use super::requests::{Place, Waiting};
use super::workers::Job;
use crate::execute::{Carried, ClientState, Done, refused};

/// A request with gathered writes, and its answer.
pub(super) struct Held {
    place: Place,
    /// Header of the request.
    header: Header,
    client: ClientState,
    /// Range of the request's body in `bodies`.
    body: Range<usize>,
    /// Flags of the answer.
    flags: u8,
    answer: Vec<u8>,
}

/// Held answers of a turn.
#[derive(Default)]
pub(super) struct HeldAnswers {
    list: Vec<Held>,
    /// Bodies of requests, in case workers have to execute them.
    bodies: Vec<u8>,
}

impl HeldAnswers {
    /// Holds the answer to a request until its writes are executed.
    pub(super) fn push(
        &mut self,
        place: Place,
        header: Header,
        client: &ClientState,
        body: &[u8],
        done: &Done,
        answer: &[u8],
    ) {
        let start = self.bodies.len();
        self.bodies.extend_from_slice(body);
        let body = start..self.bodies.len();
        self.list.push(Held {
            place,
            header,
            client: client.clone(),
            body,
            flags: done.flags,
            answer: answer.to_vec(),
        });
    }
}

impl NodeService {
    /// Ends a turn: executes the gathered writes, and sends the answers or lets them wait for the
    /// disk.
    pub(super) fn finish_gathered(&mut self, io: &mut Io) {
        let carried = self.executor.finish_gathered();
        if carried.is_empty() {
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        debug_assert_eq!(held.list.len(), carried.len(), "each gathered request has an answer");
        let durable = self.executor.durable();
        let mut ready = Vec::new();
        for (held_one, carried) in held.list.drain(..).zip(carried) {
            let Held { place, header, client, body, flags, answer } = held_one;
            let response =
                Header { flags, ..Header::response(header.version, header.stream, opcode::RESULT) };
            match carried {
                Carried::Durable(at) if at > durable => {
                    self.wait(Waiting::new(at, place, response, answer, None));
                }
                Carried::Durable(_) | Carried::Written => {
                    ready.push(Waiting::new(0, place, response, answer, None))
                }
                Carried::Failed(error) => {
                    let mut body = Vec::new();
                    let done = refused(&error, header.version, &mut body);
                    self.metrics.errors.add(u64::from(matches!(place, Place::Entry { .. })));
                    let response = Header { flags: 0, opcode: done.opcode, ..response };
                    ready.push(Waiting::new(0, place, response, body, None));
                }
                Carried::Stalled => {
                    self.metrics.stalled.add(1);
                    let (node, body) = (self.executor.node(), held.bodies[body].to_vec());
                    let gone = Arc::default();
                    let job = Job {
                        node,
                        place,
                        header,
                        client,
                        body,
                        long: true,
                        lock: None,
                        others: 0,
                        gone,
                        trace: None,
                    };
                    ready.extend(self.hand_over_held(job));
                }
            }
        }
        held.bodies.clear();
        self.held = held;
        self.send_waiting(io, &ready);
    }

    /// Passes a request to a worker, which waits for compaction in place of the loop. If too many
    /// wait already, returns an answer immediately.
    fn hand_over_held(&mut self, job: Job) -> Option<Waiting> {
        let (place, header) = (job.place, job.header);
        let mut session = self.take(place.conn())?;
        let mut body = Vec::new();
        let done = self.hand_over_job(&mut session.rest, job, &mut body);
        let index = session.conn.index as usize;
        self.sessions[index] = Some(session);
        let done = done?;
        self.metrics.errors.add(u64::from(matches!(place, Place::Entry { .. })));
        let response = Header {
            flags: done.flags,
            ..Header::response(header.version, header.stream, done.opcode)
        };
        Some(Waiting::new(0, place, response, body, None))
    }
}
