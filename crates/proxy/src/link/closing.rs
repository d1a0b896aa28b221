//! The end of a link: it is retired or closed, and leaves its pool and its node. The requests in
//! flight on it go to the second attempts ([`crate::retry`]), which begin when the event is over.

use shunt_reactor::Io;

use crate::client::Stall;
use crate::core::Core;
use crate::ids::LinkKey;
use crate::link::streams::Leg;
use crate::link::{Link, Purpose, Role, Step, legs};
use crate::retry::LostRequests;

/// Retires a link: no new queries on it; it closes when those in flight are answered. Returns true
/// if it was still opening: a login that it was to verify needs another link.
pub(crate) fn retire(core: &mut Core, io: &mut Io, key: LinkKey) -> bool {
    let Some(link) = core.links.get_mut(key) else { return false };
    if !link.retiring && link.step == Step::Ready {
        let (node, pool) = (link.node, link.pool);
        if let Some(pool) = core.router.pools.get_mut(pool) {
            pool.ready = pool.ready.saturating_sub(1);
            pool.remove_link(node, key);
        }
    }
    let Some(link) = core.links.get_mut(key) else { return false };
    link.retiring = true;
    let opening = link.step != Step::Ready;
    // Clients that it held back should try other links.
    let waiting = link.take_waiting();
    if link.is_unused() || opening {
        close(core, io, key);
    }
    core.clients.unstall_all(&core.context.metrics, waiting, Stall::LINK);
    opening
}

/// Closes a link from this side. Requests in flight on it count as lost.
pub(crate) fn close(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get(key) else { return };
    let conn = link.conn;
    // Take the sent log before the connection goes.
    forget(core, io, key);
    io.abort(conn);
}

/// Forgets a link. Its requests in flight, and the clients that wait for it, go on elsewhere.
pub(super) fn forget(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(mut link) = core.links.try_remove(key) else { return };
    let log = io.take_sent_log(link.conn);
    core.connections.forget(link.conn);
    detach(core, key, &link);
    core.clients.unstall_all(&core.context.metrics, link.take_waiting(), Stall::LINK);
    core.retries.linked.extend(link.on_ready.drain(..).map(|repair| (repair, false)));
    for (stream, pending) in link.streams.iter() {
        let own = Leg { link: key, stream };
        legs::end(&mut core.links, &core.context.metrics, own, pending.purpose);
    }
    let mut requests = link.streams.take_all();
    requests.retain(|pending| {
        let goes_on = matches!(pending.purpose, Purpose::Client | Purpose::Reprepare { .. });
        if !goes_on {
            core.retained.forget(pending.kept);
        }
        goes_on
    });
    if !requests.is_empty() {
        core.retries.lost.push(LostRequests { requests, log });
    }
}

/// Takes a link out of its pool and out of its node's figures.
fn detach(core: &mut Core, key: LinkKey, link: &Link) {
    if let Role::Replaces(old) | Role::Renews(old) = link.role
        && let Some(old) = core.links.find_mut(old)
    {
        old.is_being_replaced = false;
    }
    if let Some(state) = core.links.node_mut(link.node) {
        state.in_flight = state.in_flight.saturating_sub(link.streams.len() as u32);
        state.metrics.in_flight.set(u64::from(state.in_flight));
        if link.step == Step::Ready {
            state.metrics.links.sub(1);
            state.metrics.aggregated_links.sub(u64::from(link.aggregate.is_some()));
            state.metrics.links_lost.add(u64::from(!link.retiring));
        } else if link.role != Role::Verifies {
            state.metrics.connect_failures.add(1);
        }
    }
    if let Some(pool) = core.router.pools.get_mut(link.pool) {
        pool.detach(link.node, key);
        if link.step == Step::Ready && !link.retiring {
            pool.ready = pool.ready.saturating_sub(1);
        }
    }
}
