//! Tells clients who registered for them of changes of the fleet, with the addresses that drivers
//! connect to.
//!
//! A proxy that joins is a new node that is up, one that has left is down and removed, and one that
//! was restarted goes down and comes up. What a client hears is the difference between the fleet
//! that it was told of last, which it keeps, and the present one. So it hears of each change once,
//! whenever it registered, and of nothing that was undone before its turn came. For that to add up,
//! a client that reads `system.peers` is told first what it does not know of the fleet that it is
//! about to see. It never hears of the proxy that it is connected to, nor of nodes.
//!
//! The core is not held up by it: [`limits::ANNOUNCE_CLIENTS`] clients are written to at a time,
//! and connections are served in between. A change that comes meanwhile makes the round longer, and
//! nobody is left out of it or told twice.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{EVENT_STREAM, opcode};

use crate::client::news::{Difference, Kind, is_same};
use crate::client::{Client, Registered};
use crate::core::Core;
use crate::fleet::roster::Fleet;
use crate::limits;
use crate::reply;

/// The timer of the next step of a round.
pub(crate) const TIMER: u64 = 4;

/// The fleet has changed: clients are shown the new one from now, and those who registered hear of
/// the difference.
pub(crate) fn changed(core: &mut Core, io: &mut Io, fleet: Arc<Fleet>) {
    core.router.fleet = Some(fleet);
    if core.clients.announcing.begin(core.clients.capacity()) {
        go_on(core, io);
    }
}

/// Tells the next clients.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    let (mut looked_at, mut told) = (0, 0);
    while looked_at < limits::ANNOUNCE_STEP && told < limits::ANNOUNCE_CLIENTS {
        let Some(slot) = core.clients.announcing.next() else { break };
        looked_at += 1;
        told += usize::from(tell(core, io, slot));
    }
    if core.clients.announcing.left > 0 {
        io.set_timer(io.now_ns() + limits::ANNOUNCE_PAUSE_NS, TIMER);
    } else {
        core.clients.announcing.last = None;
    }
}

/// A client registers. What it had asked for before and was not told yet, it is told first; of the
/// kinds that are new to it, it hears what changes from here on.
pub(crate) fn register(core: &mut Core, io: &mut Io, slot: u32, registered: Registered) {
    tell(core, io, slot);
    let fleet = core.router.fleet.clone();
    if let Some(client) = core.clients.get_mut(slot) {
        client.registered = registered;
        client.told = fleet.filter(|_| registered.hosts());
    }
}

/// Tells a client at once what it does not know yet; `false`: there was nothing to tell.
pub(crate) fn tell(core: &mut Core, io: &mut Io, slot: u32) -> bool {
    let Some(now) = core.router.fleet.clone() else { return false };
    let unaware = |client: &&mut Client| {
        client.registered.hosts() && !is_same(client.told.as_ref(), Some(&now))
    };
    let Some(client) = core.clients.get_mut(slot).filter(unaware) else { return false };
    let before = client.told.replace(Arc::clone(&now));
    let registered = client.registered;
    let last =
        core.clients.announcing.last.take().filter(|last| last.is_between(before.as_ref(), &now));
    let difference = last.unwrap_or_else(|| Difference::new(before, now));
    for (kind, body) in &difference.events {
        let wanted = match kind {
            Kind::Topology => registered.topology,
            Kind::Status => registered.status,
        };
        if wanted {
            reply::message(core, io, slot, opcode::EVENT, EVENT_STREAM, body);
        }
    }
    core.clients.announcing.last = Some(difference);
    true
}
