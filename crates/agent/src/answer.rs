//! Answers from the server: read, offered if they are large, and sent as far as credit allows.
//!
//! ```text
//! awaited ──head──> held (size unknown) ──threshold──> offered ──FETCH──> relayed ──end──> the connection is free
//!    │                │ end, or its time is over ─────────────────────────^
//!    ├── small ───────────────────────────────────────────────────────────^
//!    '── large ───────────────────────────────────────> offered
//! ```

use shunt_handover::limits::ETAG_BYTES_MAX;
use shunt_handover::message::{self, Message};
use shunt_reactor::{CloseReason, Io};
use shunt_wire::http1::{BodyReader, Framing, Refusal, ResponseHead};

use crate::connections;
use crate::limits;
use crate::metrics::{Way, Why};
use crate::pool;
use crate::request;
use crate::state::{Agent, Exchange, Stage};

/// Mark of the timers that end holding an answer; the rest of the key is the exchange's.
pub(crate) const HOLD_TIMER: u64 = 1 << 63;

/// Outcome of one look at the server's bytes.
enum Step {
    /// The step used this many bytes; more work may follow.
    Used(usize),
    /// The step needs more bytes, credit or a decision.
    Wait,
    /// The connection is gone.
    Gone,
}

/// Takes bytes from the server. Returns how many it used.
pub(crate) fn received(agent: &mut Agent, io: &mut Io, upstream: usize, data: &[u8]) -> usize {
    let mut used = 0;
    loop {
        match step(agent, io, upstream, &data[used..]) {
            Step::Used(bytes) => used += bytes,
            Step::Wait => return used,
            Step::Gone => return data.len(),
        }
    }
}

fn step(agent: &mut Agent, io: &mut Io, upstream: usize, data: &[u8]) -> Step {
    let Some(connection) = agent.upstreams.get(upstream) else { return Step::Gone };
    if data.is_empty() || io.is_paused(connection.conn) {
        return Step::Wait;
    }
    let Some(exchange) = connection.exchange else {
        // No request is under way: the bytes would pass for the answer to the next one.
        pool::drop_connection(agent, io, upstream);
        return Step::Gone;
    };
    match connection.body {
        None => head(agent, io, upstream, exchange, data),
        Some(_) => body(agent, io, upstream, exchange, data),
    }
}

/// Fields of a head that outlive its bytes.
struct Found {
    bytes: usize,
    status: u16,
    framing: Framing,
    keep_alive: bool,
    forwarded: Vec<u8>,
    etag: Vec<u8>,
}

fn head(agent: &mut Agent, io: &mut Io, upstream: usize, exchange: usize, data: &[u8]) -> Step {
    let (Some(connection), Some(state)) =
        (agent.upstreams.get_mut(upstream), agent.exchanges.get_mut(exchange))
    else {
        return Step::Gone;
    };
    let read = |connection: &mut crate::state::Upstream| -> Result<Option<Found>, Refusal> {
        let Some(head) = connection.reader.read(data)? else { return Ok(None) };
        let response = ResponseHead::read(head, state.to_head)?;
        let mut forwarded = Vec::new();
        response.forward(&[], &mut forwarded);
        let etag = response
            .strong_etag()
            .filter(|etag| etag.len() <= ETAG_BYTES_MAX)
            .unwrap_or_default()
            .to_vec();
        let (bytes, status, framing) = (head.len(), response.status, response.framing);
        Ok(Some(Found { bytes, status, framing, keep_alive: response.keep_alive, forwarded, etag }))
    };
    let found = match read(connection) {
        Ok(None) => return Step::Wait,
        Ok(Some(found)) => found,
        Err(refusal) => return refuse(agent, io, exchange, refusal),
    };
    connection.reader.reset();
    // Once an answer has begun, a second request would not be the same.
    state.is_repeatable = false;
    state.request = Vec::new();
    state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
    if found.status == 101 {
        let reason = "the server has changed the protocol without being asked";
        request::fail(agent, io, exchange, 502, reason);
        return Step::Gone;
    }
    if found.status < 200 {
        state.interim += 1;
        if state.interim > limits::INTERIM_MAX {
            request::fail(
                agent,
                io,
                exchange,
                502,
                "the server has sent too many interim answers (1xx)",
            );
            return Step::Gone;
        }
        let Exchange { session, ticket, .. } = *state;
        let interim = Message::Response { head: &found.forwarded, framing: message::Framing::None };
        if let Some(session) = agent.sessions.get_mut(session) {
            session.send(io, ticket, &interim);
        }
        return Step::Used(found.bytes);
    }
    connection.body = Some(BodyReader::new(found.framing));
    connection.keep_alive = found.keep_alive;
    state.answer.head = found.forwarded;
    state.answer.framing = found.framing;
    state.answer.etag = found.etag;
    decide(agent, io, exchange);
    Step::Used(found.bytes)
}

/// Decides whether to offer, hold or relay an answer whose head is complete.
fn decide(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(state) = agent.exchanges.get_mut(exchange) else { return };
    match (agent.options.threshold_bytes, state.answer.framing) {
        (Some(threshold), Framing::Length(length)) if length >= threshold => {
            offer(agent, io, exchange)
        }
        (Some(_), Framing::Chunked | Framing::UntilClose) => {
            state.answer.stage = Stage::Held;
            state.deadline_ns = io.now_ns() + agent.options.hold_ns;
            io.set_timer(state.deadline_ns, HOLD_TIMER | exchange as u64);
        }
        _ => relay(agent, io, exchange),
    }
}

fn body(agent: &mut Agent, io: &mut Io, upstream: usize, exchange: usize, data: &[u8]) -> Step {
    let (Some(connection), Some(state)) =
        (agent.upstreams.get_mut(upstream), agent.exchanges.get_mut(exchange))
    else {
        return Step::Gone;
    };
    if let Some(key) = state.direct {
        return direct(agent, io, (upstream, exchange, key), data);
    }
    let Some(reader) = &mut connection.body else { return Step::Wait };
    if state.answer.stage == Stage::Offered {
        // Reading goes on once the owner has decided how the answer goes to the client.
        io.pause_reading(connection.conn);
        return Step::Wait;
    }
    let Some(session) = agent.sessions.get_mut(state.session) else {
        // The session is lost and the answer has no client connection: it cannot reach the client.
        request::cancel(agent, io, exchange);
        return Step::Gone;
    };
    let is_held = state.answer.stage == Stage::Held;
    // The threshold bounds held bytes; credit and the control connection's backlog bound sent ones.
    let room = match is_held {
        true => u64::MAX,
        false if state.credit == 0 || !state.answer.kept.is_empty() => 0,
        false => state.credit.min(session.turns.room(state.client, state.ticket)),
    };
    if room == 0 {
        io.pause_reading(connection.conn);
        return Step::Wait;
    }
    let visible = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
    let taken = match reader.take(visible) {
        Ok(taken) => taken,
        Err(refusal) => return refuse(agent, io, exchange, refusal),
    };
    let is_complete = reader.is_complete();
    if is_held {
        state.answer.kept.extend_from_slice(&visible[..taken]);
        state.answer.is_complete = is_complete;
        let is_large = agent
            .options
            .threshold_bytes
            .is_some_and(|threshold| state.answer.kept.len() as u64 >= threshold);
        if is_large {
            offer(agent, io, exchange);
        } else if is_complete {
            relay(agent, io, exchange);
        }
        return Step::Used(taken);
    }
    state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
    state.credit -= taken as u64;
    state.pace.moved_bytes += taken as u64;
    session.send_body(io, state.ticket, &visible[..taken]);
    if state.credit == 0 || (data.len() as u64) < room {
        session.turns.give_back(state.ticket);
    }
    agent.metrics.answer_bytes.of(Way::Relayed).add(taken as u64);
    let (key, has_waiting) = (state.session, session.turns.has_waiting());
    if is_complete {
        finish(agent, io, exchange);
    }
    if has_waiting {
        serve(agent, io, key);
    }
    Step::Used(taken)
}

/// Takes bytes of a body that goes out on its client's own connection.
fn direct(
    agent: &mut Agent,
    io: &mut Io,
    (upstream, exchange, key): (usize, usize, usize),
    data: &[u8],
) -> Step {
    let room = connections::room(agent, io, key);
    let (Some(connection), Some(state)) =
        (agent.upstreams.get_mut(upstream), agent.exchanges.get_mut(exchange))
    else {
        return Step::Gone;
    };
    if room == 0 {
        io.pause_reading(connection.conn);
        return Step::Wait;
    }
    let Some(reader) = &mut connection.body else { return Step::Wait };
    let visible = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
    let used = match reader.take(visible) {
        Ok(used) => used,
        Err(refusal) => return refuse(agent, io, exchange, refusal),
    };
    let is_complete = reader.is_complete();
    state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
    state.pace.moved_bytes += used as u64;
    connections::put(agent, io, key, &visible[..used]);
    if is_complete {
        finish_direct(agent, io, exchange);
    }
    Step::Used(used)
}

/// Asks the owner how the answer is to reach the client. Reading stops until it decides.
fn offer(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(&Exchange { session_id, ticket, .. }) = agent.exchanges.get(exchange) else { return };
    if !connections::may_offer(agent, io, session_id, ticket) {
        agent.metrics.relayed.of(Why::NoRoom).add(1);
        return relay(agent, io, exchange);
    }
    agent.metrics.offers.add(1);
    let Some(state) = agent.exchanges.get_mut(exchange) else { return };
    state.answer.stage = Stage::Offered;
    (state.offered_ns, state.deadline_ns) = (Some(io.now_ns()), io.now_ns() + limits::OFFER_NS);
    if let Some(connection) = state.upstream.and_then(|upstream| agent.upstreams.get(upstream)) {
        io.pause_reading(connection.conn);
    }
    let answer = &state.answer;
    let offer =
        Message::Offer { head: &answer.head, framing: framing(answer.framing), etag: &answer.etag };
    if let Some(session) = agent.sessions.get_mut(state.session) {
        session.send(io, state.ticket, &offer);
    }
}

/// Relays an offered answer, as its owner asked.
pub(crate) fn fetch(agent: &mut Agent, io: &mut Io, exchange: usize) {
    if agent.exchanges.get(exchange).is_some_and(|state| state.answer.stage == Stage::Offered) {
        agent.metrics.relayed.of(Why::Fetched).add(1);
        relay(agent, io, exchange);
    }
}

/// Relays an answer whose holding time is over.
pub(crate) fn hold_is_over(agent: &mut Agent, io: &mut Io, exchange: usize) {
    // The timer may belong to an exchange that has ended.
    let is_due =
        |state: &Exchange| state.answer.stage == Stage::Held && state.deadline_ns <= io.now_ns();
    if agent.exchanges.get(exchange).is_some_and(is_due) {
        agent.metrics.relayed.of(Why::HoldOver).add(1);
        relay(agent, io, exchange);
    }
}

/// Sends the head, and the part of the body read so far.
fn relay(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(state) = agent.exchanges.get_mut(exchange) else { return };
    let Some(session) = agent.sessions.get_mut(state.session) else {
        return request::cancel(agent, io, exchange);
    };
    state.answer.stage = Stage::Relayed;
    state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
    let answer = &state.answer;
    let response = Message::Response { head: &answer.head, framing: framing(answer.framing) };
    session.send(io, state.ticket, &response);
    state.answer.head = Vec::new();
    state.answer.etag = Vec::new();
    pump(agent, io, exchange);
}

/// Reads the answers that wait for room on a control connection, in order, as many as there is room
/// for.
pub(crate) fn serve(agent: &mut Agent, io: &mut Io, key: usize) {
    while let Some(session) = agent.sessions.get_mut(key) {
        let free = limits::SESSION_BACKLOG_BYTES_MAX.saturating_sub(io.backlog(session.conn));
        let Some(ticket) = session.turns.next(free as u64) else { return };
        if let Some(exchange) = session.exchanges.get(&ticket).copied() {
            pump(agent, io, exchange);
        }
    }
}

/// Sends kept bytes as far as credit allows, then reads on.
pub(crate) fn pump(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(state) = agent.exchanges.get_mut(exchange) else { return };
    if state.answer.stage != Stage::Relayed {
        return;
    }
    let Some(session) = agent.sessions.get_mut(state.session) else {
        return request::cancel(agent, io, exchange);
    };
    let kept = &mut state.answer.kept;
    let mut room = state.credit;
    if room > 0 && !kept.is_empty() {
        room = room.min(session.turns.room(state.client, state.ticket));
    }
    let sent = kept.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    if sent > 0 {
        session.send_body(io, state.ticket, &kept[..sent]);
        agent.metrics.answer_bytes.of(Way::Relayed).add(sent as u64);
        state.credit -= sent as u64;
        if state.credit == 0 {
            session.turns.give_back(state.ticket);
        }
        state.pace.moved_bytes += sent as u64;
        kept.drain(..sent);
    }
    if !kept.is_empty() {
        if state.credit > 0 {
            // Its turn is over: it takes its next place in line.
            session.turns.room(state.client, state.ticket);
        }
        return;
    }
    state.answer.kept = Vec::new();
    if state.answer.is_complete || state.answer.framing == Framing::None {
        finish(agent, io, exchange);
        return;
    }
    let Some(connection) = state.upstream.and_then(|upstream| agent.upstreams.get(upstream)) else {
        return;
    };
    if !io.is_paused(connection.conn) {
        // The server has sent nothing that waits for room.
        session.turns.give_back(state.ticket);
    } else if state.credit > 0 && session.turns.room(state.client, state.ticket) > 0 {
        state.deadline_ns = io.now_ns() + agent.options.upstream_timeout_ns;
        io.resume_reading(connection.conn);
    }
}

/// Ends an exchange whose answer is relayed whole.
fn finish(agent: &mut Agent, io: &mut Io, exchange: usize) {
    agent.metrics.answers.of(Way::Relayed).add(1);
    let Some(state) = agent.exchanges.get(exchange) else { return };
    if state.answer.framing != Framing::None
        && let Some(session) = agent.sessions.get_mut(state.session)
    {
        session.send(io, state.ticket, &Message::End);
    }
    free(agent, io, exchange);
}

/// Forgets an exchange and releases its connection to the server.
fn free(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(state) = agent.exchanges.get(exchange) else { return };
    // A server that answered early may take the rest of the request for another one.
    let was_whole = state.request_is_complete;
    if let Some(upstream) = request::forget(agent, exchange) {
        let goes_on = was_whole
            && agent.upstreams.get(upstream).is_some_and(|connection| connection.keep_alive);
        pool::release(agent, io, upstream, goes_on);
    }
}

/// Ends an exchange whose whole answer is in its client's own connection.
pub(crate) fn finish_direct(agent: &mut Agent, io: &mut Io, exchange: usize) {
    let Some(key) = agent.exchanges.get(exchange).and_then(|state| state.direct) else { return };
    agent.metrics.answers.of(Way::Direct).add(1);
    connections::is_out(agent, io, key);
    free(agent, io, exchange);
}

fn refuse(agent: &mut Agent, io: &mut Io, exchange: usize, refusal: Refusal) -> Step {
    request::fail(agent, io, exchange, 502, &format!("the server's answer is refused: {refusal}"));
    Step::Gone
}

/// A connection to the server has ended.
pub(crate) fn closed(agent: &mut Agent, io: &mut Io, upstream: usize, reason: CloseReason) {
    let Some(connection) = agent.upstreams.get_mut(upstream) else { return };
    let (exchange, was_used) = (connection.exchange.take(), connection.answers > 0);
    let may_end = connection.body.as_ref().is_some_and(BodyReader::may_end_here);
    pool::gone(agent, upstream);
    let Some(exchange) = exchange else { return };
    let Some(state) = agent.exchanges.get_mut(exchange) else { return };
    state.upstream = None;
    agent.held.remove(state.client, !state.request_is_complete);
    let server = agent.options.upstream;
    if may_end && reason == CloseReason::Peer {
        state.answer.is_complete = true;
        match state.answer.stage {
            Stage::Held => relay(agent, io, exchange),
            Stage::Direct => finish_direct(agent, io, exchange),
            _ => pump(agent, io, exchange),
        }
    } else if state.is_repeatable && was_used {
        // The server closed an idle connection just as a request reached it.
        state.is_repeatable = false;
        pool::connect(agent, io, exchange);
    } else {
        let (status, what) = match (reason, state.answer.stage) {
            (CloseReason::ConnectTimedOut, _) => (504, "does not answer a connect"),
            (CloseReason::ConnectFailed(_), _) => (502, "cannot be connected to"),
            (_, Stage::Awaited) => (502, "has closed the connection without an answer"),
            _ => (502, "has broken off its answer"),
        };
        request::fail(agent, io, exchange, status, &format!("the server {server} {what}"));
    }
}

/// The framing in the control protocol's terms.
fn framing(framing: Framing) -> message::Framing {
    match framing {
        Framing::None => message::Framing::None,
        Framing::Length(length) => message::Framing::Length(length),
        Framing::Chunked => message::Framing::Chunked,
        Framing::UntilClose => message::Framing::UntilClose,
    }
}
