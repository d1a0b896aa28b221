//! Passes requests that the loop does not execute to a worker, and returns the answers to the
//! connection.

use shunt_reactor::{ConnId, Io};
use shunt_wire::cql::envelope::Header;

use super::NodeService;
use super::requests::{Place, Waiting};
use super::session::SessionRest;
use super::workers::Job;
use crate::error::CqlError;
use crate::execute::{Done, WouldWait, refused};

impl NodeService {
    /// Passes a request to a worker, with the current state of its connection. If too many wait
    /// already, puts an answer into `answer`.
    pub(super) fn hand_over(
        &mut self,
        rest: &mut SessionRest,
        place: Place,
        header: Header,
        body: &[u8],
        given_up: WouldWait,
        answer: &mut Vec<u8>,
    ) -> Option<Done> {
        let node = self.executor.node();
        let WouldWait { long, lock, trace } = given_up;
        let (client, gone) = (rest.client.clone(), rest.gone());
        let job = Job {
            node,
            place,
            header,
            client,
            body: body.to_vec(),
            long,
            lock,
            others: 0,
            gone,
            trace,
        };
        self.hand_over_job(rest, job, answer)
    }

    pub(super) fn hand_over_job(
        &mut self,
        rest: &mut SessionRest,
        mut job: Job,
        answer: &mut Vec<u8>,
    ) -> Option<Done> {
        let version = job.header.version;
        job.others = if rest.frames { 0 } else { rest.handed_over as usize };
        if self.workers.hand_over(job) {
            rest.handed_over += 1;
            self.metrics.handed_over.add(1);
            return None;
        }
        let what = "too many requests wait for the disk already".to_owned();
        Some(refused(&CqlError::Overloaded(what), version, answer))
    }

    /// Sends the answers of workers, or holds them until they are durable.
    pub(super) fn answers_came(&mut self, io: &mut Io) {
        let durable = self.executor.durable();
        let mut ready = Vec::new();
        for mut answer in self.workers.take_answers() {
            if !self.take_back(answer.conn()) {
                self.keep_trace(answer.take_trace());
            } else if answer.durable_at() <= durable {
                ready.push(answer);
            } else if let Some(why) = self.executor.lost(answer.durable_at()) {
                // The report of the loss came while the request was with a worker.
                answer.fail(&why);
                ready.push(answer);
            } else {
                self.wait(answer);
            }
        }
        self.send_waiting(io, &ready);
        for trace in ready.iter_mut().filter_map(Waiting::take_trace) {
            self.keep_trace(Some(trace));
        }
    }

    /// True if the connection still exists.
    fn take_back(&mut self, conn: ConnId) -> bool {
        let session = self.sessions.get_mut(conn.index as usize).and_then(Option::as_mut);
        let Some(session) = session.filter(|session| session.conn == conn) else { return false };
        session.rest.handed_over -= 1;
        true
    }
}
