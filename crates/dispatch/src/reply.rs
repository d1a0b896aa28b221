//! Answers that the dispatcher makes itself. All are errors, with one line that says what was
//! wrong.

use shunt_reactor::Io;
use tracing::debug;

use crate::metrics::Way;
use crate::state::{Dispatcher, Exchange};

/// Answers a failed exchange or a refused request (`None`). The connection stays open only if the
/// whole request was read.
pub(crate) fn error(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    exchange: Option<&Exchange>,
    status: u16,
    text: &str,
) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    debug!(client = %state.address, status, text, "an error is answered");
    dispatcher.metrics.errors.add(1);
    if let Some(host) = &state.host {
        host.errors.add(1);
    }
    let goes_on = exchange.is_some_and(|exchange| exchange.keep_alive && exchange.body.is_none());
    let goes_on = goes_on && !dispatcher.is_draining;
    let to_head = exchange.is_some_and(|exchange| exchange.to_head);
    let body = format!("shunt dispatch: {text}\n");
    let mut head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n",
        reason(status),
        body.len()
    );
    if status == 503 {
        head.push_str("Retry-After: 1\r\n");
    }
    head.push_str(if goes_on {
        "Connection: keep-alive\r\n\r\n"
    } else {
        "Connection: close\r\n\r\n"
    });
    let out = io.output(state.conn);
    out.extend_from_slice(head.as_bytes());
    if !to_head {
        out.extend_from_slice(body.as_bytes());
    }
    match goes_on {
        true => next(dispatcher, io, client),
        false => close(dispatcher, io, client),
    }
}

/// Lets the client send its next request.
pub(crate) fn next(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    if dispatcher.is_draining {
        // The answer's head may have gone out before the drain began; an idle connection may end at
        // any time.
        close(dispatcher, io, client);
        return;
    }
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    state.deadline_ns = io.now_ns() + dispatcher.options.idle_timeout_ns;
    state.is_in_head = false;
    state.reader.reset();
    if io.backlog(state.conn) > 0 {
        // The client may have ended its direction. Once that end is read, the event loop alone has
        // the output, and waits only briefly for the client to take it.
        io.pause_reading(state.conn);
        io.notify_drained(state.conn, 0);
        return;
    }
    io.resume_reading(state.conn);
}

/// Ends an exchange whose answer the client has been given whole.
pub(crate) fn whole(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, exchange: &Exchange) {
    dispatcher.metrics.answers.of(Way::Relayed).add(1);
    match exchange.answer.as_ref().is_some_and(|answer| answer.goes_on) {
        true => next(dispatcher, io, client),
        false => close(dispatcher, io, client),
    }
}

/// Closes a client's connection once its output has gone out, for as long as the client goes on
/// taking it: the event loop itself would wait only briefly.
pub(crate) fn close(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    if io.backlog(state.conn) > 0 {
        if !std::mem::replace(&mut state.is_closing, true) {
            (state.writes, state.stalled_since_ns) = (io.writes_of(state.conn), io.now_ns());
            io.pause_reading(state.conn);
            io.notify_drained(state.conn, 0);
        }
        return;
    }
    if let Some(state) = dispatcher.remove_client(client) {
        io.close(state.conn);
    }
}

/// Cuts a client off with a reset, so that it does not take a part of an answer for the whole.
pub(crate) fn cut(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    if let Some(state) = dispatcher.remove_client(client) {
        dispatcher.metrics.cut.add(1);
        io.abort(state.conn);
    }
}

/// Reason phrases of RFC 9110, section 15, and RFC 6585.
fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        408 => "Request Timeout",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}
