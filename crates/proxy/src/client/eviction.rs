//! Closes the clients that an operator has named, a few at a time: the core serves its connections
//! in between. A client that comes meanwhile may be closed or not.
//!
//! Nothing can be sent to a client whose connection is away at an agent. Such a client is closed
//! once its connection is back, so that it hears of its requests in flight, or after
//! [`limits::EVICTION_AWAY_NS`].

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
    let until_ns = io.now_ns() + limits::EVICTION_AWAY_NS;
    let eviction = Eviction { selection, answer, next: 0, closed: 0, away: Vec::new(), until_ns };
    match core.reports.eviction.replace(eviction) {
        Some(abandoned) => release(core, &abandoned),
        None => go_on(core, io),
    }
}

/// Closes the selected clients among the next ones. Stops if the operator has gone away.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    let Some(mut eviction) = core.reports.eviction.take() else { return };
    if eviction.answer.is_closed() {
        return release(core, &eviction);
    }
    let end = eviction.next.saturating_add(limits::EVICTION_STEP).min(core.clients.capacity());
    let meant = (eviction.next..end).filter_map(|slot| {
        let slot = slot as u32;
        let client = core.clients.get(slot)?;
        let pool = client.pool.and_then(|pool| core.router.pools.get(pool));
        let is_meant = eviction.selection.is_meant(client, pool.map(|pool| &pool.names));
        is_meant.then(|| core.clients.reference(slot))
    });
    let mut meant: Vec<ClientRef> = meant.collect();
    if eviction.next == end {
        meant = std::mem::take(&mut eviction.away);
    }
    eviction.next = end;
    close(core, io, &mut eviction, meant);
    let pause_ns = if end < core.clients.capacity() {
        limits::CENSUS_PAUSE_NS
    } else if !eviction.away.is_empty() {
        limits::EVICTION_AWAY_PAUSE_NS
    } else {
        let done = CoreEviction { core: core.context.index, closed: eviction.closed };
        let _ = eviction.answer.try_send(done);
        return;
    };
    io.set_timer(io.now_ns() + pause_ns, TIMER);
    core.reports.eviction = Some(eviction);
}

/// Closes these clients, except those that are away. They have to come back first.
fn close(core: &mut Core, io: &mut Io, eviction: &mut Eviction, mut meant: Vec<ClientRef>) {
    if io.now_ns() < eviction.until_ns {
        meant.retain(|client| {
            let Some(found) = core.clients.find_mut(*client) else { return false };
            if found.is_away {
                found.stays = true;
                eviction.away.push(*client);
            }
            !found.is_away
        });
    }
    final_errors::send(core, io, &meant);
    for client in meant {
        let Some(found) = core.clients.find(client) else { continue };
        // Drivers would take an ERROR in answer to a password for a wrong password.
        let close = if found.identity.is_some() { closing::close_identity } else { closing::close };
        close(core, io, client.slot, Closing::Operator, "an operator has asked for it");
        eviction.closed += 1;
    }
}

/// Lets the clients of an abandoned eviction be: their connections may leave again.
fn release(core: &mut Core, eviction: &Eviction) {
    for client in &eviction.away {
        if let Some(client) = core.clients.find_mut(*client) {
            client.stays = false;
        }
    }
}
