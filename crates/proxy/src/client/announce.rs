//! Tells clients who registered for events about changes of the fleet, with the addresses that
//! drivers connect to.
//!
//! A proxy that joins is a new node that is up, one that left is down and removed, and one that
//! restarted goes down and comes up. A client hears the difference between the fleet in its last
//! event, which it keeps, and the present one. So it hears of each change once, whenever it
//! registered, and of no change that was undone before its turn came. A client that reads
//! `system.peers` first gets the events for the fleet that it is about to see. A client never hears
//! of the proxy that it is connected to, nor of nodes.
//!
//! The round does not hold the core up: it writes to [`limits::ANNOUNCE_CLIENTS`] clients at a
//! time, and the core serves connections in between. A change that comes meanwhile lengthens the
//! round, without leaving a client out or telling it twice.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{EVENT_STREAM, opcode};

use crate::client::news::{Difference, Kind, is_same};
use crate::client::{Client, Registered};
use crate::core::Core;
use crate::fleet::roster::Fleet;
use crate::limits;
use crate::reply;

/// Timer of the next step of a round.
pub(crate) const TIMER: u64 = 4;

/// Sets the new fleet: clients see it from now on, and those who registered hear the difference.
pub(crate) fn changed(core: &mut Core, io: &mut Io, fleet: Arc<Fleet>) {
    core.router.fleet = Some(fleet);
    if core.clients.announcing.round.begin(core.clients.capacity()) {
        go_on(core, io);
    }
}

/// Tells the next clients of the round.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    let (mut looked_at, mut told) = (0, 0);
    while looked_at < limits::ANNOUNCE_STEP && told < limits::ANNOUNCE_CLIENTS {
        let Some(slot) = core.clients.announcing.round.next() else { break };
        looked_at += 1;
        told += usize::from(tell(core, io, slot));
    }
    if core.clients.announcing.round.left > 0 {
        io.set_timer(io.now_ns() + limits::ANNOUNCE_PAUSE_NS, TIMER);
    } else {
        core.clients.announcing.last = None;
    }
}

/// Registers a client. The client first gets the events that it had registered for and has not
/// received. Of the kinds that it registers for now, it hears later changes.
pub(crate) fn register(core: &mut Core, io: &mut Io, slot: u32, registered: Registered) {
    tell(core, io, slot);
    let fleet = core.router.fleet.clone();
    if let Some(client) = core.clients.get_mut(slot) {
        client.registered = registered;
        client.told = fleet.filter(|_| registered.hosts());
    }
}

/// Tells a client at once of the changes that it does not know; `false` if there were none.
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
