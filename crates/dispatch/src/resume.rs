//! Resumes an answer that breaks off, with the rest from another backend, where it is certain to be
//! the rest of the same answer.
//!
//! It is certain if the strong entity tag and the length are the same (RFC 9110, section 8.8.1).
//! The dispatcher asks for the rest by `Range` and `If-Range`, and the answer must say that it is
//! these bytes of that whole. Its head stays here: the client has had one. Bytes that do not
//! continue a part must never be sent behind it; if the rest cannot be had, the client is cut off,
//! as it would be without this module.
//!
//! Excluded are answers in chunks and those that end with the connection, whose length is unknown;
//! answers with a weak tag or none; several ranges in one answer; and requests that are not GET,
//! have a body or a very long head.

use shunt_handover::message::Framing;
use shunt_reactor::Io;
use tracing::debug;

use crate::rest::{Rest, status_of};
use crate::state::{Answer, Dispatcher, Exchange};
use crate::{failing, limits, reply};

/// Result of checking an offered answer.
pub(crate) enum Offered {
    /// The answer is not a rest, and none was requested.
    NoRest,
    /// The answer is the rest; this many bytes before it are not for the client.
    Rest(u64),
    /// The answer should be the rest and is not, and has been dealt with; or it must not be
    /// offered.
    Wrong,
}

/// The rest of a whole answer, if another backend could be asked for it.
pub(crate) fn of(exchange: &Exchange, head: &[u8], framing: Framing) -> Option<Box<Rest>> {
    // A body is already gone, and a long head is not kept for the duration of an answer.
    let is_alone = exchange.body.is_none() && exchange.body_bytes == 0;
    let is_short = exchange.head.len() <= limits::RESUMED_REQUEST_BYTES_MAX;
    let is_get = exchange.is_read && !exchange.to_head && is_alone && is_short;
    is_get.then(|| Rest::of(head, framing)).flatten()
}

/// Checks an offered answer: it may be the requested rest, or one that has a rest.
pub(crate) fn offered(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    head: &[u8],
    framing: Framing,
) -> Offered {
    let Some(exchange) =
        dispatcher.clients.get_mut(client).and_then(|state| state.exchange.as_mut())
    else {
        return Offered::Wrong;
    };
    let has_begun = exchange.answer.is_some();
    match &mut exchange.rest {
        Some(rest) if rest.is_awaited() && !rest.is_in(head) => {
            refused(dispatcher, io, client);
            Offered::Wrong
        }
        Some(rest) if rest.is_awaited() => {
            rest.set_head(head.len() as u64);
            Offered::Rest(head.len() as u64)
        }
        // An answer that has partly been relayed must not be offered.
        _ if has_begun => Offered::Wrong,
        _ => {
            exchange.rest = of(exchange, head, framing);
            Offered::NoRest
        }
    }
}

/// Takes the head of an answer that should be a rest; the head is not passed on.
pub(crate) fn head(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, head: &[u8]) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    let Some(rest) = state.exchange.as_mut().and_then(|exchange| exchange.rest.as_mut()) else {
        return;
    };
    match status_of(head) {
        Some(100..=199) => state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns,
        _ if rest.is_in(head) => {
            rest.begins();
            (state.writes, state.stalled_since_ns) = (io.writes_of(state.conn), io.now_ns());
        }
        _ => refused(dispatcher, io, client),
    }
}

/// The answer is not the rest: its version differs, or the server does not support ranges.
fn refused(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    if let Some(exchange) = failing::give_up(dispatcher, io, client) {
        go_on(dispatcher, io, client, exchange, "a backend has not the same");
    }
}

/// Takes a client's connection that is back with `answer_sent` bytes of its answer, head included.
pub(crate) fn came_back(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, answer_sent: u64) {
    let Some(mut exchange) = dispatcher.take_exchange(client) else {
        return reply::cut(dispatcher, io, client);
    };
    let Some(left) = exchange.rest.as_mut().and_then(|rest| rest.sent(answer_sent)) else {
        return reply::cut(dispatcher, io, client);
    };
    exchange.answer = Some(Answer { left: Some(left), uncredited: 0, goes_on: true });
    go_on(dispatcher, io, client, exchange, "the server has broken off its answer");
}

/// Resumes an answer that broke off and whose sender has forgotten it: requests the rest, or cuts
/// the client off.
pub(crate) fn go_on(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    mut exchange: Exchange,
    reason: &str,
) {
    let left = exchange.answer.as_ref().and_then(|answer| answer.left);
    let (Some(rest), Some(left)) = (&mut exchange.rest, left) else {
        debug!(reason, "a client is cut off within an answer");
        return reply::cut(dispatcher, io, client);
    };
    if left == 0 {
        // The answer broke off after its last byte.
        return reply::whole(dispatcher, io, client, &exchange);
    }
    let may_be = rest.ask(left);
    let key = dispatcher.clients.get(client).map(|state| state.key());
    let choose = |key| failing::choose(dispatcher, key, true, Some(exchange.backend)).ok();
    let Some(backend) = key.and_then(choose).filter(|_| may_be) else {
        debug!(
            reason,
            "a client is cut off within an answer: no other backend can be asked for the rest"
        );
        return reply::cut(dispatcher, io, client);
    };
    debug!(reason, left, "the rest of an answer is asked of another backend");
    dispatcher.metrics.resumed.add(1);
    if let Some(answer) = &mut exchange.answer {
        answer.uncredited = 0;
    }
    exchange.ticket = dispatcher.ticket();
    failing::send(dispatcher, io, client, exchange, backend);
}
