//! Closes the clients that an operator has named, a few at a time: the core serves its connections
//! in between. A client that comes meanwhile may be closed or not.

use std::sync::Arc;

use shunt_reactor::Io;
use tokio::sync::mpsc;

use crate::client::closing;
use crate::client::selection::{CoreEviction, Eviction, Selection};
use crate::core::Core;
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

/// Closes those that are meant among the next clients. An operator who has gone away stops it.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    let Some(mut eviction) = core.reports.eviction.take() else { return };
    if eviction.answer.is_closed() {
        return;
    }
    let end = eviction.next.saturating_add(limits::EVICTION_STEP).min(core.clients.capacity());
    for slot in eviction.next..end {
        let slot = slot as u32;
        let Some(client) = core.clients.get(slot) else { continue };
        let pool = client.pool.and_then(|pool| core.router.pools.get(pool));
        if eviction.selection.is_meant(client, pool.map(|pool| &pool.names)) {
            closing::close(core, io, slot, Closing::Operator, "an operator has asked for it");
            eviction.closed += 1;
        }
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
