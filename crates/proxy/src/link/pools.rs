//! Assignment of pools: who may join one, and when its place is free again.

use shunt_reactor::Io;

use crate::core::Core;
use crate::ids::PoolId;
use crate::link::{PoolKey, Shortage, closing, open};

/// The pool of `key`, see [`crate::link::Pools::find_or_create`]. If the number of pools, in all or
/// of its role, has reached its bound, the one that has been idle longest makes room: links kept
/// for clients that may come back must not cost present clients theirs. A role that has its share
/// gives up one of its own; else the one with the most pools does.
pub(crate) fn for_key(
    core: &mut Core,
    io: &mut Io,
    key: &PoolKey,
    verified_ns: u64,
) -> Result<PoolId, Shortage> {
    let (per_node, now) = (core.context.config.links_per_node, io.now_ns());
    let found = core.router.pools.find_or_create(key, per_node, verified_ns, now);
    let Err(shortage) = found else { return found };
    let idlest = match shortage {
        Shortage::Pools => core.router.pools.idlest_of_most(),
        Shortage::OfRole => core.router.pools.idlest_of(key.account()),
        // The login of a pool without clients may be on its way to a node.
        Shortage::Logins => None,
    };
    let Some(idlest) = idlest else { return found };
    // No login waits in an idle pool.
    if retire_links(core, io, idlest)
        && let Some(pool) = core.router.pools.get_mut(idlest)
    {
        pool.verifying = false;
    }
    remove_if_unused(core, idlest);
    core.router.pools.find_or_create(key, per_node, verified_ns, now)
}

/// Adds a client to a pool.
pub(crate) fn join(core: &mut Core, io: &mut Io, slot: u32, pool_id: PoolId) {
    if let Some(pool) = core.router.pools.get_mut(pool_id) {
        pool.clients += 1;
        pool.admitted = true;
    }
    if let Some(client) = core.clients.get_mut(slot) {
        client.pool = Some(pool_id);
    }
    open::ensure_links(core, io, pool_id);
}

/// Retires the links of a pool that no client uses. Returns true if one was still opening: a login
/// that it was to verify needs another link.
pub(crate) fn retire_links(core: &mut Core, io: &mut Io, id: PoolId) -> bool {
    let links = core.router.pools.get(id).map(|pool| pool.links().collect::<Vec<_>>());
    let mut opening = false;
    for link in links.unwrap_or_default() {
        opening |= closing::retire(core, io, link);
    }
    opening
}

/// Frees a pool's place only when no client, no link and no waiting request refers to it: a request
/// of one login must never be sent under another.
pub(crate) fn remove_if_unused(core: &mut Core, id: PoolId) {
    let Some(pool) = core.router.pools.get(id) else { return };
    let is_unused = pool.clients == 0 && pool.has_no_links();
    // Clients that were never let in have sent no request.
    let had_requests = pool.admitted || pool.key.is_own;
    if is_unused && !(had_requests && core.retries.refers_to(id)) {
        core.router.pools.remove(id);
        core.links.openings.leave(id);
    }
}
