//! Control connections to the agents: opened, kept alive, and opened again after a loss.

use shunt_handover::message::{Message, Ticket};
use shunt_handover::session::{NONCE_BYTES, OwnerHandshake, Protocol};
use shunt_handover::turns::Turns;
use shunt_reactor::{CloseReason, Io};
use tracing::{info, warn};

use crate::failing;
use crate::handover;
use crate::limits;
use crate::state::{Dispatcher, Link, Open, Peer};

/// Connects, pings, and ends silent connections.
pub(crate) fn tick(dispatcher: &mut Dispatcher, io: &mut Io) {
    let now_ns = io.now_ns();
    // A draining dispatcher takes nothing new, but still gets its connections back from agents.
    let goes_on = !dispatcher.is_draining || !dispatcher.moved.is_empty();
    for index in 0..dispatcher.backends.len() {
        if dispatcher.backends[index].turns.has_waiting() {
            // Turns that no body has used go to others.
            dispatcher.backends[index].turns.lapse();
            dispatcher.serve(io, index);
        }
        let backend = &mut dispatcher.backends[index];
        match &backend.link {
            Link::Down { until_ns } if *until_ns <= now_ns && goes_on => {
                open(dispatcher, io, index)
            }
            Link::Opening { until_ns, .. } if *until_ns <= now_ns => {
                // An agent with TLS waits for the client's part of a handshake.
                let why = match dispatcher.options.agent_tls {
                    Some(_) => "the agent does not answer",
                    None => "the agent does not answer; if it has TLS, set --agent-tls on",
                };
                end(dispatcher, io, index, why);
            }
            Link::Open(_) if backend.heard_ns + limits::SILENCE_NS <= now_ns => {
                end(dispatcher, io, index, "nothing has come from the agent for too long");
            }
            Link::Open(_) if backend.pinged_ns + limits::PING_NS <= now_ns => {
                backend.pinged_ns = now_ns;
                backend.send(io, Ticket(0), &Message::Ping);
            }
            _ => {}
        }
    }
}

fn open(dispatcher: &mut Dispatcher, io: &mut Io, index: usize) {
    let mut nonce = [0; NONCE_BYTES];
    let options = &mut dispatcher.options;
    (options.random)(&mut nonce);
    let handshake = OwnerHandshake::new(
        options.key.clone(),
        Protocol::Http,
        options.owner,
        options.instance,
        nonce,
    );
    let backend = &mut dispatcher.backends[index];
    let conn = match &options.agent_tls {
        Some(tls) => io.connect_with(backend.address, limits::CONNECT_NS, tls.session(index)),
        None => io.connect(backend.address, limits::CONNECT_NS),
    };
    let until_ns = io.now_ns() + limits::CONNECT_NS;
    let handshake = Box::new(handshake);
    backend.link = Link::Opening { conn, handshake, until_ns, is_answered: false };
    dispatcher.set_peer(conn, Peer::Backend(index));
}

/// Continues the handshake; returns the bytes used, or `None` if the agent lacks the key.
pub(crate) fn shake(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    index: usize,
    input: &[u8],
) -> Option<usize> {
    let backend = &mut dispatcher.backends[index];
    let Link::Opening { conn, handshake, is_answered, .. } = &mut backend.link else {
        return Some(0);
    };
    let conn = *conn;
    if !std::mem::replace(is_answered, true)
        && let (Some(tls), Some(session)) = (&dispatcher.options.agent_tls, io.session_info(conn))
    {
        tls.handshake_ended(Some(session));
    }
    match handshake.read(input, io.output(conn)) {
        Ok(None) => Some(0),
        Ok(Some((used, None))) => Some(used),
        Ok(Some((used, Some(session)))) => {
            info!(backend = %backend.address, "connected to an agent");
            backend.link = Link::Open(Box::new(Open {
                conn,
                encoder: session.encoder,
                decoder: session.decoder,
                since_ns: io.now_ns(),
            }));
            backend.reasons.clear();
            backend.turns = Turns::default();
            (backend.heard_ns, backend.pinged_ns) = (io.now_ns(), io.now_ns());
            handover::control_up(dispatcher, io, index, session.instance);
            Some(used)
        }
        Err(error) => {
            let why = error.to_string();
            end(dispatcher, io, index, &why);
            None
        }
    }
}

/// Ends a control connection.
pub(crate) fn end(dispatcher: &mut Dispatcher, io: &mut Io, index: usize, why: &str) {
    let conn = match &dispatcher.backends[index].link {
        Link::Down { .. } => return,
        Link::Opening { conn, .. } => *conn,
        Link::Open(open) => open.conn,
    };
    dispatcher.set_peer(conn, Peer::Nobody);
    io.abort(conn);
    lost(dispatcher, io, index, why);
}

/// Handles the end of a control connection by the other side or by the network.
pub(crate) fn closed(dispatcher: &mut Dispatcher, io: &mut Io, index: usize, reason: CloseReason) {
    let link = &dispatcher.backends[index].link;
    let is_unanswered = matches!(link, Link::Opening { is_answered: false, .. });
    // Without a connection there was no handshake, and in time there may have been none.
    let is_connected = !matches!(
        reason,
        CloseReason::ConnectFailed(_) | CloseReason::ConnectTimedOut | CloseReason::Error(_)
    );
    if let Some(tls) =
        dispatcher.options.agent_tls.as_ref().filter(|_| is_unanswered && is_connected)
    {
        tls.handshake_ended(None);
    }
    lost(dispatcher, io, index, words(reason));
}

/// A control connection has ended, or could not be opened. Schedules the next try, later after each
/// failure.
pub(crate) fn lost(dispatcher: &mut Dispatcher, io: &mut Io, index: usize, why: &str) {
    let mut jitter = [0; 8];
    (dispatcher.options.random)(&mut jitter);
    let backend = &mut dispatcher.backends[index];
    let was_up = backend.is_up();
    // The handshake alone shows nothing: an agent may prove the key and end each connection.
    if let Link::Open(open) = &backend.link
        && open.since_ns + limits::STEADY_NS <= io.now_ns()
    {
        backend.back_off_ns = limits::BACK_OFF_NS_MIN;
    }
    // The random half keeps dispatchers from coming back all at once.
    let back_off_ns =
        backend.back_off_ns / 2 + u64::from_be_bytes(jitter) % (backend.back_off_ns / 2 + 1);
    backend.link = Link::Down { until_ns: io.now_ns() + back_off_ns };
    backend.back_off_ns = (backend.back_off_ns * 2).min(limits::BACK_OFF_NS_MAX);
    backend.turns = Turns::default();
    // A later attempt may fail for a reason that says more.
    if backend.reasons.note(why) {
        warn!(backend = %backend.address, why, "an agent cannot be reached; it is tried again until it can");
    }
    if was_up {
        dispatcher.metrics.backends[index].lost.add(1);
        handover::control_lost(dispatcher, io, index);
        failing::backend_lost(dispatcher, io, index);
    }
}

/// The kernel has taken an agent's bytes: reads bodies for it again.
pub(crate) fn drained(dispatcher: &mut Dispatcher, io: &mut Io, index: usize) {
    dispatcher.backends[index].turns.drained();
    dispatcher.serve(io, index);
}

fn words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Peer => "the agent has closed the connection",
        CloseReason::Reset => "the connection was reset",
        CloseReason::ConnectFailed(_) => "nobody listens there",
        CloseReason::ConnectTimedOut => "there is no answer to a connect",
        CloseReason::HandshakeEnded => "the agent has ended the handshake of TLS",
        CloseReason::Session(fault) => fault.0,
        CloseReason::Error(_) => "the connection has failed",
    }
}
