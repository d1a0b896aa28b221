//! Clients' connections that owners have given. [`shunt_handover::agent::Agent`] decides what to do
//! with them; `effects.rs` does it once the current step is over.
//!
//! The agent never reads what a client sends: the bytes stay unread and move back with the
//! connection. A client that ends its direction of the stream still gets its whole answer and is
//! then closed. An answer goes out head first as the server sends it, as fast as the client takes
//! it: the agent stops reading the server while much output is pending.

use std::collections::VecDeque;

use shunt_handover::agent::{Agent as Moves, AgentSink, Close, SessionId};
use shunt_handover::message::{Ending, Message, Ticket};
use shunt_handover::session::{Instance, OwnerId};
use shunt_handover::{Flow, Unexpected};
use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{ConnId, Io};

use crate::limits;
use crate::metrics::{Metrics, Way};
use crate::packet_filter::PacketFilter;
use crate::state::{Agent, Peer, Tail, Taken, Wanted};

/// Mark of the timers that check for an answer's last acknowledgement; the rest is the connection's
/// key.
pub(crate) const LOOK_TIMER: u64 = 1 << 62;

struct Sink<'a> {
    packet_filter: &'a mut dyn PacketFilter,
    wanted: &'a mut VecDeque<Wanted>,
    /// The offer for which a connection is being given.
    offer: Option<(SessionId, Ticket)>,
}

impl AgentSink for Sink<'_> {
    fn expect(&mut self, flow: Flow, lease_ms: u64) {
        self.packet_filter.expect(flow, lease_ms);
    }

    fn own(&mut self, flow: Flow, lease_ms: u64) {
        self.packet_filter.own(flow, lease_ms);
    }

    fn let_end(&mut self, flow: Flow, lease_ms: u64) {
        self.packet_filter.let_end(flow, lease_ms);
    }

    fn disown(&mut self, flow: Flow) {
        self.packet_filter.disown(flow);
    }

    fn restore(&mut self, flow: Flow, frozen: Frozen) {
        self.wanted.push_back(Wanted::Restore(flow, Box::new(frozen), self.offer));
    }

    fn freeze(&mut self, flow: Flow) {
        self.wanted.push_back(Wanted::Freeze(flow));
    }

    fn end(&mut self, flow: Flow) {
        self.wanted.push_back(Wanted::End(flow));
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

/// Calls the state machine and queues the work it asks for.
fn with<R>(
    agent: &mut Agent,
    io: &Io,
    work: impl FnOnce(&mut Moves, u64, &mut Sink<'_>) -> R,
) -> R {
    let mut sink =
        Sink { packet_filter: &mut *agent.packet_filter, wanted: &mut agent.wanted, offer: None };
    work(&mut agent.moves, io.now_ns() / 1_000_000, &mut sink)
}

/// True if an answer may be offered; the offer is then noted.
pub(crate) fn may_offer(agent: &mut Agent, io: &Io, session: SessionId, ticket: Ticket) -> bool {
    agent.moves.offer(io.now_ns() / 1_000_000, session, ticket).is_some()
}

/// Withdraws the offer of an exchange that has ended.
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

/// Handles an owner's message about an offer or a connection.
///
/// # Errors
/// The message is not one of these.
pub(crate) fn heard(
    agent: &mut Agent,
    io: &mut Io,
    id: SessionId,
    ticket: Ticket,
    message: &Message<'_>,
) -> Result<(), Unexpected> {
    let mut sink = Sink {
        packet_filter: &mut *agent.packet_filter,
        wanted: &mut agent.wanted,
        offer: Some((id, ticket)),
    };
    agent.moves.heard(io.now_ns() / 1_000_000, id, ticket, message, &mut sink)
}

/// Periodic work on clients' connections.
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
        agent.packet_filter.tidy();
        let Agent { returning, moves, .. } = agent;
        // Drop entries of connections given up meanwhile.
        returning.retain(|flow, _| moves.has(*flow));
    }
}

/// A connection has been restored.
pub(crate) fn restored(agent: &mut Agent, io: &mut Io, conn: ConnId) {
    let key = match agent.peer(conn) {
        Peer::Taken(key) => key,
        // Restoring a probing connection has sent its probe.
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

/// The client has sent bytes, which stay unread.
pub(crate) fn received(agent: &mut Agent, io: &mut Io, key: usize, data: &[u8]) -> usize {
    if let Some(taken) = agent.taken.get(key).filter(|_| !data.is_empty()) {
        let flow = taken.flow;
        io.pause_reading(taken.conn);
        with(agent, io, |moves, _, sink| moves.client_waits(flow, sink));
    }
    0
}

/// Bytes of an answer that its connection can take now. If 0, the server is read again once the
/// backlog has shrunk.
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

/// Records the time to the answer's first byte when `bytes` are the first.
pub(crate) fn begins(metrics: &Metrics, taken: &mut Taken, now_ns: u64, bytes: usize) {
    if bytes > 0
        && let Some(asked_ns) = taken.asked_ns.take()
    {
        metrics.first_byte.record(now_ns.saturating_sub(asked_ns));
    }
}

/// The kernel has taken a connection's bytes.
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
        await_acknowledgement(io, taken);
    }
}

/// Watches a connection until its client has acknowledged all that was written to it.
pub(crate) fn await_acknowledgement(io: &mut Io, taken: &mut Taken) {
    taken.tail = Some(Tail { bytes: usize::MAX, look_ns: u64::MAX });
    io.ask_unacknowledged(taken.conn);
}

/// Notes how many bytes of its answer, or of the end behind it, the client has not acknowledged.
/// Until it has all, the connection stays: an acknowledgement that arrives while the connection is
/// nowhere would be lost, and the answer's end would stall until a timer resends it.
pub(crate) fn unacknowledged(agent: &mut Agent, io: &mut Io, key: usize, bytes: usize) {
    let Some(taken) = agent.taken.get_mut(key) else { return };
    let Some(tail) = &mut taken.tail else { return };
    let (flow, sent, is_out, is_ending) = (taken.flow, taken.sent, taken.is_out, taken.is_ending);
    let before = std::mem::replace(&mut tail.bytes, bytes);
    if bytes == 0 {
        taken.tail = None;
        return with(agent, io, |moves, now_ms, sink| match (is_ending, is_out) {
            (true, _) => moves.end_acknowledged(now_ms, flow, sink),
            (false, true) => moves.delivered(now_ms, flow, sent, sink),
            (false, false) => moves.answer_failed(now_ms, flow, sent, sink),
        });
    }
    // The delay grows with the time waited, so few checks are needed.
    let waited_ns = taken.out_ns.map_or(0, |out_ns| io.now_ns().saturating_sub(out_ns));
    tail.look_ns = io.now_ns() + (waited_ns / 8).clamp(limits::LOOK_NS_MIN, limits::LOOK_NS_MAX);
    io.set_timer(tail.look_ns, LOOK_TIMER | key as u64);
    if bytes < before {
        with(agent, io, |moves, now_ms, _| moves.progress(now_ms, flow));
    }
}

/// Checks how much of an answer the client has not acknowledged.
pub(crate) fn look(agent: &mut Agent, io: &mut Io, key: usize) {
    let Some(taken) = agent.taken.get_mut(key) else { return };
    if let Some(tail) = taken.tail.as_mut().filter(|tail| tail.look_ns <= io.now_ns()) {
        tail.look_ns = u64::MAX;
        io.ask_unacknowledged(taken.conn);
    }
}

/// Marks that the whole answer is in its connection.
pub(crate) fn is_out(agent: &mut Agent, io: &mut Io, key: usize) {
    if let Some(taken) = agent.taken.get_mut(key) {
        (taken.exchange, taken.is_out) = (None, true);
        io.notify_drained(taken.conn, 0);
    }
}

/// The server has failed within an answer on its client's connection, which goes back once the
/// bytes put in have left.
pub(crate) fn broken_off(agent: &mut Agent, io: &mut Io, key: usize) {
    if let Some(taken) = agent.taken.get_mut(key) {
        (taken.exchange, taken.is_broken_off) = (None, true);
        io.notify_drained(taken.conn, 0);
    }
}

/// Separates a connection from an exchange that has ended without its answer: the exchange's key
/// will be reused, and the connection must not end the new exchange.
pub(crate) fn without_answer(agent: &mut Agent, exchange: usize, direct: Option<usize>) {
    let is_its = |taken: &Taken| taken.exchange == Some(exchange);
    // Only the connection itself knows an exchange while it is on its way in.
    let key =
        direct.or_else(|| agent.taken.iter().find(|(_, taken)| is_its(taken)).map(|(key, _)| key));
    if let Some(taken) = key.and_then(|key| agent.taken.get_mut(key)).filter(|taken| is_its(taken))
    {
        taken.exchange = None;
    }
}

/// A connection could not be restored.
pub(crate) fn not_restored(agent: &mut Agent, io: &Io, flow: Flow) {
    with(agent, io, |moves, now_ms, sink| moves.restored(now_ms, flow, false, sink));
}

/// A client has ended its connection.
pub(crate) fn client_gone(agent: &mut Agent, io: &Io, flow: Flow, ending: Ending, sent: u64) {
    with(agent, io, |moves, now_ms, sink| moves.client_gone(now_ms, flow, ending, sent, sink));
}

/// A connection was frozen, or could not be.
pub(crate) fn frozen(agent: &mut Agent, io: &Io, flow: Flow, outcome: Result<Frozen, NotFrozen>) {
    with(agent, io, |moves, now_ms, sink| moves.frozen(now_ms, flow, outcome, sink));
}

/// The answer for a connection is gone.
pub(crate) fn no_answer(agent: &mut Agent, io: &Io, flow: Flow, answer_sent: u64) {
    with(agent, io, |moves, now_ms, sink| moves.answer_failed(now_ms, flow, answer_sent, sink));
}
