//! Events of the loop, each handed to the step it concerns, and the periodic work.

use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use tracing::info;

use crate::answer::{self, HOLD_TIMER};
use crate::ask;
use crate::connections::{self, LOOK_TIMER};
use crate::effects;
use crate::limits;
use crate::link;
use crate::log_limits::Line;
use crate::owner;
use crate::pool;
use crate::request;
use crate::session;
use crate::shares;
use crate::state::{Agent, Peer, Phase, Stage};

/// Key of the periodic timer.
const TICK: u64 = 1;

/// Order from the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AgentMail {
    /// Take no new requests, finish those under way, and end.
    Drain,
    /// End now.
    End,
}

impl Service for Agent {
    type Mail = AgentMail;

    fn started(&mut self, io: &mut Io) {
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        session::accepted(self, io, conn, origin);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let used = match self.peer(conn) {
            Peer::Session(key) => owner::received(self, io, key, data),
            Peer::Upstream(key) => answer::received(self, io, key, data),
            Peer::Taken(key) => connections::received(self, io, key, data),
            Peer::Link(key) => link::of_proxy(self, io, key, data),
            Peer::Server(key) => link::of_server(self, io, key, data),
            Peer::Nobody | Peer::ToBeDropped | Peer::Asking(_) => data.len(),
        };
        self.settle(io);
        used
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        match self.peer(conn) {
            Peer::Session(key) => owner::lost(self, io, key),
            Peer::Upstream(key) => answer::closed(self, io, key, reason),
            Peer::Taken(key) => effects::closed(self, io, key, reason),
            Peer::Asking(flow) => ask::is_out(self, io, conn, flow, true),
            Peer::Link(key) | Peer::Server(key) => link::closed(self, io, key),
            Peer::Nobody | Peer::ToBeDropped => {}
        }
        self.settle(io);
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        match self.peer(conn) {
            Peer::Session(key) => owner::drained(self, io, key),
            Peer::Upstream(key) => {
                if let Some(exchange) =
                    self.upstreams.get(key).and_then(|connection| connection.exchange)
                {
                    pool::give_credit(self, io, exchange);
                }
            }
            Peer::Taken(key) => connections::drained(self, io, key),
            Peer::Link(key) => link::drained(self, io, key, false),
            Peer::Server(key) => link::drained(self, io, key, true),
            Peer::Nobody | Peer::ToBeDropped | Peer::Asking(_) => {}
        }
        self.settle(io);
    }

    fn frozen(&mut self, io: &mut Io, conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        effects::frozen(self, io, conn, outcome);
        self.settle(io);
    }

    fn restored(&mut self, io: &mut Io, conn: ConnId) {
        connections::restored(self, io, conn);
        self.settle(io);
    }

    fn unacknowledged(&mut self, io: &mut Io, conn: ConnId, bytes: usize) {
        if let Peer::Taken(key) = self.peer(conn) {
            connections::unacknowledged(self, io, key, bytes);
            self.settle(io);
        }
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        if key & HOLD_TIMER != 0 {
            answer::hold_is_over(self, io, (key & !HOLD_TIMER) as usize);
            return self.settle(io);
        }
        if key & LOOK_TIMER != 0 {
            connections::look(self, io, (key & !LOOK_TIMER) as usize);
            return self.settle(io);
        }
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
        connections::tick(self, io);
        ask::tick(self, io);
        self.log_limits.tick(io.now_ns());
        end_silent_sessions(self, io);
        owner::tick(self, io);
        end_late_exchanges(self, io);
        shares::tick(self, io);
        end_idle_connections(self, io);
        self.settle(io);
    }

    fn mail(&mut self, io: &mut Io, mail: AgentMail) {
        self.is_draining = true;
        link::close_all(self, io);
        if mail == AgentMail::End {
            let sessions: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
            sessions.into_iter().for_each(|key| owner::end(self, io, key));
            io.stop();
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        pool::serve_waiting(self, io);
        self.show();
        // A returning connection exists nowhere else until its owner confirms it, and a connection
        // may be on its way for an open offer.
        let is_settled = self.moves.flows() == 0 && self.moves.offers() == 0;
        let is_through = self.is_draining && self.exchanges.is_empty() && is_settled;
        // The last bytes written must have been taken as well.
        if is_through && self.sessions.iter().all(|(_, session)| io.backlog(session.conn) == 0) {
            io.stop();
        }
    }
}

impl Agent {
    /// Copies levels that live in other structures to the metrics, once per turn.
    fn show(&self) {
        let metrics = &self.metrics;
        metrics.turns.add(1);
        metrics.sessions.set(self.sessions.len() as u64);
        metrics.exchanges.set(self.exchanges.len() as u64);
        metrics.waiting.set((self.waiting.len() + self.uploads.len()) as u64);
        metrics.upstreams.set((self.upstreams.len() + self.links.len()) as u64);
        metrics.flows.set(self.moves.flows() as u64);
        metrics.offered.set(self.moves.offers() as u64);
        metrics.kept_bytes.set(self.kept.bytes() as u64);
    }

    /// Does the work that an event has queued.
    fn settle(&mut self, io: &mut Io) {
        effects::out(self, io);
        owner::end_former(self, io);
        effects::out(self, io);
    }
}

fn end_silent_sessions(agent: &mut Agent, io: &mut Io) {
    let is_silent = |session: &crate::state::Session| match session.phase {
        Phase::Shaking { until_ns, .. } => until_ns <= io.now_ns(),
        Phase::Open(_) => session.heard_ns + limits::SESSION_SILENCE_NS <= io.now_ns(),
    };
    let silent: Vec<usize> = agent
        .sessions
        .iter()
        .filter(|(_, session)| is_silent(session))
        .map(|(key, _)| key)
        .collect();
    for key in silent {
        if let Some(suppressed) = agent.log_limits.admit(Line::Silent, io.now_ns()) {
            info!(
                suppressed,
                "a control connection is closed: nothing has come on it for too long"
            );
        }
        owner::end(agent, io, key);
    }
}

/// Extends the deadlines of exchanges whose requests the server is still taking: its time for an
/// answer counts from the whole request.
fn see_progress(agent: &mut Agent, io: &Io) {
    for (_, connection) in &mut agent.upstreams {
        let writes = io.writes_of(connection.conn);
        if std::mem::replace(&mut connection.writes, writes) != writes
            && let Some(state) =
                connection.exchange.and_then(|exchange| agent.exchanges.get_mut(exchange))
            && (state.answer.stage == Stage::Awaited || !state.request_is_complete)
        {
            state.wait_until(io.now_ns() + agent.options.upstream_timeout_ns);
        }
    }
}

fn end_late_exchanges(agent: &mut Agent, io: &mut Io) {
    see_progress(agent, io);
    let late = agent.exchanges.iter().filter(|(_, state)| {
        let paused = state
            .upstream
            .and_then(|key| agent.upstreams.get(key))
            .is_some_and(|up| io.is_paused(up.conn));
        // An exchange that lacks credit or the rest of its request waits for the owner, which has
        // its own deadlines.
        let waits_for_owner = match state.answer.stage {
            Stage::Awaited if state.request_is_complete => false,
            Stage::Awaited => {
                state.request_taken == 0 || (state.upstream.is_none() && state.request_credit > 0)
            }
            Stage::Relayed => paused || state.upstream.is_none(),
            Stage::Direct => paused,
            Stage::Held | Stage::Offered => false,
        };
        state.deadline_ns <= io.now_ns() && !waits_for_owner && state.answer.stage != Stage::Held
    });
    let late: Vec<(usize, Stage)> = late.map(|(key, state)| (key, state.answer.stage)).collect();
    for (exchange, stage) in late {
        let reason = match stage {
            Stage::Awaited => "the server has not answered in time",
            Stage::Offered => "nobody has fetched the answer in time",
            Stage::Held | Stage::Relayed | Stage::Direct => {
                "the server has stopped within its answer"
            }
        };
        request::fail(agent, io, exchange, 504, reason);
    }
}

fn end_idle_connections(agent: &mut Agent, io: &mut Io) {
    let is_idle = |key: &usize| {
        agent
            .upstreams
            .get(*key)
            .is_some_and(|up| up.idle_since_ns + limits::IDLE_NS <= io.now_ns())
    };
    let idle: Vec<usize> = agent.idle.iter().copied().filter(is_idle).collect();
    for key in idle {
        pool::drop_connection(agent, io, key);
    }
}
