//! Answers on their way from agents to clients.

use shunt_handover::limits::CREDIT_BYTES;
use shunt_handover::message::{Framing, Message};
use shunt_reactor::Io;
use shunt_wire::http1::Version;

use crate::failing;
use crate::handover;
use crate::limits;
use crate::metrics::Way;
use crate::policy::{self, Offer, Verdict};
use crate::reply;
use crate::rest::status_of;
use crate::resume::{self, Offered};
use crate::state::{Answer, Dispatcher, Place};

/// An agent asks how a large answer is to reach the client.
pub(crate) fn offered(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    head: &[u8],
    framing: Framing,
) {
    let is_draining = dispatcher.is_draining;
    if dispatcher.clients.get(client).is_none_or(|state| state.place != Place::Here) {
        return;
    }
    let skipped = match resume::offered(dispatcher, io, client, head, framing) {
        Offered::Wrong => return,
        Offered::NoRest => 0,
        Offered::Rest(head_bytes) => head_bytes,
    };
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    let Some(exchange) = state.exchange.as_mut() else { return };
    dispatcher.metrics.note_answer(exchange, io.now_ns());
    dispatcher.metrics.offers.add(1);
    let (ticket, backend) = (exchange.ticket, exchange.backend);
    let offer = Offer {
        framing,
        version: exchange.version,
        goes_on: exchange.keep_alive && !is_draining,
        is_read: exchange.body.is_none(),
        has_tls: io.session_info(state.conn).is_some(),
        backlog: io.backlog(state.conn),
        link_backlog: dispatcher.backends[backend].backlog(io),
    };
    match policy::decide(dispatcher.options.handover, &offer) {
        Verdict::Relay(why) => {
            dispatcher.metrics.relayed.of(why).add(1);
            dispatcher.backends[backend].send(io, ticket, &Message::Fetch);
        }
        Verdict::HandOver => {
            dispatcher.metrics.handovers.add(1);
            handover::offer(dispatcher, io, client, skipped);
        }
    }
}

/// The client has the whole answer from an agent, and its connection is here again.
pub(crate) fn is_out(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    dispatcher.take_exchange(client);
    reply::next(dispatcher, io, client);
}

/// An agent's violation of the protocol; ends its control connection.
pub(crate) type Wrong = &'static str;

const OUT_OF_ORDER: Wrong = "the agent has sent parts of an answer out of order";
const TOO_MANY_INTERIM: Wrong = "the agent has sent too many interim answers (1xx) to one request";
const NO_CREDIT: Wrong = "the agent has sent more of an answer than it was given credit for";

/// Takes the head of an answer.
pub(crate) fn head(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    head: &[u8],
    framing: Framing,
) -> Result<(), Wrong> {
    let is_draining = dispatcher.is_draining;
    let Some(state) = dispatcher.clients.get_mut(client) else { return Ok(()) };
    let Some(exchange) = state.exchange.as_mut() else { return Ok(()) };
    if matches!(status_of(head), Some(100..=199)) {
        exchange.interim += 1;
        if exchange.interim > limits::INTERIM_MAX {
            return Err(TOO_MANY_INTERIM);
        }
    }
    if exchange.rest.as_ref().is_some_and(|rest| rest.is_awaited()) {
        resume::head(dispatcher, io, client, head);
        return Ok(());
    }
    let Some((front, status)) = split_head(head).filter(|_| exchange.answer.is_none()) else {
        return Err(OUT_OF_ORDER);
    };
    let (conn, version) = (state.conn, exchange.version);
    if status >= 200 {
        dispatcher.metrics.note_answer(exchange, io.now_ns());
    }
    if status < 200 {
        // RFC 9110, section 15.2: HTTP/1.0 clients get no interim answers. A client that reads
        // nothing gets none either: they would arrive too late.
        if version == Version::Http11 && io.backlog(conn) <= limits::CLIENT_BACKLOG_BYTES_LOW {
            io.output(conn).extend_from_slice(head);
            dispatcher.weight.grow(head.len());
        }
        state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns;
        return Ok(());
    }
    if framing == Framing::Chunked && version == Version::Http10 {
        failing::give_up(dispatcher, io, client).inspect(|exchange| {
            let text = "the server has sent chunks to a client of HTTP/1.0";
            reply::error(dispatcher, io, client, Some(exchange), 502, text);
        });
        return Ok(());
    }
    let goes_on = exchange.keep_alive
        && exchange.body.is_none()
        && framing != Framing::UntilClose
        && !is_draining;
    let connection: &[u8] = match (goes_on, version) {
        (false, _) => b"Connection: close\r\n\r\n",
        (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
        (true, Version::Http11) => b"\r\n",
    };
    let out = io.output(conn);
    out.extend_from_slice(front);
    out.extend_from_slice(connection);
    let left = if let Framing::Length(length) = framing { Some(length) } else { None };
    exchange.answer = Some(Answer { left, uncredited: 0, goes_on });
    exchange.rest = resume::of(exchange, head, framing);
    if exchange.rest.is_none() {
        exchange.head = Vec::new();
    }
    (state.writes, state.stalled_since_ns) = (io.writes_of(conn), io.now_ns());
    if exchange.body.is_none() {
        state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns;
    }
    if framing == Framing::None {
        finish(dispatcher, io, client);
    }
    Ok(())
}

/// Splits off the empty line that ends the head, and reads the status.
fn split_head(head: &[u8]) -> Option<(&[u8], u16)> {
    Some((head.strip_suffix(b"\r\n")?, status_of(head)?))
}

/// Takes bytes of an answer's body.
pub(crate) fn body(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    bytes: &[u8],
) -> Result<(), Wrong> {
    let Some(state) = dispatcher.clients.get_mut(client) else { return Ok(()) };
    let exchange = state.exchange.as_mut().ok_or(OUT_OF_ORDER)?;
    let answer = exchange.answer.as_mut().ok_or(OUT_OF_ORDER)?;
    if exchange.body.is_none() {
        state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns;
    }
    // The initial credit is the most an agent may ever be ahead: further credit replaces bytes
    // received.
    let uncredited = answer.uncredited.saturating_add(bytes.len() as u32);
    if uncredited > CREDIT_BYTES {
        return Err(NO_CREDIT);
    }
    if let Some(left) = &mut answer.left {
        *left = left.checked_sub(bytes.len() as u64).ok_or(OUT_OF_ORDER)?;
    }
    answer.uncredited = uncredited;
    dispatcher.metrics.answer_bytes.of(Way::Relayed).add(bytes.len() as u64);
    io.output(state.conn).extend_from_slice(bytes);
    dispatcher.weight.grow(bytes.len());
    give_credit(dispatcher, io, client);
    Ok(())
}

/// Grants the agent credit for what the client has taken, now or later.
pub(crate) fn give_credit(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    let Some(exchange) = state.exchange.as_mut() else { return };
    let Some(answer) = exchange.answer.as_mut() else { return };
    if answer.uncredited < limits::CREDIT_STEP_BYTES {
        return;
    }
    if io.backlog(state.conn) > limits::CLIENT_BACKLOG_BYTES_LOW {
        io.notify_drained(state.conn, limits::CLIENT_BACKLOG_BYTES_LOW);
        return;
    }
    let bytes = std::mem::take(&mut answer.uncredited);
    dispatcher.backends[exchange.backend].send(io, exchange.ticket, &Message::Credit { bytes });
}

/// Takes the end of a body.
pub(crate) fn end(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) -> Result<(), Wrong> {
    let Some(state) = dispatcher.clients.get(client) else { return Ok(()) };
    let answer = state.exchange.as_ref().and_then(|exchange| exchange.answer.as_ref());
    let is_whole = answer.is_some_and(|answer| answer.left.is_none_or(|left| left == 0));
    if !is_whole {
        return Err(OUT_OF_ORDER);
    }
    finish(dispatcher, io, client);
    Ok(())
}

/// Ends an exchange whose whole answer has gone to the client; the next request may come.
fn finish(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    if let Some(exchange) = dispatcher.take_exchange(client) {
        reply::whole(dispatcher, io, client, &exchange);
    }
}
