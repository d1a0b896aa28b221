//! Closes the clients that an operator has named, a few at a time: the core serves its connections
//! in between. A client that comes meanwhile may be closed or not.

use std::sync::Arc;

use shunt_reactor::Io;
use tokio::sync::mpsc;

use crate::client::selection::{CoreEviction, Eviction, Selection};
use crate::client::{closing, final_errors};
use crate::core::Core;
use crate::ids::ClientRef;
use crate::limits;
use crate::metrics::Closing;

/// Timer of the next step.
pub(crate) const TIMER: u64 = 11;

/// Begins, in place of an abandoned eviction, whose timer then continues with this one.
pub(crate) fn start(
    core: &mut Core,
    io: &mut Io,
    selection: Arc<Selection>,
    answer: mpsc::Sender<CoreEviction>,
) {
    let eviction = Eviction { selection, answer, next: 0, closed: 0 };
    if core.reports.eviction.replace(eviction).is_none() {
        go_on(core, io);
    }
}

/// Closes the selected clients among the next ones. Stops if the operator has gone away.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    let Some(mut eviction) = core.reports.eviction.take() else { return };
    if eviction.answer.is_closed() {
        return;
    }
    let end = eviction.next.saturating_add(limits::EVICTION_STEP).min(core.clients.capacity());
    let meant = (eviction.next..end).filter_map(|slot| {
        let slot = slot as u32;
        let client = core.clients.get(slot)?;
        let pool = client.pool.and_then(|pool| core.router.pools.get(pool));
        let is_meant = eviction.selection.is_meant(client, pool.map(|pool| &pool.names));
        is_meant.then(|| core.clients.reference(slot))
    });
    let meant: Vec<ClientRef> = meant.collect();
    final_errors::send(core, io, &meant);
    for client in meant {
        let Some(found) = core.clients.find(client) else { continue };
        // Drivers would take an ERROR in answer to a password for a wrong password.
        let close = if found.identity.is_some() { closing::close_identity } else { closing::close };
        close(core, io, client.slot, Closing::Operator, "an operator has asked for it");
        eviction.closed += 1;
    }
    eviction.next = end;
    if end < core.clients.capacity() {
        io.set_timer(io.now_ns() + limits::CENSUS_PAUSE_NS, TIMER);
        core.reports.eviction = Some(eviction);
    } else {
        let done = CoreEviction { core: core.context.index, closed: eviction.closed };
        let _ = eviction.answer.try_send(done);
    }
}
