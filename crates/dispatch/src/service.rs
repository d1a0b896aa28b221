//! Events of the loop, each handed to the step it concerns, and the periodic work.

use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

use crate::answer;
use crate::crowd;
use crate::failing;
use crate::handover;
use crate::intake;
use crate::limits;
use crate::links;
use crate::messages;
use crate::policy::Handover;
use crate::reply;
use crate::resume;
use crate::state::{Client, Dispatcher, Exchange, Link, Peer, Place};

/// Key of the periodic timer.
const TICK: u64 = 1;

/// Order from the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DispatchMail {
    /// Take no new requests, finish those under way, and end.
    Drain,
    /// End now.
    End,
}

impl Service for Dispatcher {
    type Mail = DispatchMail;

    fn started(&mut self, io: &mut Io) {
        links::tick(self, io);
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        intake::accepted(self, io, conn, origin);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {
        // The agent sends first.
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        match self.peer(conn) {
            Peer::Client(client) => intake::received(self, io, client, data),
            Peer::Backend(index) => messages::received(self, io, index, data),
            Peer::Nobody | Peer::ToBeReset | Peer::Probe(_) => data.len(),
        }
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        match self.peer(conn) {
            Peer::Client(client) => intake::lost(self, io, client),
            Peer::Backend(index) => {
                self.set_peer(conn, Peer::Nobody);
                links::closed(self, io, index, reason);
            }
            Peer::Probe(probe) => {
                self.set_peer(conn, Peer::Nobody);
                self.probes.try_remove(probe);
            }
            Peer::Nobody | Peer::ToBeReset => {}
        }
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        match self.peer(conn) {
            Peer::Client(client)
                if self.clients.get(client).is_some_and(|client| client.is_closing) =>
            {
                reply::close(self, io, client);
            }
            Peer::Client(client) => {
                answer::give_credit(self, io, client);
                intake::go_on(self, io, client);
            }
            Peer::Backend(index) => links::drained(self, io, index),
            Peer::Nobody | Peer::ToBeReset | Peer::Probe(_) => {}
        }
    }

    fn frozen(&mut self, io: &mut Io, conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        handover::frozen(self, io, conn, outcome);
    }

    fn restored(&mut self, io: &mut Io, conn: ConnId) {
        handover::restored(self, io, conn);
    }

    fn timer(&mut self, io: &mut Io, _key: u64) {
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
        links::tick(self, io);
        handover::tick(self, io);
        end_late(self, io);
        crowd::weigh(self, io);
    }

    fn mail(&mut self, io: &mut Io, mail: DispatchMail) {
        self.is_draining = true;
        handover::recall_all(self, io);
        let is_idle = |client: &Client| client.exchange.is_none() && client.place == Place::Here;
        let idle: Vec<usize> =
            self.clients.iter().filter(|(_, client)| is_idle(client)).map(|(key, _)| key).collect();
        idle.into_iter().for_each(|client| reply::close(self, io, client));
        if mail == DispatchMail::End {
            io.stop();
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        crowd::look(self, io);
        self.show();
        // Clients must also have taken the last bytes written to them.
        let links = self
            .backends
            .iter()
            .filter(|backend| !matches!(backend.link, Link::Down { .. }))
            .count();
        if self.is_draining && self.clients.is_empty() && io.connections() <= links {
            io.stop();
        }
    }
}

impl Dispatcher {
    /// Copies levels that live in other structures to the metrics, once per turn.
    fn show(&self) {
        let metrics = &self.metrics;
        metrics.turns.add(1);
        metrics.hands_over.set(u64::from(self.options.handover == Handover::Auto));
        metrics.clients.set(self.clients.len() as u64);
        metrics.away.set(self.owner.flows() as u64);
        metrics.moving.set(self.owner.on_their_way() as u64);
        for (shown, backend) in metrics.backends.iter().zip(&self.backends) {
            shown.up.set(u64::from(backend.is_up()));
            shown.in_flight.set(backend.in_flight.taken() as u64);
        }
    }
}

/// Cause of a client's missed deadline.
#[derive(Clone, Copy)]
enum Late {
    Idle,
    Head,
    Body,
    Answer,
    Rest,
    Taking,
    /// More of an answer that has begun.
    MoreOfAnswer,
    /// The rest of a request body whose answer has begun.
    BodyBehindAnswer,
}

fn end_late(dispatcher: &mut Dispatcher, io: &mut Io) {
    let now_ns = io.now_ns();
    let timeouts_ns = (dispatcher.options.body_timeout_ns, dispatcher.options.answer_timeout_ns);
    let mut all = Vec::new();
    for (key, client) in
        dispatcher.clients.iter_mut().filter(|(_, client)| client.place == Place::Here)
    {
        if let Some(late) = late(client, io, now_ns, timeouts_ns) {
            all.push((key, late));
        }
    }
    for (client, late) in all {
        let exchange = failing::give_up(dispatcher, io, client);
        let (status, text) = match late {
            Late::Idle => {
                reply::close(dispatcher, io, client);
                continue;
            }
            Late::Rest | Late::Taking | Late::BodyBehindAnswer => {
                reply::cut(dispatcher, io, client);
                continue;
            }
            Late::MoreOfAnswer => {
                match exchange {
                    Some(exchange) => {
                        let why = "nothing more of the answer has come in time";
                        resume::go_on(dispatcher, io, client, exchange, why);
                    }
                    None => reply::cut(dispatcher, io, client),
                }
                continue;
            }
            Late::Head => (408, "the head of the request did not come in time"),
            Late::Body => (408, "the body of the request did not come in time"),
            Late::Answer => (504, "the backend did not answer in time"),
        };
        reply::error(dispatcher, io, client, exchange.as_ref(), status, text);
    }
}

fn late(
    client: &mut Client,
    io: &Io,
    now_ns: u64,
    (body_timeout_ns, answer_timeout_ns): (u64, u64),
) -> Option<Late> {
    let (writes, has_untaken) = (io.writes_of(client.conn), io.backlog(client.conn) > 0);
    if !has_untaken || writes != client.writes {
        (client.writes, client.stalled_since_ns) = (writes, now_ns);
    }
    if client.stalled_since_ns + body_timeout_ns <= now_ns {
        return Some(Late::Taking);
    }
    if has_untaken {
        // While the client takes earlier output its time does not run.
        let is_answered =
            |exchange: &Exchange| exchange.answer.is_some() && exchange.body.is_none();
        let is_answered = client.exchange.as_ref().is_some_and(is_answered);
        let timeout_ns = if is_answered { answer_timeout_ns } else { body_timeout_ns };
        client.deadline_ns = client.deadline_ns.max(now_ns + timeout_ns);
        return None;
    }
    let is_over = client.deadline_ns <= now_ns;
    match &client.exchange {
        None => is_over.then_some(if client.is_in_head { Late::Head } else { Late::Idle }),
        Some(exchange) if exchange.answer.is_some() => {
            let is_awaited = exchange.rest.as_ref().is_some_and(|rest| rest.is_awaited());
            // A body held up by its server is not expected from the client.
            let has_more = exchange.body.is_some() && !io.is_paused(client.conn);
            match (is_awaited, has_more) {
                (true, _) => is_over.then_some(Late::Rest),
                (false, true) => is_over.then_some(Late::BodyBehindAnswer),
                (false, false) if exchange.body.is_none() => is_over.then_some(Late::MoreOfAnswer),
                (false, false) => None,
            }
        }
        // A body that is not read for lack of credit waits for the backend.
        Some(exchange) if exchange.body.is_none() || io.is_paused(client.conn) => {
            is_over.then_some(Late::Answer)
        }
        Some(_) => is_over.then_some(Late::Body),
    }
}
