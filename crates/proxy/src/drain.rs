//! Draining: the proxy cuts no client off in the middle of an answer while there is time.
//!
//! At first the clients are closed one after the other over `drain_close_ms`, each at a moment when
//! nothing of it is in flight, and served until then. Drivers open new connections at once, so
//! that a proxy that closed all clients together would send all of them to its neighbours in the
//! same moment. An operator may take this part back. When the process ends, the rest of the clients
//! follows.
//!
//! The first part must never: close a client that waits for an answer, or of which the core has
//! unread bytes; look at all clients in one step; go on once it was taken back.

use shunt_reactor::Io;

use crate::client::departure::Departure;
use crate::client::{Client, Stall, closing};
use crate::core::Core;
use crate::fleet::forwarding::connection;
use crate::fleet::membership::run;
use crate::handover::agents;
use crate::ids::ClientRef;
use crate::limits;
use crate::link::lifecycle;
use crate::metrics::Closing;

/// Timer of the next step.
pub(crate) const TIMER: u64 = 13;

/// Begins to close the clients that are there, in place of an earlier beginning.
pub(crate) fn close_evenly(core: &mut Core, io: &mut Io) {
    let clients = core.clients.iter();
    let clients = clients.map(|(slot, client)| ClientRef { slot, id: client.id }).collect();
    let period_ns = core.context.config.drain_close_ms * 1_000_000;
    let departure = Departure::new(clients, io.now_ns(), period_ns);
    if core.reports.departure.replace(departure).is_none() {
        close_next(core, io);
    }
}

/// Closes no more clients: the proxy serves on.
pub(crate) fn stay(core: &mut Core) {
    core.reports.departure = None;
}

/// Closes the clients that are due and idle, among the next ones.
pub(crate) fn close_next(core: &mut Core, io: &mut Io) {
    let Some(mut departure) = core.reports.departure.take() else { return };
    for _ in 0..limits::DEPARTURE_STEP.min(departure.len()) {
        if !departure.is_behind(io.now_ns()) {
            break;
        }
        let Some(next) = departure.next() else { break };
        match core.clients.find(next).map(|client| is_idle(io, client)) {
            Some(true) => {
                let why = "the proxy drains, and nothing of the client is in flight";
                closing::close(core, io, next.slot, Closing::Draining, why);
            }
            Some(false) => departure.defer(next),
            None => {}
        }
    }
    if departure.len() > 0 {
        io.set_timer(io.now_ns() + limits::DEPARTURE_PAUSE_NS, TIMER);
        core.reports.departure = Some(departure);
    }
}

/// True if a client waits for nothing, and the core has nothing of it.
fn is_idle(io: &Io, client: &Client) -> bool {
    client.in_flight == 0
        && client.switch.is_none()
        && client.held_login.is_none()
        && !client.is_away
        && !client.stalls.any()
        && client.reader.carried_bytes() == 0
        && io.unread(client.conn) == 0
        && io.backlog(client.conn) == 0
}

/// Ends the core in order (SIGTERM): takes no new requests, answers those in flight, and closes
/// each client that has taken its answers.
pub(crate) fn start(core: &mut Core, io: &mut Io) {
    core.context.draining = true;
    stay(core);
    for slot in core.clients.slots() {
        core.clients.stall(&core.context.metrics, io, slot, Stall::DRAIN);
    }
    run::leave(core, io);
    step(core, io);
}

/// Closes the clients that are owed no answer; the last of them ends the core.
pub(crate) fn step(core: &mut Core, io: &mut Io) {
    let done: Vec<u32> = core
        .clients
        .iter()
        .filter(|(_, client)| {
            client.in_flight == 0 && client.switch.is_none() && io.backlog(client.conn) == 0
        })
        .map(|(slot, _)| slot)
        .collect();
    for slot in done {
        closing::close(
            core,
            io,
            slot,
            Closing::Draining,
            "the proxy is shutting down and owes it nothing",
        );
    }
    // Without clients the core may still have locks to hand over.
    if core.clients.is_empty()
        && core.fleet.locks.has_left()
        && run::has_left(&core.fleet.membership)
    {
        lifecycle::close_all(core, io);
        connection::close_all(core, io);
        agents::close_all(core, io);
        // Closing connections may still have answers to send; the tick checks again.
        if io.connections() == 0 {
            io.stop();
        }
    }
}

/// Closes everything, because the time to drain is over.
pub(crate) fn close_all(core: &mut Core, io: &mut Io) {
    for slot in core.clients.slots() {
        closing::close(
            core,
            io,
            slot,
            Closing::CutOff,
            "the proxy is shutting down and waits no longer",
        );
    }
    lifecycle::close_all(core, io);
    io.stop();
}
