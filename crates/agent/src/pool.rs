//! Connections to the server: reused while possible, bounded in number.

use shunt_reactor::Io;

use crate::held::Held;
use crate::limits;
use crate::shares;
use crate::state::{Agent, Exchange, Peer, Upstream};

/// Gives an exchange a connection, or a place in a queue.
pub(crate) fn assign(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(state) = agent.exchanges.get(exchange) else { return };
    let (is_whole, is_full) = (state.request_is_complete, state.request_credit == 0);
    let may_have_one = is_whole || (has_room(agent) && may_begin(agent, is_full));
    if !may_have_one {
        return wait(agent, io, exchange);
    }
    if !shares::may_have(agent, io.now_ns(), state) {
        return wait(agent, io, exchange);
    }
    // The server is least likely to close the connection used last.
    match agent.idle.pop() {
        Some(upstream) => join(agent, io, exchange, upstream),
        None if agent.upstreams.len() < agent.options.upstream_connections_max => {
            connect(agent, io, exchange)
        }
        None => wait(agent, io, exchange),
    }
}

/// Opens a new connection for an exchange.
pub(crate) fn connect(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let conn = io.connect(agent.options.upstream, limits::CONNECT_NS);
    let upstream = agent.upstreams.insert(Upstream::new(conn));
    agent.set_peer(conn, Peer::Upstream(upstream));
    join(agent, io, exchange, upstream);
}

/// Binds the exchange to this connection and sends the part of its request that has come.
fn join(agent: &mut Agent, io: &mut Io, exchange: usize, upstream: usize) {
    let (Some(connection), Some(state)) =
        (agent.upstreams.get_mut(upstream), agent.exchanges.get_mut(exchange))
    else {
        return;
    };
    connection.exchange = Some(exchange);
    agent.held.add(state.client, !state.request_is_complete);
    state.upstream = Some(upstream);
    state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
    io.output(connection.conn).extend_from_slice(&state.request);
    if !state.is_repeatable {
        state.request = Vec::new();
    }
    give_credit(agent, io, exchange);
}

/// Grants credit for the part of a request's body that the server has taken, now or later.
pub(crate) fn give_credit(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(state) = agent.exchanges.get_mut(exchange) else { return };
    let Some(connection) = state.upstream.and_then(|upstream| agent.upstreams.get(upstream)) else {
        return;
    };
    if state.request_taken == 0 || state.request_is_complete {
        return;
    }
    if io.backlog(connection.conn) > limits::UPSTREAM_BACKLOG_BYTES_LOW {
        io.notify_drained(connection.conn, limits::UPSTREAM_BACKLOG_BYTES_LOW);
        return;
    }
    let Exchange { session, ticket, .. } = *state;
    let bytes = std::mem::take(&mut state.request_taken);
    state.request_credit += u64::from(bytes);
    let credit = shunt_handover::message::Message::Credit { bytes };
    if let Some(session) = agent.sessions.get_mut(session) {
        session.send(io, ticket, &credit);
    }
}

/// Releases an exchange's connection, for reuse if `goes_on`.
pub(crate) fn release(agent: &mut Agent, io: &mut Io, upstream: usize, goes_on: bool) {
    let Some(connection) = agent.upstreams.get_mut(upstream) else { return };
    connection.exchange = None;
    connection.body = None;
    connection.reader.reset();
    connection.answers += 1;
    // Bytes behind an answer would pass for the next one.
    let has_more = io.is_paused(connection.conn) && io.unread(connection.conn) > 0;
    if !goes_on || has_more || agent.is_draining {
        drop_connection(agent, io, upstream);
        return;
    }
    connection.idle_since_ns = io.now_ns();
    io.resume_reading(connection.conn);
    agent.idle.push(upstream);
}

/// Closes a connection.
pub(crate) fn drop_connection(agent: &mut Agent, io: &mut Io, upstream: usize) {
    if let Some(connection) = agent.upstreams.get(upstream) {
        io.abort(connection.conn);
        gone(agent, upstream);
    }
}

/// Forgets a connection that has ended.
pub(crate) fn gone(agent: &mut Agent, upstream: usize) {
    let Some(connection) = agent.upstreams.try_remove(upstream) else { return };
    agent.set_peer(connection.conn, Peer::Nobody);
    agent.idle.retain(|idle| *idle != upstream);
}

/// Gives freed connections to waiting exchanges. Runs at the end of a turn, when all bytes behind
/// an answer have been seen.
pub(crate) fn serve_waiting(agent: &mut Agent, io: &mut Io) {
    // Uploads come first: their share is limited, so they cannot keep out the rest.
    while has_room(agent)
        && let Some(exchange) =
            next_upload(agent, io.now_ns()).or_else(|| shares::next_request(agent, io.now_ns()))
    {
        assign(agent, io, exchange);
    }
}

pub(crate) fn has_room(agent: &Agent) -> bool {
    agent.upstreams.len() < agent.options.upstream_connections_max || !agent.idle.is_empty()
}

/// Connections that incomplete requests may use: half of them, a quarter for requests that may
/// still be small. A request that has used up its credit cannot send more until it has a
/// connection.
pub(crate) fn share(agent: &Agent, is_full: bool) -> usize {
    (agent.options.upstream_connections_max / if is_full { 2 } else { 4 }).max(1)
}

/// True if the connections are counted rightly.
pub(crate) fn is_counted(agent: &Agent) -> bool {
    let upstreams = agent.upstreams.iter();
    let states = upstreams.filter_map(|(_, upstream)| agent.exchanges.get(upstream.exchange?));
    let mut held = Held::default();
    states.for_each(|state| held.add(state.client, !state.request_is_complete));
    held == agent.held
}

/// Connections in use by incomplete requests.
fn under_way(agent: &Agent) -> usize {
    agent.held.uploads.sum()
}

/// True if one more incomplete request may have a connection now.
pub(crate) fn may_begin(agent: &Agent, is_full: bool) -> bool {
    under_way(agent) < share(agent, is_full)
}

/// Puts an exchange in its line.
fn wait(agent: &mut Agent, io: &Io, exchange: usize) {
    let Some(state) = agent.exchanges.get(exchange) else { return };
    let line = match state.request_is_complete {
        true => &mut agent.waiting,
        false if state.request_credit == 0 => &mut agent.uploads.full,
        false => &mut agent.uploads.others,
    };
    line.push(exchange, state.client, io.now_ns());
}

/// The request has used up its credit: from now on it waits for the server.
pub(crate) fn filled(agent: &mut Agent, io: &Io, exchange: usize) {
    if agent.uploads.remove(exchange) {
        wait(agent, io, exchange);
        if let Some(state) = agent.exchanges.get_mut(exchange) {
            state.wait_until(io.now_ns() + agent.options.upstream_timeout_ns);
        }
    }
}

/// The request is complete.
pub(crate) fn completed(agent: &mut Agent, io: &Io, exchange: usize) {
    if agent.uploads.remove(exchange) {
        wait(agent, io, exchange);
    }
}

/// The next incomplete request that may have a connection.
fn next_upload(agent: &mut Agent, now_ns: u64) -> Option<usize> {
    if agent.uploads.len() == 0 {
        return None;
    }
    let under_way = under_way(agent);
    if under_way < share(agent, true)
        && let Some(exchange) = shares::next_upload(agent, now_ns)
    {
        return Some(exchange);
    }
    if under_way < share(agent, false) { shares::next_small_upload(agent, now_ns) } else { None }
}
