//! Clients whose pool no node gives a link any more: all nodes refuse the properties that let them
//! in. Authentication was switched on, a password changed, the keyspace of their USE dropped.
//!
//! A driver logs in again only on a new connection, so the proxy sends them the nodes' message and
//! closes them. It must never close clients without a verdict of all nodes. One node's refusal, a
//! time-out, a node that cannot judge, or one that cannot be reached is no such verdict; only nodes
//! that the control plane reports down have no say. Each node must have refused twice, with its
//! pause between, and no link of the pool may be open.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::ErrorMessage;

use crate::client::{Stall, closing, login};
use crate::core::Core;
use crate::ids::PoolId;
use crate::metrics::{Closing, Outcome};
use crate::plan::Plan;
use crate::reply;

/// Consecutive refusals of a node that count as final.
const VERDICTS_MIN: u32 = 2;

/// Checks once a tick whether a pool's clients still have a chance. They are told first, and closed
/// a tick later, when their requests up to then have been answered.
pub(crate) fn tick(core: &mut Core, io: &mut Io, id: PoolId) {
    if !is_refused_everywhere(core, id) {
        return;
    }
    if core.router.pools.get(id).is_some_and(|pool| pool.dismissed) {
        close_dismissed(core, io, id);
    } else {
        dismiss(core, io, id);
    }
}

fn is_refused_everywhere(core: &Core, id: PoolId) -> bool {
    let (Some(pool), Some(cluster)) = (core.router.pools.get(id), &core.router.cluster) else {
        return false;
    };
    if !pool.admitted || pool.clients == 0 || pool.ready > 0 || pool.last_verdict.is_none() {
        return false;
    }
    let local = cluster.routing.local_nodes().iter().filter_map(|node| cluster.routing.node(*node));
    let mut voices = local.filter(|node| node.up).peekable();
    voices.peek().is_some() && voices.all(|node| pool.verdicts_of(node.id) >= VERDICTS_MIN)
}

/// Dismisses a pool: its clients get the nodes' message for each request, and no client is let in
/// on the cached login.
fn dismiss(core: &mut Core, io: &mut Io, id: PoolId) {
    let Some(pool) = core.router.pools.get_mut(id) else { return };
    let Some(verdict) = pool.last_verdict.clone() else { return };
    pool.dismissed = true;
    let login = pool.login_id;
    if let Some(class) = verdict.asks {
        core.router.login_asked = Some(class);
    }
    if verdict.of_login {
        for other in core.router.pools.ids() {
            if core.router.pools.get(other).is_some_and(|pool| pool.login_id == login) {
                core.router.pools.set_verified(other, 0);
            }
        }
    }
    for client in login::take_switching(core, id, false) {
        let Some(switch) = core.clients.find_mut(client).and_then(|found| found.switch) else {
            continue;
        };
        login::end_switch(core, io, client, id);
        reply::message(core, io, client.slot, opcode::ERROR, switch.stream, &verdict.words);
        core.clients.unstall(&core.context.metrics, client.slot, Stall::SWITCH);
    }
    let logins = login::take_switching(core, id, true);
    if let Some(pool) = core.router.pools.get_mut(id) {
        let held = std::mem::replace(&mut pool.waiting, logins);
        core.clients.unstall_all(&core.context.metrics, held, Stall::POOL);
    }
}

/// True if [`refuse_dismissed`] answers queries of this pool's clients.
pub(crate) fn is_dismissed(core: &Core, id: PoolId) -> bool {
    core.router.pools.get(id).is_some_and(|pool| pool.dismissed)
}

/// Refuses a query of a client that is about to be closed.
#[cold]
pub(crate) fn refuse_dismissed(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    stream: i16,
    plan: &Plan,
    id: PoolId,
) {
    core.context.metrics.queries.of(plan.kind).add(1);
    core.context.metrics.outcomes.of(Outcome::Overloaded).add(1);
    let verdict = core.router.pools.get(id).and_then(|pool| pool.last_verdict.as_ref());
    let words = verdict.map(|verdict| verdict.words.clone()).unwrap_or_default();
    reply::message(core, io, slot, opcode::ERROR, stream, &words);
}

/// Closes the dismissed clients. Those with an answer still to come, or a USE that leads elsewhere,
/// are closed later.
fn close_dismissed(core: &mut Core, io: &mut Io, id: PoolId) {
    let Some(verdict) = core.router.pools.get(id).and_then(|pool| pool.last_verdict.as_ref())
    else {
        return;
    };
    let words =
        ErrorMessage::decode(3, &verdict.words).map_or("not even why", |error| error.message);
    let why = format!("every node refuses it now: {}", words);
    let of_pool: Vec<u32> = core
        .clients
        .iter()
        .filter(|(_, client)| {
            client.pool == Some(id) && client.in_flight == 0 && client.switch.is_none()
        })
        .map(|(slot, _)| slot)
        .collect();
    for slot in of_pool {
        closing::close(core, io, slot, Closing::AccessLost, &why);
    }
}
