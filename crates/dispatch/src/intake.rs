//! Requests of clients: read, checked, sent to a backend.

use shunt_handover::Flow;
use shunt_handover::limits::CREDIT_BYTES;
use shunt_handover::message::Message;
use shunt_reactor::{Accepted, ClientHost, ConnId, Io};
use shunt_wire::http1::{BodyReader, Framing, Refusal, RequestHead};
use tracing::debug;

use crate::failing;
use crate::handover;
use crate::limits;
use crate::reply;
use crate::state::{Client, Dispatcher, Exchange, Peer, Place};

/// Takes a new client's connection.
pub(crate) fn accepted(dispatcher: &mut Dispatcher, io: &mut Io, conn: ConnId, origin: &Accepted) {
    // Listeners of a dispatcher have no balancers, so that every client is there itself.
    let Some(peer) = origin.peer.direct().filter(|_| !dispatcher.is_draining) else {
        io.close(conn);
        return;
    };
    dispatcher.metrics.clients_accepted.add(1);
    let deadline_ns = io.now_ns() + dispatcher.options.idle_timeout_ns;
    let flow = Flow { local: origin.local, peer };
    let client = Client::new(conn, flow, io.now_ns(), deadline_ns);
    let client = dispatcher.insert_client(client);
    dispatcher.set_peer(conn, Peer::Client(client));
}

/// Takes bytes from a client. Returns how many it used.
pub(crate) fn received(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    data: &[u8],
) -> usize {
    let mut used = 0;
    loop {
        let Some(state) = dispatcher.clients.get(client) else { return data.len() };
        if state.place != Place::Here {
            // Unread bytes move with the connection, or are presented again.
            return used;
        }
        let unread = &data[used..];
        let taken = match &state.exchange {
            None if state.is_closing => return used,
            None if !unread.is_empty()
                && io.backlog(state.conn) > limits::CLIENT_BACKLOG_BYTES_LOW =>
            {
                // Unsent output is kept here: the next request waits in the kernel until the client
                // has taken it.
                io.pause_reading(state.conn);
                io.notify_drained(state.conn, limits::CLIENT_BACKLOG_BYTES_LOW);
                return used;
            }
            Some(exchange) if exchange.body.is_some() => body(dispatcher, io, client, unread),
            Some(_) => {
                // The next request waits in the kernel until this one is answered.
                io.pause_reading(state.conn);
                return used;
            }
            None => head(dispatcher, io, client, unread),
        };
        match taken {
            Some(bytes) => used += bytes,
            None => return if dispatcher.clients.contains(client) { used } else { data.len() },
        }
    }
}

/// Reads a head and starts its exchange; `None` if the head is incomplete or was refused.
fn head(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, data: &[u8]) -> Option<usize> {
    let state = dispatcher.clients.get_mut(client)?;
    if data.is_empty() {
        return None;
    }
    // RFC 9112, section 2.2: skip an empty line before a request. It starts no head whose time
    // could run out.
    if state.reader.is_fresh() && b"\r\n".starts_with(&data[..data.len().min(2)]) {
        return if data.len() < 2 { None } else { Some(2) };
    }
    if !std::mem::replace(&mut state.is_in_head, true) {
        state.deadline_ns = io.now_ns() + dispatcher.options.head_timeout_ns;
    }
    let mut reader = std::mem::replace(
        &mut state.reader,
        shunt_wire::http1::HeadReader::new(limits::REQUEST_HEAD),
    );
    let outcome = reader.read(data).and_then(|head| match head {
        None => Ok(None),
        Some(head) => RequestHead::read(head).map(Some),
    });
    let used = match outcome {
        Ok(None) => None,
        Ok(Some(request)) => {
            let bytes = request.head().len();
            start(dispatcher, io, client, &request);
            Some(bytes)
        }
        Err(refusal) => {
            refuse(dispatcher, io, client, refusal);
            return None;
        }
    };
    if let Some(state) = dispatcher.clients.get_mut(client) {
        if used.is_some() {
            reader.reset();
        }
        state.reader = reader;
    }
    used
}

fn refuse(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, refusal: Refusal) {
    debug!(refusal = refusal.name(), "a request is refused");
    reply::error(dispatcher, io, client, None, refusal.status(), &refusal.to_string());
}

/// Starts the exchange of a request and sends it to a backend.
fn start(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, request: &RequestHead<'_, '_>) {
    let body_bytes_max = dispatcher.options.body_bytes_max;
    if let Framing::Length(length) = request.framing
        && length > body_bytes_max
    {
        too_large(dispatcher, io, client);
        return;
    }
    let ticket = dispatcher.ticket();
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    if let Some(host) = &state.host {
        host.requests.add(1);
    }
    let mut head = Vec::new();
    request.forward(&[("X-Forwarded-For", &state.address.to_string())], &mut head);
    let key = state.key();
    let exchange = Exchange {
        ticket,
        backend: 0,
        sent_ns: None,
        head,
        is_read: request.is_read(),
        is_idempotent: request.is_idempotent(),
        to_head: request.method == b"HEAD",
        version: request.version,
        keep_alive: request.keep_alive,
        body: Some(BodyReader::new(request.framing)).filter(|body| !body.is_complete()),
        body_bytes: 0,
        progress_bytes: 0,
        request_credit: u64::from(CREDIT_BYTES),
        is_repeated: false,
        answer: None,
        interim: 0,
        rest: None,
    };
    match failing::choose(dispatcher, key, exchange.is_read, None) {
        Ok(backend) => {
            dispatcher.metrics.requests.add(1);
            failing::send(dispatcher, io, client, exchange, backend);
        }
        Err(why) => reply::error(dispatcher, io, client, Some(&exchange), 503, why),
    }
}

fn too_large(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    let text = format!(
        "the body of the request has more than {} bytes",
        dispatcher.options.body_bytes_max
    );
    reply::error(dispatcher, io, client, None, 413, &text);
}

/// Passes on the bytes of a body as far as the agent has credit; `None` if it can take none now.
fn body(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, data: &[u8]) -> Option<usize> {
    let state = dispatcher.clients.get_mut(client)?;
    let client_key = Some(ClientHost::counted(state.address));
    let exchange = state.exchange.as_mut()?;
    let backend = &mut dispatcher.backends[exchange.backend];
    if data.is_empty() {
        return None;
    }
    let room = match exchange.request_credit {
        0 => 0,
        credit => credit.min(backend.turns.room(client_key, exchange.ticket)),
    };
    if room == 0 {
        io.pause_reading(state.conn);
        return None;
    }
    let visible = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
    let reader = exchange.body.as_mut()?;
    let taken = match reader.take(visible) {
        Ok(taken) => taken,
        Err(refusal) => {
            let whether_begun = exchange.answer.is_some();
            failing::give_up(dispatcher, io, client);
            match whether_begun {
                true => reply::cut(dispatcher, io, client),
                false => refuse(dispatcher, io, client, refusal),
            }
            return None;
        }
    };
    let is_complete = reader.is_complete();
    exchange.body_bytes += taken as u64;
    exchange.request_credit -= taken as u64;
    if exchange.body_bytes > dispatcher.options.body_bytes_max {
        let whether_begun = exchange.answer.is_some();
        failing::give_up(dispatcher, io, client);
        match whether_begun {
            true => reply::cut(dispatcher, io, client),
            false => too_large(dispatcher, io, client),
        }
        return None;
    }
    backend.send_body(io, exchange.ticket, &visible[..taken]);
    if exchange.request_credit == 0 || (data.len() as u64) < room {
        backend.turns.give_back(exchange.ticket);
    }
    exchange.progress_bytes += taken as u64;
    if exchange.progress_bytes >= dispatcher.options.body_bytes_per_timeout {
        exchange.progress_bytes = 0;
        state.deadline_ns = io.now_ns() + dispatcher.options.body_timeout_ns;
    }
    if is_complete {
        exchange.body = None;
        backend.turns.forget(exchange.ticket);
        state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns;
        backend.send(io, exchange.ticket, &Message::End);
    }
    let (index, has_waiting) = (exchange.backend, backend.turns.has_waiting());
    if has_waiting {
        dispatcher.serve(io, index);
    }
    Some(taken)
}

/// A client has taken its output: reads its next request, if it waits for nothing else.
pub(crate) fn go_on(dispatcher: &Dispatcher, io: &mut Io, client: usize) {
    let Some(state) = dispatcher.clients.get(client) else { return };
    if state.exchange.is_none() && state.place == Place::Here {
        io.resume_reading(state.conn);
    }
}

/// The client has closed its connection, or lost it.
pub(crate) fn lost(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    match dispatcher.clients.get(client).map(|state| (state.place, state.flow)) {
        Some((Place::Leaving, flow)) => handover::client_gone(dispatcher, io, flow),
        Some((Place::Arriving, _)) => return handover::settle(dispatcher, io, client, false),
        _ => {}
    }
    failing::give_up(dispatcher, io, client);
    dispatcher.remove_client(client);
}
