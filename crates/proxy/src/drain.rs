//! Shutting down: the proxy cuts no client off in the middle of an answer while there is time.

use shunt_reactor::Io;

use crate::client::{Stall, closing};
use crate::core::Core;
use crate::fleet::forwarding::connection;
use crate::fleet::membership::run;
use crate::handover::agents;
use crate::link::lifecycle;
use crate::metrics::Closing;

/// Starts to drain (SIGTERM): takes no new requests, answers those in flight, and closes each
/// client that has taken its answers.
pub(crate) fn start(core: &mut Core, io: &mut Io) {
    core.context.draining = true;
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
