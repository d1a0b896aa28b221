//! An answer that breaks off goes on with its rest from another backend, where that is certain to
//! be the rest of it.
//!
//! Certain is what has the same strong entity tag and the same length (RFC 9110, section 8.8.1).
//! The rest is asked for by `Range` and `If-Range`, and what comes has to say that it is these
//! bytes of that whole. Its head is for us alone: the client has had one. Never is anything put
//! behind a part of an answer that does not follow it; whose rest cannot be had is cut off, as it
//! would be without all this.
//!
//! That leaves out answers in chunks and those that end with the connection, of which nobody knows
//! what is left; those with a weak tag or none; several ranges in one answer; whatever is no GET,
//! or has a body or a very long head.

use shunt_handover::message::Framing;
use shunt_reactor::Io;
use tracing::debug;

use crate::rest::{Rest, status_of};
use crate::state::{Answer, Dispatcher, Exchange};
use crate::{failing, limits, reply};

/// What an agent says of an answer that is to be a rest.
pub(crate) enum Offered {
    /// It is not, or was not asked for as one.
    NoRest,
    /// It is, with so many bytes in front that the client is not to have.
    Rest(u64),
    /// It should be, and is not, and has been dealt with; or there is none to be offered.
    Wrong,
}

/// All of an answer, if another backend could be asked for a rest of it.
pub(crate) fn of(exchange: &Exchange, head: &[u8], framing: Framing) -> Option<Box<Rest>> {
    // A body has gone by, and a long head is not kept for as long as an answer takes.
    let is_alone = exchange.body.is_none() && exchange.body_bytes == 0;
    let is_short = exchange.head.len() <= limits::RESUMED_REQUEST_BYTES_MAX;
    let is_get = exchange.is_read && !exchange.to_head && is_alone && is_short;
    is_get.then(|| Rest::of(head, framing)).flatten()
}

/// An agent offers an answer: looks whether it is the rest that it was asked for, or one of which
/// there may be a rest.
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
        // An answer of which some has been relayed is none to be offered.
        _ if has_begun => Offered::Wrong,
        _ => {
            exchange.rest = of(exchange, head, framing);
            Offered::NoRest
        }
    }
}

/// The head of an answer that is to be a rest: it ends here.
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

/// What came is not the rest: it is of another version, or the server has no parts of it.
fn refused(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    if let Some(exchange) = failing::give_up(dispatcher, io, client) {
        go_on(dispatcher, io, client, exchange, "a backend has not the same");
    }
}

/// A client's connection is back with a part of its answer, of which this is how many bytes, those
/// of the head among them.
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

/// An answer has broken off here; whoever sent it knows no more of it. Its rest is asked for, or
/// its client cut off.
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
        // It broke off behind its last byte.
        return reply::whole(dispatcher, io, client, &exchange);
    }
    let may_be = rest.ask(left);
    let Some(backend) =
        failing::choose(dispatcher, true, Some(exchange.backend)).ok().filter(|_| may_be)
    else {
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
