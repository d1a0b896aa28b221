//! Choice of a backend for a request, and handling of its failure.
//!
//! A request that only reads is sent to another backend, once, while no part of an answer has gone
//! to the client. Otherwise the client gets an error; once a part of an answer has gone out,
//! `resume.rs` takes over.

use shunt_handover::message::Message;
use shunt_handover::turns::ClientKey;
use shunt_reactor::Io;
use tracing::debug;

use crate::limits;
use crate::reply;
use crate::resume;
use crate::state::{Backend, Dispatcher, Exchange, Place};

/// Chooses the backend for a request of this host: for reads the one with the fewest requests in
/// flight, except `avoided`; for others the primary.
///
/// # Errors
/// The reason why no backend can be used.
pub(crate) fn choose(
    dispatcher: &mut Dispatcher,
    key: ClientKey,
    is_read: bool,
    avoided: Option<usize>,
) -> Result<usize, &'static str> {
    let backends = &dispatcher.backends;
    let is_full = |backend: &Backend| backend.in_flight.taken() >= limits::IN_FLIGHT_MAX;
    let usable = |index: &usize| {
        backends[*index].is_up()
            && backends[*index].in_flight.has_place(key, limits::IN_FLIGHT_MAX)
            && Some(*index) != avoided
    };
    if !is_read {
        return match backends.first() {
            Some(primary) if !primary.is_up() => {
                Err("the primary backend cannot be reached, and it alone takes this method")
            }
            Some(primary) if !is_full(primary) => Some(0)
                .filter(usable)
                .ok_or("the primary backend has too many requests of this address"),
            _ => Some(0).filter(usable).ok_or("the primary backend has too many requests"),
        };
    }
    let count = backends.len();
    let start = dispatcher.next_backend;
    let turns = (0..count).map(|step| (start + step) % count);
    let Some(chosen) = turns.filter(usable).min_by_key(|index| backends[*index].in_flight.taken())
    else {
        let up = || backends.iter().filter(|backend| backend.is_up());
        return Err(match up().count() {
            0 => "no backend can be reached",
            _ if up().all(is_full) => "all backends have too many requests",
            _ => "all backends have too many requests of this address",
        });
    };
    dispatcher.next_backend = (chosen + 1) % count;
    Ok(chosen)
}

/// Sends a request's head to a backend; its body follows as it comes.
pub(crate) fn send(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    mut exchange: Exchange,
    backend: usize,
) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    (exchange.backend, exchange.interim) = (backend, 0);
    exchange.sent_ns = Some(io.now_ns());
    let (has_body, key) = (exchange.body.is_some(), state.key());
    let timeout_ns = match has_body {
        true => dispatcher.options.body_timeout_ns,
        false => dispatcher.options.answer_timeout_ns,
    };
    state.deadline_ns = io.now_ns() + timeout_ns;
    dispatcher.tickets.insert(exchange.ticket, client);
    let of_rest = exchange
        .rest
        .as_ref()
        .filter(|rest| rest.is_awaited())
        .map(|rest| rest.request(&exchange.head));
    let head = of_rest.as_ref().unwrap_or(&exchange.head);
    let request = Message::Request { head, has_body, is_idempotent: exchange.is_idempotent };
    dispatcher.metrics.backends[backend].requests.add(1);
    let backend = &mut dispatcher.backends[backend];
    backend.in_flight.add(key);
    backend.send(io, exchange.ticket, &request);
    state.exchange = Some(exchange);
}

/// Ends a client's exchange and tells the agent to cancel it.
pub(crate) fn give_up(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) -> Option<Exchange> {
    let exchange = dispatcher.take_exchange(client)?;
    dispatcher.backends[exchange.backend].send(io, exchange.ticket, &Message::Cancel);
    Some(exchange)
}

/// Handles an exchange that failed at its backend, which has already forgotten it.
pub(crate) fn failed(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    status: u16,
    reason: &str,
) {
    let Some(mut exchange) = dispatcher.take_exchange(client) else { return };
    if exchange.answer.is_some() {
        return resume::go_on(dispatcher, io, client, exchange, reason);
    }
    let may_repeat = exchange.is_read && exchange.body_bytes == 0 && !exchange.is_repeated;
    if may_repeat
        && let Some(key) = dispatcher.clients.get(client).map(|state| state.key())
        && let Ok(backend) = choose(dispatcher, key, true, Some(exchange.backend))
    {
        debug!(reason, "a request is sent to another backend");
        dispatcher.metrics.repeated.add(1);
        exchange.is_repeated = true;
        exchange.ticket = dispatcher.ticket();
        let has_body = exchange.body.is_some();
        send(dispatcher, io, client, exchange, backend);
        // The client may have waited for its turn on the connection that is lost.
        if has_body && let Some(state) = dispatcher.clients.get(client) {
            io.resume_reading(state.conn);
        }
        return;
    }
    reply::error(dispatcher, io, client, Some(&exchange), status, reason);
}

/// Fails all exchanges of a backend that is lost.
pub(crate) fn backend_lost(dispatcher: &mut Dispatcher, io: &mut Io, backend: usize) {
    let is_there = |client: &crate::state::Client| {
        client.exchange.as_ref().is_some_and(|exchange| exchange.backend == backend)
    };
    // The owner decides about clients whose connections are not here.
    let is_there = |client: &crate::state::Client| client.place == Place::Here && is_there(client);
    let clients: Vec<usize> = dispatcher
        .clients
        .iter()
        .filter(|(_, client)| is_there(client))
        .map(|(key, _)| key)
        .collect();
    for client in clients {
        failed(
            dispatcher,
            io,
            client,
            502,
            "the connection to the backend was lost before it had answered",
        );
    }
}
