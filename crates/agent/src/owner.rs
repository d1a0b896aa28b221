//! Messages of owners, each handed to the step it concerns.

use std::fmt::Display;

use shunt_handover::message::{Message, Read, Ticket};
use shunt_handover::session::Protocol;
use shunt_reactor::Io;
use tracing::{info, warn};

use crate::log_limits::Line;
use crate::state::{Agent, Peer, Phase};
use crate::{answer, connections, effects, link, offers, request};

/// Reads bytes of a control connection. Returns how many it used.
pub(crate) fn received(agent: &mut Agent, io: &mut Io, key: usize, data: &[u8]) -> usize {
    let mut used = 0;
    while let Some(session) = agent.sessions.get_mut(key) {
        session.heard_ns = io.now_ns();
        let input = &data[used..];
        let Phase::Open(open) = &mut session.phase else {
            match session.shake(io, input) {
                Ok(0) => return used,
                Ok(read) => {
                    used += read;
                    // It has proved the key.
                    let host = session.host;
                    agent.handshakes.remove(host);
                    if agent.options.protocol == Protocol::Http {
                        is_control(agent, io, key);
                    }
                }
                Err(error) => {
                    if let Some(suppressed) = agent.log_limits.admit(Line::Refused, io.now_ns()) {
                        warn!(%error, suppressed, "a control connection is refused");
                    }
                    end(agent, io, key);
                }
            }
            continue;
        };
        match open.decoder.next(input) {
            Ok(None) => return used,
            Ok(Some((read, Read::Body(ticket, bytes)))) => {
                used += read;
                if !request::body(agent, io, key, ticket, bytes) {
                    let why = "a dispatcher has sent more of a body than its credit allows";
                    close(agent, io, key, &why);
                }
            }
            Ok(Some((read, Read::Message(ticket, message)))) => {
                used += read;
                if session.owner.is_none() {
                    // A proxy's first message tells whether the connection is a control connection
                    // or a link.
                    match message {
                        Message::Request { head, .. } => {
                            return used + becomes_link(agent, io, key, head, &data[used..]);
                        }
                        _ => is_control(agent, io, key),
                    }
                }
                take(agent, io, key, ticket, &message);
            }
            Err(error) => close(agent, io, key, &error),
        }
    }
    data.len()
}

/// Makes the connection a control connection; its owner counts as present from now on.
fn is_control(agent: &mut Agent, io: &mut Io, key: usize) {
    let Some(session) = agent.sessions.get_mut(key) else { return };
    let Phase::Open(open) = &session.phase else { return };
    let (id, owner, instance) = (session.id, open.owner, open.instance);
    session.owner = Some(owner);
    info!(owner = owner.0, "a dispatcher has connected");
    connections::session_up(agent, io, id, owner, instance);
}

/// Makes the connection a link to the server. Returns how many bytes it used.
fn becomes_link(agent: &mut Agent, io: &mut Io, key: usize, head: &[u8], rest: &[u8]) -> usize {
    let head = head.to_vec();
    let Some(session) = agent.sessions.try_remove(key) else { return 0 };
    agent.session_keys.remove(&session.id);
    agent.set_peer(session.conn, Peer::Nobody);
    let Phase::Open(open) = session.phase else { return 0 };
    link::begin(agent, io, (session.conn, open.owner), &head);
    match agent.peer(session.conn) {
        Peer::Link(link) => link::of_proxy(agent, io, link, rest),
        _ => rest.len(),
    }
}

fn take(agent: &mut Agent, io: &mut Io, key: usize, ticket: Ticket, message: &Message<'_>) {
    // Late messages for an exchange that has ended here have no effect.
    let exchange =
        agent.sessions.get(key).and_then(|session| session.exchanges.get(&ticket).copied());
    match (message, exchange) {
        (Message::Request { head, .. }, _) if agent.options.protocol == Protocol::Cql => {
            let Some(id) = agent.sessions.get(key).map(|session| session.id) else { return };
            offers::set_shape(agent, id, ticket, head);
        }
        (Message::Request { .. }, Some(_)) => {
            close(agent, io, key, &"a dispatcher has used a ticket twice");
        }
        (Message::Request { head, has_body, is_idempotent }, None) => {
            request::start(agent, io, (key, ticket), head, *has_body, *is_idempotent);
        }
        (Message::End, Some(exchange)) => request::end(agent, io, exchange),
        (Message::Credit { bytes }, Some(exchange)) => {
            if let Some(state) = agent.exchanges.get_mut(exchange) {
                state.credit = state.credit.saturating_add(u64::from(*bytes));
            }
            answer::pump(agent, io, exchange);
        }
        (
            Message::Fetch
            | Message::Cancel
            | Message::Take { .. }
            | Message::Recall
            | Message::HeldAck
            | Message::Settled
            | Message::Release,
            _,
        ) => {
            let Some(id) = agent.sessions.get(key).map(|session| session.id) else { return };
            if *message == Message::Cancel {
                offers::empty(agent, id, ticket);
            }
            let fits = connections::heard(agent, io, id, ticket, message);
            effects::out(agent, io);
            if let Err(error) = fits {
                close(agent, io, key, &error);
            }
        }
        (Message::Ping, _) => reply(agent, io, key, ticket, &Message::Pong),
        _ => {}
    }
}

fn reply(agent: &mut Agent, io: &mut Io, key: usize, ticket: Ticket, message: &Message<'_>) {
    if let Some(session) = agent.sessions.get_mut(key) {
        session.send(io, ticket, message);
    }
}

/// Ends the older sessions of owners that have connected again.
pub(crate) fn end_former(agent: &mut Agent, io: &mut Io) {
    while let Some(id) = agent.ending.pop() {
        if let Some(key) = agent.session_keys.get(&id).copied() {
            let why = "its dispatcher has made another; if this goes on, two dispatchers have the same `--name`";
            close(agent, io, key, &why);
        }
    }
}

/// Ends a control connection, and logs why.
fn close(agent: &mut Agent, io: &mut Io, key: usize, why: &dyn Display) {
    if let Some(suppressed) = agent.log_limits.admit(Line::Closed, io.now_ns()) {
        warn!(%why, suppressed, "a control connection is closed");
    }
    end(agent, io, key);
}

/// Ends a control connection.
pub(crate) fn end(agent: &mut Agent, io: &mut Io, key: usize) {
    if let Some(session) = agent.sessions.get(key) {
        let conn = session.conn;
        io.close(conn);
        lost(agent, io, key);
    }
}

/// A control connection has ended: cancels its requests.
pub(crate) fn lost(agent: &mut Agent, io: &mut Io, key: usize) {
    let Some(session) = agent.sessions.try_remove(key) else { return };
    if matches!(session.phase, Phase::Shaking { .. }) {
        agent.handshakes.remove(session.host);
    }
    agent.set_peer(session.conn, Peer::Nobody);
    agent.session_keys.remove(&session.id);
    if !session.exchanges.is_empty() {
        info!(
            exchanges = session.exchanges.len(),
            "a control connection has ended, and its requests are given up"
        );
    }
    let mut exchanges: Vec<usize> = session.exchanges.into_values().collect();
    // A fixed order lets a simulation be replayed.
    exchanges.sort_unstable();
    for exchange in exchanges {
        match agent.exchanges.get_mut(exchange) {
            // This exchange's answer can reach its client only from here.
            Some(state) if state.is_taken => state.session = usize::MAX,
            _ => request::cancel(agent, io, exchange),
        }
    }
    connections::session_lost(agent, io, session.id);
}

/// The kernel has taken a control connection's bytes: reads answers again.
pub(crate) fn drained(agent: &mut Agent, io: &mut Io, key: usize) {
    if let Some(session) = agent.sessions.get_mut(key) {
        session.turns.drained();
        answer::serve(agent, io, key);
    }
}

/// Gives the turns that no answer has used to others.
pub(crate) fn tick(agent: &mut Agent, io: &mut Io) {
    let waiting = agent.sessions.iter_mut().filter(|(_, session)| session.turns.has_waiting());
    let waiting: Vec<usize> = waiting
        .map(|(key, session)| {
            session.turns.lapse();
            key
        })
        .collect();
    waiting.into_iter().for_each(|key| answer::serve(agent, io, key));
}

#[cfg(test)]
mod tests;
