//! Carries out what [`crate::connections`] queued for clients' connections, after the step that
//! queued it.

use shunt_handover::Flow;
use shunt_handover::agent::{Close, SessionId};
use shunt_handover::message::{Ending, Ticket};
use shunt_handover::session::Protocol;
use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{CloseReason, ConnId, Io};
use shunt_wire::http1::Framing;
use tracing::warn;

use crate::metrics::{Left, Way, Why};
use crate::state::{Agent, Exchange, Peer, Stage, Taken, Wanted};
use crate::{answer, ask, connections, link, offers, request};

/// Carries out all queued work, in order; doing so may queue more.
pub(crate) fn out(agent: &mut Agent, io: &mut Io) {
    while let Some(wanted) = agent.wanted.pop_front() {
        carry_out(agent, io, wanted);
    }
}

fn taken_of(agent: &mut Agent, flow: Flow) -> Option<&mut Taken> {
    agent.of_flow.get(&flow).and_then(|key| agent.taken.get_mut(*key))
}

fn carry_out(agent: &mut Agent, io: &mut Io, wanted: Wanted) {
    match wanted {
        Wanted::Restore(flow, frozen, offer) => restore(agent, io, flow, *frozen, offer),
        Wanted::Freeze(flow) => {
            if let Some(taken) = taken_of(agent, flow) {
                // Retries of a connection with bytes in flight keep the first time.
                taken.leaves_ns.get_or_insert(io.now_ns());
                io.freeze(taken.conn);
            }
        }
        Wanted::End(flow) => {
            if let Some(taken) = taken_of(agent, flow) {
                taken.is_ending = true;
                io.end_output(taken.conn);
                connections::await_acknowledgement(io, taken);
            }
        }
        Wanted::Start(flow, (_, ticket), _) if agent.options.protocol == Protocol::Cql => {
            offers::start(agent, io, flow, ticket);
        }
        // The owner cannot be asked, or does not answer: send the answer on its link, as without an
        // agent.
        Wanted::Relay(_, ticket) if agent.options.protocol == Protocol::Cql => {
            agent.metrics.relayed.of(Why::Fetched).add(1);
            link::relay(agent, io, ticket);
        }
        Wanted::DropAnswer(_, ticket) if agent.options.protocol == Protocol::Cql => {
            agent.metrics.relayed.of(Why::Unsettled).add(1);
            link::relay(agent, io, ticket);
        }
        Wanted::Start(flow, offer, answer_sent) => start(agent, io, flow, offer, answer_sent),
        Wanted::Relay(session, ticket) => {
            if let Some(exchange) = exchange_of(agent, session, ticket) {
                answer::fetch(agent, io, exchange);
            }
        }
        Wanted::DropAnswer(session, ticket) => {
            if let Some(exchange) = exchange_of(agent, session, ticket) {
                request::cancel(agent, io, exchange);
            }
        }
        Wanted::Close(flow, how) => close(agent, io, flow, how),
        Wanted::Send(session, ticket, message) => {
            let key = agent.session_keys.get(&session).copied();
            if let Some(session) = key.and_then(|key| agent.sessions.get_mut(key)) {
                session.send(io, ticket, &message);
                agent.metrics.count(&message);
            }
        }
        Wanted::Settled(flow) => {
            if let Some(out_ns) = agent.returning.remove(&flow) {
                agent.metrics.giving_back.record(io.now_ns().saturating_sub(out_ns));
            }
        }
        Wanted::DropSession(session) => agent.ending.push(session),
    }
}

/// Restores a connection for the answer that was offered.
fn restore(
    agent: &mut Agent,
    io: &mut Io,
    flow: Flow,
    frozen: Frozen,
    offer: Option<(SessionId, Ticket)>,
) {
    let state = frozen.state;
    let conn = io.restore(frozen);
    let exchange = offer.filter(|_| agent.options.protocol == Protocol::Http);
    let exchange = exchange.and_then(|(session, ticket)| exchange_of(agent, session, ticket));
    let offered_ns = match exchange {
        Some(exchange) => agent.exchanges.get(exchange).and_then(|state| state.offered_ns),
        None => offer.and_then(|(_, ticket)| offers::offered_ns(agent, ticket)),
    };
    if let Some(state) = exchange.and_then(|exchange| agent.exchanges.get_mut(exchange)) {
        // The exchange goes on even if the owner is lost.
        state.is_taken = true;
    }
    let key = agent.taken.insert(Taken {
        conn,
        flow,
        state,
        exchange,
        sent: 0,
        kept_bytes: 0,
        is_out: false,
        is_broken_off: false,
        is_arriving: true,
        has_ended: false,
        is_ending: false,
        writes: 0,
        since_ns: io.now_ns(),
        tail: None,
        offered_ns,
        asked_ns: None,
        out_ns: None,
        leaves_ns: None,
    });
    agent.of_flow.insert(flow, key);
    agent.set_peer(conn, Peer::Taken(key));
}

fn close(agent: &mut Agent, io: &mut Io, flow: Flow, how: Close) {
    let Some(taken) = remove(agent, io, flow) else { return };
    agent.metrics.left.of(Left::Closed).add(1);
    match how {
        Close::Reset => {
            // Between hosts the reset does not leave; the host that gets the client's packets tells
            // it.
            io.abort(taken.conn);
            ask::from_now_on(agent, io, &taken);
        }
        Close::InOrder => io.close(taken.conn),
        Close::Silent => {
            // The connection is frozen, and its state dropped.
            agent.set_peer(taken.conn, Peer::ToBeDropped);
            io.freeze(taken.conn);
        }
    }
}

/// Finds an exchange by its owner's session and ticket, even after the session has ended.
fn exchange_of(agent: &Agent, session: SessionId, ticket: Ticket) -> Option<usize> {
    if let Some(key) = agent.session_keys.get(&session) {
        return agent.sessions.get(*key)?.exchanges.get(&ticket).copied();
    }
    let mut orphans = agent.exchanges.iter().filter(|(_, state)| state.is_taken);
    orphans
        .find(|(_, state)| state.session_id == session && state.ticket == ticket)
        .map(|(key, _)| key)
}

/// Lets go of a connection, and cancels the rest of its answer.
fn remove(agent: &mut Agent, io: &mut Io, flow: Flow) -> Option<Taken> {
    let key = agent.of_flow.remove(&flow)?;
    let taken = agent.taken.try_remove(key)?;
    agent.set_peer(taken.conn, Peer::Nobody);
    if let Some(exchange) = taken.exchange {
        request::cancel(agent, io, exchange);
    }
    offers::release(agent, taken.kept_bytes);
    Some(taken)
}

/// A connection was frozen and goes back to its owner.
fn left(agent: &mut Agent, io: &mut Io, flow: Flow) {
    let Some(taken) = remove(agent, io, flow) else { return };
    agent.metrics.left.of(Left::Returned).add(1);
    if let Some(leaves_ns) = taken.leaves_ns {
        agent.metrics.freeze.record(io.now_ns().saturating_sub(leaves_ns));
    }
    if let Some(out_ns) = taken.out_ns {
        agent.returning.insert(flow, out_ns);
    }
}

/// Takes the result of freezing a connection.
pub(crate) fn frozen(
    agent: &mut Agent,
    io: &mut Io,
    conn: ConnId,
    outcome: Result<Frozen, NotFrozen>,
) {
    match agent.peer(conn) {
        Peer::Taken(key) => {
            let Some(flow) = agent.taken.get(key).map(|taken| taken.flow) else { return };
            if outcome.is_ok() {
                left(agent, io, flow);
            }
            connections::frozen(agent, io, flow, outcome);
        }
        Peer::ToBeDropped => {
            agent.set_peer(conn, Peer::Nobody);
            if outcome.is_err() {
                io.abort(conn);
            }
        }
        Peer::Asking(flow) => ask::is_out(agent, io, conn, flow, outcome.is_ok()),
        Peer::Session(_) | Peer::Upstream(_) | Peer::Link(_) | Peer::Server(_) | Peer::Nobody => {}
    }
}

/// A connection has ended, or could not be restored.
pub(crate) fn closed(agent: &mut Agent, io: &mut Io, key: usize, reason: CloseReason) {
    let Some(taken) = agent.taken.get_mut(key) else { return };
    let (flow, sent, was_arriving) = (taken.flow, taken.sent, taken.is_arriving);
    // The connection could not be restored, but the answer is still offered.
    let exchange = if was_arriving { taken.exchange.take() } else { None };
    remove(agent, io, flow);
    if was_arriving {
        if let Some(state) = exchange.and_then(|exchange| agent.exchanges.get_mut(exchange)) {
            state.is_taken = state.session == usize::MAX;
        }
        if !std::mem::replace(&mut agent.is_told, true) {
            warn!(
                ?reason,
                "clients' connections do not come in here, and answers are relayed: that takes CAP_NET_ADMIN, and the virtual address"
            );
        }
        return connections::not_restored(agent, io, flow);
    }
    let (ending, left) = match reason {
        CloseReason::Peer => (Ending::Client, Left::Client),
        _ => (Ending::Reset, Left::Reset),
    };
    agent.metrics.left.of(left).add(1);
    connections::client_gone(agent, io, flow, ending, sent);
}

/// Sends the answer on the connection, from the first byte that the client lacks.
fn start(
    agent: &mut Agent,
    io: &mut Io,
    flow: Flow,
    (session, ticket): (SessionId, Ticket),
    answer_sent: u64,
) {
    let Some(key) = agent.of_flow.get(&flow).copied() else { return };
    let exchange = exchange_of(agent, session, ticket);
    let state = exchange.and_then(|exchange| Some((exchange, agent.exchanges.get_mut(exchange)?)));
    // A relayed answer no longer has its head.
    let has_answer = |state: &Exchange| state.answer.stage == Stage::Offered;
    let state = state
        .filter(|(_, state)| has_answer(state) && state.answer.head.len() as u64 >= answer_sent);
    let (Some((exchange, state)), Some(taken)) = (state, agent.taken.get_mut(key)) else {
        return connections::no_answer(agent, io, flow, answer_sent);
    };
    state.answer.stage = Stage::Direct;
    (state.direct, state.is_taken) = (Some(key), true);
    state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
    taken.exchange = Some(exchange);
    taken.asked_ns = Some(state.asked_ns);
    let out = io.output(taken.conn);
    let (head, kept) =
        (std::mem::take(&mut state.answer.head), std::mem::take(&mut state.answer.kept));
    out.extend_from_slice(&head[answer_sent as usize..]);
    out.extend_from_slice(&kept);
    taken.sent = (head.len() + kept.len()) as u64;
    connections::begins(
        &agent.metrics,
        taken,
        io.now_ns(),
        head.len() + kept.len() - answer_sent as usize,
    );
    agent.metrics.answer_bytes.of(Way::Direct).add(taken.sent - answer_sent);
    if state.answer.is_complete || state.answer.framing == Framing::None {
        return answer::finish_direct(agent, io, exchange);
    }
    if let Some(connection) = state.upstream.and_then(|upstream| agent.upstreams.get(upstream)) {
        io.resume_reading(connection.conn);
    }
}
