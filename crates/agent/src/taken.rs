//! Clients' connections that owners have given: [`shunt_handover::agent::Agent`] says what is to be
//! done with them. It is done in `carry.rs`, when the step that it came of is over.
//!
//! Nothing that a client sends is looked at here: it stays unread, and moves back with the
//! connection. A client that ends its direction of the stream has its answer all the same, and is
//! closed when it has all of it. An answer goes out as the server sends it, head first, as fast as
//! the client takes it: the server is not read while much is written and not taken.

use std::collections::VecDeque;

use shunt_handover::agent::{Agent as Moves, AgentSink, Close, SessionId};
use shunt_handover::message::{Ending, Message, Ticket};
use shunt_handover::session::{Instance, OwnerId};
use shunt_handover::{Flow, Unexpected};
use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{ConnId, Io};

use crate::limits;
use crate::metrics::{Metrics, Way};
use crate::own::Own;
use crate::state::{Agent, Peer, Tail, Taken, Wanted};

/// Mark of the timers of answers whose end is not acknowledged; the rest is the connection's key.
pub(crate) const LOOK_TIMER: u64 = 1 << 62;

struct Sink<'a> {
    own: &'a mut dyn Own,
    wanted: &'a mut VecDeque<Wanted>,
    /// The offer for which a connection is given.
    offer: Option<(SessionId, Ticket)>,
}

impl AgentSink for Sink<'_> {
    fn expect(&mut self, flow: Flow, lease_ms: u64) {
        self.own.expect(flow, lease_ms);
    }

    fn own(&mut self, flow: Flow, lease_ms: u64) {
        self.own.own(flow, lease_ms);
    }

    fn let_end(&mut self, flow: Flow) {
        self.own.let_end(flow, limits::END_MS);
    }

    fn disown(&mut self, flow: Flow) {
        self.own.disown(flow);
    }

    fn restore(&mut self, flow: Flow, frozen: Frozen) {
        self.wanted.push_back(Wanted::Restore(flow, Box::new(frozen), self.offer));
    }

    fn freeze(&mut self, flow: Flow) {
        self.wanted.push_back(Wanted::Freeze(flow));
    }

    fn start(&mut self, flow: Flow, session: SessionId, ticket: Ticket, answer_sent: u64) {
        self.wanted.push_back(Wanted::Start(flow, (session, ticket), answer_sent));
    }

    fn relay(&mut self, session: SessionId, ticket: Ticket) {
        self.wanted.push_back(Wanted::Relay(session, ticket));
    }

    fn drop_answer(&mut self, session: SessionId, ticket: Ticket) {
        self.wanted.push_back(Wanted::DropAnswer(session, ticket));
    }

    fn close(&mut self, flow: Flow, how: Close) {
        self.wanted.push_back(Wanted::Close(flow, how));
    }

    fn send(&mut self, session: SessionId, ticket: Ticket, message: Message<'static>) {
        self.wanted.push_back(Wanted::Send(session, ticket, message));
    }

    fn settled(&mut self, flow: Flow) {
        self.wanted.push_back(Wanted::Settled(flow));
    }

    fn drop_session(&mut self, session: SessionId) {
        self.wanted.push_back(Wanted::DropSession(session));
    }
}

/// Tells the state machine something; what it wants done is noted.
fn with<R>(
    agent: &mut Agent,
    io: &Io,
    work: impl FnOnce(&mut Moves, u64, &mut Sink<'_>) -> R,
) -> R {
    let mut sink = Sink { own: &mut *agent.own, wanted: &mut agent.wanted, offer: None };
    work(&mut agent.moves, io.now_ns() / 1_000_000, &mut sink)
}

/// May an answer be offered?
pub(crate) fn may_offer(agent: &mut Agent, io: &Io, session: SessionId, ticket: Ticket) -> bool {
    agent.moves.offer(io.now_ns() / 1_000_000, session, ticket).is_some()
}

/// An exchange has ended, and what was offered of it.
pub(crate) fn offer_over(agent: &mut Agent, session: SessionId, ticket: Ticket) {
    agent.moves.offer_over(session, ticket);
}

/// A control connection is open.
pub(crate) fn session_up(
    agent: &mut Agent,
    io: &mut Io,
    id: SessionId,
    owner: OwnerId,
    instance: Instance,
) {
    with(agent, io, |moves, now_ms, sink| moves.session_up(now_ms, id, owner, instance, sink));
}

/// A control connection has ended.
pub(crate) fn session_lost(agent: &mut Agent, io: &mut Io, id: SessionId) {
    with(agent, io, |moves, now_ms, sink| moves.session_lost(now_ms, id, sink));
}

/// An owner says something about an offer or a connection.
///
/// # Errors
/// It is nothing that owners say about them.
pub(crate) fn heard(
    agent: &mut Agent,
    io: &mut Io,
    id: SessionId,
    ticket: Ticket,
    message: &Message<'_>,
) -> Result<(), Unexpected> {
    let mut sink =
        Sink { own: &mut *agent.own, wanted: &mut agent.wanted, offer: Some((id, ticket)) };
    agent.moves.heard(io.now_ns() / 1_000_000, id, ticket, message, &mut sink)
}

/// Time has passed.
pub(crate) fn tick(agent: &mut Agent, io: &mut Io) {
    let now_ms = io.now_ns() / 1_000_000;
    let Agent { taken, moves, .. } = agent;
    let mut ended = Vec::new();
    for (_, one) in taken.iter_mut().filter(|(_, one)| !one.is_arriving) {
        if io.has_ended(one.conn) && !std::mem::replace(&mut one.has_ended, true) {
            ended.push(one.flow);
        }
        let writes = io.writes_of(one.conn);
        if std::mem::replace(&mut one.writes, writes) != writes {
            moves.progress(now_ms, one.flow);
        }
    }
    for flow in ended {
        with(agent, io, |moves, _, sink| moves.client_waits(flow, sink));
    }
    with(agent, io, |moves, now_ms, sink| moves.tick(now_ms, sink));
    if agent.tidied_ns + limits::TIDY_NS <= io.now_ns() {
        agent.tidied_ns = io.now_ns();
        agent.own.tidy();
        let Agent { returning, moves, .. } = agent;
        // What was given up meanwhile.
        returning.retain(|flow, _| moves.has(*flow));
    }
}

/// A connection is in.
pub(crate) fn restored(agent: &mut Agent, io: &mut Io, conn: ConnId) {
    let key = match agent.peer(conn) {
        Peer::Taken(key) => key,
        // What asks has asked when it is in.
        Peer::Asking(_) => return io.freeze(conn),
        _ => return,
    };
    let Some(taken) = agent.taken.get_mut(key) else { return };
    taken.is_arriving = false;
    let (flow, now_ns) = (taken.flow, io.now_ns());
    agent.metrics.arrival.record(now_ns.saturating_sub(taken.since_ns));
    if let Some(offered_ns) = taken.offered_ns {
        agent.metrics.restore.record(now_ns.saturating_sub(offered_ns));
    }
    io.keep_end(conn);
    with(agent, io, |moves, now_ms, sink| moves.restored(now_ms, flow, true, sink));
}

/// The client has sent something, which stays unread.
pub(crate) fn received(agent: &mut Agent, io: &mut Io, key: usize, data: &[u8]) -> usize {
    if let Some(taken) = agent.taken.get(key).filter(|_| !data.is_empty()) {
        let flow = taken.flow;
        io.pause_reading(taken.conn);
        with(agent, io, |moves, _, sink| moves.client_waits(flow, sink));
    }
    0
}

/// How many bytes of an answer may be put into its connection now; 0: the server is read again when
/// some have left.
pub(crate) fn room(agent: &Agent, io: &mut Io, key: usize) -> u64 {
    let Some(taken) = agent.taken.get(key) else { return 0 };
    let backlog = io.backlog(taken.conn);
    if backlog >= limits::DIRECT_BACKLOG_BYTES_MAX {
        io.notify_drained(taken.conn, limits::DIRECT_BACKLOG_BYTES_LOW);
        return 0;
    }
    (limits::DIRECT_BACKLOG_BYTES_MAX - backlog) as u64
}

/// Puts bytes of an answer into its connection.
pub(crate) fn put(agent: &mut Agent, io: &mut Io, key: usize, bytes: &[u8]) {
    if let Some(taken) = agent.taken.get_mut(key) {
        taken.sent += bytes.len() as u64;
        begins(&agent.metrics, taken, io.now_ns(), bytes.len());
        agent.metrics.answer_bytes.of(Way::Direct).add(bytes.len() as u64);
        io.output(taken.conn).extend_from_slice(bytes);
    }
}

/// So many bytes are put into a connection; if they are the first of its answer, that is noted.
pub(crate) fn begins(metrics: &Metrics, taken: &mut Taken, now_ns: u64, bytes: usize) {
    if bytes > 0
        && let Some(asked_ns) = taken.asked_ns.take()
    {
        metrics.first_byte.record(now_ns.saturating_sub(asked_ns));
    }
}

/// The kernel has taken what was put into a connection.
pub(crate) fn drained(agent: &mut Agent, io: &mut Io, key: usize) {
    let Some(taken) = agent.taken.get_mut(key) else { return };
    if let Some(state) = taken.exchange.and_then(|exchange| agent.exchanges.get_mut(exchange)) {
        state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
        if let Some(connection) = state.upstream.and_then(|upstream| agent.upstreams.get(upstream))
        {
            io.resume_reading(connection.conn);
        }
    } else if io.backlog(taken.conn) == 0 && (taken.is_out || taken.is_broken_off) {
        taken.out_ns.get_or_insert(io.now_ns());
        taken.tail = Some(Tail { bytes: usize::MAX, look_ns: u64::MAX });
        io.ask_unacknowledged(taken.conn);
    }
}

/// The client has not acknowledged so many bytes of its answer. Until it has all the connection
/// stays: an acknowledgement that came while it is nowhere would be lost, and the end of the answer
/// stand still until a timer sends it again.
pub(crate) fn unacknowledged(agent: &mut Agent, io: &mut Io, key: usize, bytes: usize) {
    let Some(taken) = agent.taken.get_mut(key) else { return };
    let Some(tail) = &mut taken.tail else { return };
    let (flow, sent, is_out) = (taken.flow, taken.sent, taken.is_out);
    let before = std::mem::replace(&mut tail.bytes, bytes);
    if bytes == 0 {
        taken.tail = None;
        return with(agent, io, |moves, now_ms, sink| match is_out {
            true => moves.delivered(now_ms, flow, sent, sink),
            false => moves.answer_failed(now_ms, flow, sent, sink),
        });
    }
    // In proportion to how long it takes, and so seldom more than a few times.
    let waited_ns = taken.out_ns.map_or(0, |out_ns| io.now_ns().saturating_sub(out_ns));
    tail.look_ns = io.now_ns() + (waited_ns / 8).clamp(limits::LOOK_NS_MIN, limits::LOOK_NS_MAX);
    io.set_timer(tail.look_ns, LOOK_TIMER | key as u64);
    if bytes < before {
        with(agent, io, |moves, now_ms, _| moves.progress(now_ms, flow));
    }
}

/// It is time to look again how much of an answer the client has not acknowledged.
pub(crate) fn look(agent: &mut Agent, io: &mut Io, key: usize) {
    let Some(taken) = agent.taken.get_mut(key) else { return };
    if let Some(tail) = taken.tail.as_mut().filter(|tail| tail.look_ns <= io.now_ns()) {
        tail.look_ns = u64::MAX;
        io.ask_unacknowledged(taken.conn);
    }
}

/// All of an answer has been put into its connection.
pub(crate) fn is_out(agent: &mut Agent, io: &mut Io, key: usize) {
    if let Some(taken) = agent.taken.get_mut(key) {
        (taken.exchange, taken.is_out) = (None, true);
        io.notify_drained(taken.conn, 0);
    }
}

/// The server has failed within an answer that goes out on its client's connection, which goes back
/// when what there is of it has left.
pub(crate) fn broken_off(agent: &mut Agent, io: &mut Io, key: usize) {
    if let Some(taken) = agent.taken.get_mut(key) {
        (taken.exchange, taken.is_broken_off) = (None, true);
        io.notify_drained(taken.conn, 0);
    }
}

/// An exchange has ended whose answer was to go out on a connection, or was going: its key is
/// another's next, which that connection must not end.
pub(crate) fn without_answer(agent: &mut Agent, exchange: usize, direct: Option<usize>) {
    let is_its = |taken: &Taken| taken.exchange == Some(exchange);
    // One that is on its way in is known by nothing else.
    let key =
        direct.or_else(|| agent.taken.iter().find(|(_, taken)| is_its(taken)).map(|(key, _)| key));
    if let Some(taken) = key.and_then(|key| agent.taken.get_mut(key)).filter(|taken| is_its(taken))
    {
        taken.exchange = None;
    }
}

/// A connection was not let in.
pub(crate) fn not_restored(agent: &mut Agent, io: &Io, flow: Flow) {
    with(agent, io, |moves, now_ms, sink| moves.restored(now_ms, flow, false, sink));
}

/// A connection has ended by its client.
pub(crate) fn client_gone(agent: &mut Agent, io: &Io, flow: Flow, ending: Ending, sent: u64) {
    with(agent, io, |moves, now_ms, sink| moves.client_gone(now_ms, flow, ending, sent, sink));
}

/// A connection was taken out of the loop, or was not.
pub(crate) fn frozen(agent: &mut Agent, io: &Io, flow: Flow, outcome: Result<Frozen, NotFrozen>) {
    with(agent, io, |moves, now_ms, sink| moves.frozen(now_ms, flow, outcome, sink));
}

/// The answer that was to go out on a connection is not there.
pub(crate) fn no_answer(agent: &mut Agent, io: &Io, flow: Flow, answer_sent: u64) {
    with(agent, io, |moves, now_ms, sink| moves.answer_failed(now_ms, flow, answer_sent, sink));
}
