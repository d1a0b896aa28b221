//! The choice of a link for a request: among the replicas of its partition key, or among all nodes
//! of the local datacentre, the node with the fewest queries in flight.

use shunt_topology::NodeId;

use crate::ids::{ClientRef, LinkKey, PoolId};
use crate::link::Pool;
use crate::link::links::Links;
use crate::plan::Plan;
use crate::router::Router;

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This link.
    Link(LinkKey),
    /// All suitable links are full, or the client has its part of them; the request waits for this
    /// one.
    Full(LinkKey),
    /// No link of the pool is open.
    Nothing,
}

/// The fate of a request when all suitable links are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// The request waits until there is room.
    Waits,
    /// The request fails, or goes another way.
    Fails,
}

/// The link for a request of `asker`, among the open links of its pool. `avoid`: a node to use only
/// as the last resort. Drained nodes get the request only if no other node can take it.
#[inline]
pub(crate) fn choose(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
    avoid: Option<NodeId>,
    when_full: WhenFull,
) -> Choice {
    let choice = choose_in(router, links, pool, asker, plan, avoid, Scope::Undrained);
    if links.has_drained && !takes(links, choice, avoid, when_full) {
        return choose_among_all(router, links, pool, asker, plan, avoid);
    }
    choice
}

/// The link for a request that has waited in vain for an undrained node.
#[cold]
pub(crate) fn choose_after_wait(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
) -> Choice {
    match links.has_drained {
        true => choose_among_all(router, links, pool, asker, plan, None),
        false => Choice::Nothing,
    }
}

/// The link for a request that no undrained node can take.
#[cold]
#[inline(never)]
fn choose_among_all(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
    avoid: Option<NodeId>,
) -> Choice {
    choose_in(router, links, pool, asker, plan, avoid, Scope::All)
}

/// The nodes that a choice considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Nodes that no operator has drained.
    Undrained,
    All,
}

/// True if the chosen node can take the request, now or after a wait. Only clients' requests can
/// wait for a full link, and none waits for a node that does not answer probes.
fn takes(links: &Links, choice: Choice, avoid: Option<NodeId>, when_full: WhenFull) -> bool {
    match choice {
        Choice::Link(link) => is_responsive(links, link, avoid),
        Choice::Full(link) => when_full == WhenFull::Waits && is_responsive(links, link, avoid),
        Choice::Nothing => false,
    }
}

#[inline]
fn choose_in(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
    avoid: Option<NodeId>,
    scope: Scope,
) -> Choice {
    let Some(cluster) = router.cluster.as_ref() else { return Choice::Nothing };
    let Some(pool) = router.pools.get(pool) else { return Choice::Nothing };
    if pool.ready == 0 {
        return Choice::Nothing;
    }
    if let Some(node) = plan.node {
        return least_loaded(links, pool, asker, [node].iter(), avoid, scope);
    }
    if let Some((keyspace, token)) = plan.placement
        && plan.generation == router.generation
    {
        let replicas = cluster.routing.replicas(keyspace, token);
        let local = &replicas.nodes[..replicas.local.min(replicas.nodes.len())];
        // Conditions on one partition do not compete in Paxos if they go through one coordinator,
        // whatever share it has: each core and proxy judges nodes by itself.
        let mut in_scope =
            local.iter().filter(|node| scope == Scope::All || !links.is_drained(**node));
        if plan.conditional
            && let Choice::Link(link) =
                least_loaded(links, pool, asker, in_scope.next().into_iter(), avoid, scope)
            && is_responsive(links, link, avoid)
        {
            return Choice::Link(link);
        }
        match least_loaded(links, pool, asker, local.iter(), avoid, scope) {
            Choice::Nothing => {}
            found => return found,
        }
    }
    let nodes = cluster.routing.local_nodes();
    let start = if nodes.is_empty() { 0 } else { router.cursor % nodes.len() };
    let choice = least_loaded(
        links,
        pool,
        asker,
        nodes[start..].iter().chain(&nodes[..start]),
        avoid,
        scope,
    );
    router.cursor = router.cursor.wrapping_add(1);
    choice
}

/// The link to one of these nodes; `Nothing` if none of them has one, answers probes and is not
/// drained.
pub(crate) fn choose_among(
    router: &Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    nodes: &[NodeId],
) -> Choice {
    let Some(pool) = router.pools.get(pool) else { return Choice::Nothing };
    match least_loaded(links, pool, asker, nodes.iter(), None, Scope::Undrained) {
        Choice::Link(link) if !is_responsive(links, link, None) => Choice::Nothing,
        found => found,
    }
}

/// True if the link's node answers probes and is not the one to avoid.
fn is_responsive(links: &Links, link: LinkKey, avoid: Option<NodeId>) -> bool {
    let Some(node) = links.get(link).map(|link| link.node) else { return false };
    links.node(node).is_some_and(|state| !state.silent) && avoid != Some(node)
}

/// The rank of nodes that do not answer probes, and of the one to avoid. Of the others, those that
/// have their share of queries ([`crate::link::outliers`]) have rank 1, and the rest rank 0.
const LAST: u8 = 2;

/// Chooses the link to the node with the fewest queries in flight, its recent errors counted among
/// them; the first of equals, among the nodes of the lowest rank that can take the request now.
#[inline]
fn least_loaded<'a>(
    links: &Links,
    pool: &Pool,
    asker: ClientRef,
    nodes: impl Iterator<Item = &'a NodeId>,
    avoid: Option<NodeId>,
    scope: Scope,
) -> Choice {
    let turn = links.next_turn();
    let mut best = None;
    let (mut full, mut full_rank) = (Choice::Nothing, u8::MAX);
    for node in nodes {
        let Some(state) = links.node(*node) else { continue };
        if state.drained && scope == Scope::Undrained {
            continue;
        }
        let is_last = state.silent || avoid == Some(*node);
        let rank = if is_last { LAST } else { u8::from(state.share < turn) };
        for key in pool.links_to(*node) {
            let Some(link) = links.get(key).filter(|link| link.is_ready()) else { continue };
            if !link.takes(asker) {
                if rank == 0 || rank < full_rank {
                    (full, full_rank) = (Choice::Full(key), rank);
                }
                continue;
            }
            let load = (rank, state.in_flight + state.penalty, link.streams.len());
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, key));
            }
        }
    }
    best.map_or(full, |(_, key)| Choice::Link(key))
}
