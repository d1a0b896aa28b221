//! Messages of agents, each handed to the step it concerns.

use shunt_handover::message::{Message, Read, Ticket};
use shunt_reactor::Io;

use crate::answer;
use crate::failing;
use crate::handover;
use crate::links;
use crate::state::{Dispatcher, Link, Place};

/// Takes bytes from an agent. Returns how many it used.
pub(crate) fn received(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    index: usize,
    data: &[u8],
) -> usize {
    let mut used = 0;
    loop {
        let backend = &mut dispatcher.backends[index];
        backend.heard_ns = io.now_ns();
        let input = &data[used..];
        let open = match &mut backend.link {
            Link::Down { .. } => return data.len(),
            Link::Opening { .. } => match links::shake(dispatcher, io, index, input) {
                Some(0) => return used,
                Some(read) => {
                    used += read;
                    continue;
                }
                None => return data.len(),
            },
            Link::Open(open) => open,
        };
        let (read, outcome) = match open.decoder.next(input) {
            Ok(None) => return used,
            Ok(Some((read, Read::Body(ticket, bytes)))) => {
                let client = client(dispatcher, index, ticket);
                (read, client.map_or(Ok(()), |client| answer::body(dispatcher, io, client, bytes)))
            }
            Ok(Some((read, Read::Message(ticket, message)))) => {
                (read, take(dispatcher, io, index, ticket, &message))
            }
            Err(error) => {
                links::end(dispatcher, io, index, &error.to_string());
                return data.len();
            }
        };
        used += read;
        if let Err(why) = outcome {
            links::end(dispatcher, io, index, why);
            return data.len();
        }
    }
}

/// Finds the client whose exchange the ticket names. Late messages for an exchange that has ended
/// here have no effect.
fn client(dispatcher: &Dispatcher, index: usize, ticket: Ticket) -> Option<usize> {
    let client = *dispatcher.tickets.get(&ticket)?;
    let exchange = dispatcher.clients.get(client)?.exchange.as_ref()?;
    let is_here = dispatcher.clients.get(client).is_some_and(|state| state.place == Place::Here);
    // An agent's messages about an answer do not count while it is to get the connection: its
    // messages about the connection repeat them.
    (exchange.backend == index && is_here).then_some(client)
}

fn is_about_connections(message: &Message<'_>) -> bool {
    use Message::{Closed, Held, HeldEnd, Refused, Return, Taken};
    matches!(
        message,
        Taken | Refused { .. } | Return { .. } | Closed { .. } | Held { .. } | HeldEnd { .. }
    )
}

/// Handles a message.
fn take(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    index: usize,
    ticket: Ticket,
    message: &Message<'_>,
) -> Result<(), answer::Wrong> {
    if is_about_connections(message) {
        let fits = handover::heard(dispatcher, io, index, ticket, message);
        return if fits {
            Ok(())
        } else {
            Err("the agent has said of a connection what cannot be")
        };
    }
    let Some(client) = client(dispatcher, index, ticket) else { return Ok(()) };
    match message {
        Message::Response { head, framing } => answer::head(dispatcher, io, client, head, *framing),
        Message::End => answer::end(dispatcher, io, client),
        Message::Offer { head, framing, .. } => {
            answer::offered(dispatcher, io, client, head, *framing);
            Ok(())
        }
        Message::Failed { status, reason } => {
            let status = if (500..600).contains(status) { *status } else { 502 };
            failing::failed(dispatcher, io, client, status, reason);
            Ok(())
        }
        Message::Credit { bytes } => {
            let Some(state) = dispatcher.clients.get_mut(client) else { return Ok(()) };
            if let Some(exchange) = &mut state.exchange {
                let was_held_up = exchange.request_credit == 0;
                exchange.request_credit = exchange.request_credit.saturating_add(u64::from(*bytes));
                // The server has taken a part of the request: a client held up by it, or waiting
                // for the answer, has its full time from now on.
                if exchange.body.is_some() {
                    if was_held_up {
                        exchange.progress_bytes = 0;
                        state.deadline_ns = io.now_ns() + dispatcher.options.body_timeout_ns;
                    }
                    io.resume_reading(state.conn);
                } else if exchange.answer.is_none() {
                    state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
