//! Requests on their way to the server.

use shunt_handover::message::{Message, Ticket};
use shunt_reactor::Io;

use crate::connections;
use crate::limits;
use crate::log_limits::Line;
use crate::pool;
use crate::shares;
use crate::state::{Agent, Exchange};

/// Starts an exchange for a request, whose body may follow.
pub(crate) fn start(
    agent: &mut Agent,
    io: &mut Io,
    (session, ticket): (usize, Ticket),
    head: &[u8],
    has_body: bool,
    is_idempotent: bool,
) {
    agent.metrics.requests.add(1);
    agent.waiting_bytes += head.len();
    let Some((session_id, is_taken)) =
        agent.sessions.get(session).map(|one| (one.id, one.takes_requests))
    else {
        return;
    };
    let client = shares::client(head);
    let refusal = match agent.places.has_place(client, limits::EXCHANGES_MAX) {
        _ if !is_taken => Some("the agent is ending"),
        false if agent.places.taken() >= limits::EXCHANGES_MAX => {
            Some("the agent has too many requests")
        }
        false => Some("the agent has too many requests of this address"),
        true => None,
    };
    if let Some(reason) = refusal {
        agent.metrics.failed.add(1);
        if let Some(session) = agent.sessions.get_mut(session) {
            session.send(io, ticket, &Message::Failed { status: 503, reason });
        }
        return;
    }
    let times_ns = (io.now_ns(), io.now_ns() + agent.options.upstream_timeout_ns);
    let mut state = Exchange::new((session, session_id), ticket, times_ns);
    state.client = client;
    state.request.extend_from_slice(head);
    state.request_is_complete = !has_body;
    state.is_repeatable = is_idempotent && !has_body;
    state.to_head = head.starts_with(b"HEAD ");
    agent.places.add(client);
    let exchange = agent.exchanges.insert(state);
    if let Some(session) = agent.sessions.get_mut(session) {
        session.exchanges.insert(ticket, exchange);
    }
    pool::assign(agent, io, exchange);
    if agent.waiting_bytes > agent.waiting_bytes_max {
        bound_waiting(agent, io);
    }
}

/// Takes bytes of a request's body. False if they exceed the credit.
pub(crate) fn body(
    agent: &mut Agent,
    io: &mut Io,
    session: usize,
    ticket: Ticket,
    bytes: &[u8],
) -> bool {
    let Some(&exchange) =
        agent.sessions.get(session).and_then(|session| session.exchanges.get(&ticket))
    else {
        return true;
    };
    let Some(state) = agent.exchanges.get_mut(exchange) else { return true };
    let Some(credit) =
        state.request_credit.checked_sub(bytes.len() as u64).filter(|_| !state.request_is_complete)
    else {
        return false;
    };
    state.request_credit = credit;
    if state.request_taken == 0 {
        // From here on the exchange waits for the server. Further bytes do not extend its deadline;
        // bytes that the server takes do (`service.rs`).
        state.wait_until(io.now_ns() + agent.options.upstream_timeout_ns);
    }
    // The credit given at once is far below 32 bits.
    state.request_taken = state.request_taken.saturating_add(bytes.len() as u32);
    match state.upstream.and_then(|upstream| agent.upstreams.get(upstream)) {
        Some(upstream) => {
            state.pace.moved_bytes += bytes.len() as u64;
            io.output(upstream.conn).extend_from_slice(bytes);
        }
        None => {
            state.request.extend_from_slice(bytes);
            agent.waiting_bytes += bytes.len();
            if state.request_credit == 0 {
                pool::filled(agent, io, exchange);
            }
        }
    }
    pool::give_credit(agent, io, exchange);
    if agent.waiting_bytes > agent.waiting_bytes_max {
        bound_waiting(agent, io);
    }
    true
}

/// Counts the bytes that wait for a connection. If they exceed the limit, refuses the largest
/// requests until a quarter is free.
fn bound_waiting(agent: &mut Agent, io: &mut Io) {
    let waiting = agent.exchanges.iter().filter(|(_, state)| state.upstream.is_none());
    let mut waiting: Vec<(usize, usize)> =
        waiting.map(|(exchange, state)| (state.request.len(), exchange)).collect();
    agent.waiting_bytes = waiting.iter().map(|(bytes, _)| bytes).sum();
    if agent.waiting_bytes <= agent.waiting_bytes_max {
        return;
    }
    waiting.sort_unstable();
    while agent.waiting_bytes > agent.waiting_bytes_max - agent.waiting_bytes_max / 4
        && let Some((bytes, exchange)) = waiting.pop()
    {
        agent.waiting_bytes -= bytes;
        fail(agent, io, exchange, 503, "the requests that wait at the agent have too many bytes");
    }
}

/// Marks a request's body as complete.
pub(crate) fn end(agent: &mut Agent, io: &Io, exchange: usize) {
    let Some(state) = agent.exchanges.get_mut(exchange) else { return };
    if state.upstream.is_some() && !state.request_is_complete {
        agent.held.complete(state.client);
    }
    state.request_is_complete = true;
    state.pace.request_ended();
    state.wait_until(io.now_ns() + agent.options.upstream_timeout_ns);
    pool::completed(agent, io, exchange);
}

/// Ends an exchange whose answer is no longer wanted.
pub(crate) fn cancel(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let upstream = forget(agent, exchange);
    if let Some(upstream) = upstream {
        // The answer would have to be read to its end before the connection could be reused.
        pool::drop_connection(agent, io, upstream);
    }
}

/// Reports why an exchange failed, and ends it.
pub(crate) fn fail(agent: &mut Agent, io: &mut Io, exchange: usize, status: u16, reason: &str) {
    let Some(&Exchange { session, ticket, direct, .. }) = agent.exchanges.get(exchange) else {
        return;
    };
    agent.metrics.failed.add(1);
    if let Some(key) = direct {
        if let Some(suppressed) = agent.log_limits.admit(Line::BrokenOff, io.now_ns()) {
            tracing::warn!(
                reason,
                suppressed,
                "an answer on its client's own connection is broken off"
            );
        }
        connections::broken_off(agent, io, key);
        return cancel(agent, io, exchange);
    }
    if let Some(session) = agent.sessions.get_mut(session) {
        session.send(io, ticket, &Message::Failed { status, reason });
    }
    cancel(agent, io, exchange);
}

/// Forgets an exchange; returns its connection to the server.
pub(crate) fn forget(agent: &mut Agent, exchange: usize) -> Option<usize> {
    let state = agent.exchanges.try_remove(exchange)?;
    agent.places.remove(state.client);
    if state.upstream.is_some() {
        agent.held.remove(state.client, !state.request_is_complete);
    }
    if state.is_taken {
        connections::without_answer(agent, exchange, state.direct);
    }
    connections::offer_over(agent, state.session_id, state.ticket);
    agent.waiting.remove(exchange);
    agent.uploads.remove(exchange);
    if let Some(session) = agent.sessions.get_mut(state.session) {
        session.exchanges.remove(&state.ticket);
        session.turns.forget(state.ticket);
    }
    state.upstream
}
